#include "topology/kept.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace tutti::topology {

std::string kept_path(const Environment& environment, uint64_t machine) {
  const auto folder_of = [&](const char* name) {
    const char* value = environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string folder = folder_of("XDG_CACHE_HOME");
  if (folder.empty()) {
    const std::string home = folder_of("HOME");
    if (home.empty()) return {};
    folder = home + "/.cache";
  }
  return folder + format("/tutti/%016llx.measured", static_cast<unsigned long long>(machine));
}

Result<Measurements> read_kept(const std::string& path, uint64_t machine) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error(path, errno);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto measurements = parse_measurements(text);
  if (!measurements) {
    return Status(measurements.status().code(), path + ": " + std::string(measurements.status().text()));
  }
  if (measurements->machine != machine) {
    return Status(Code::kMismatch,
                  path + " is of another kind of machine; delete the file, or measure again");
  }
  return measurements;
}

Status keep(const std::string& path, const Measurements& measurements) {
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failure);
  if (failure) return system_error(path, failure.value());
  const std::string fresh = path + "." + std::to_string(getpid());
  std::ofstream file(fresh, std::ios::binary);
  file << print_measurements(measurements);
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(fresh.c_str());
    return system_error(path, error);
  }
  return {};
}

}  // namespace tutti::topology
