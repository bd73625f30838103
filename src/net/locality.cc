#include "net/locality.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/hash.h"

namespace tutti {

Locality find_locality(const std::string& host_id) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  Locality locality;
  locality.machine = hash_bytes(boot.data(), boot.size());
  struct stat network {};
  const auto name_space = stat("/proc/self/ns/net", &network) == 0 ? network.st_ino : 0;
  const std::string rest = '/' + std::to_string(name_space) + '/' + std::to_string(geteuid()) + '/' + host_id;
  locality.host = hash_bytes(rest.data(), rest.size(), locality.machine);
  return locality;
}

}  // namespace tutti
