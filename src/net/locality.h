// Locality: where a process runs. It tells which ranks share memory.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

/// Equal numbers mean the same place.
struct Locality {
  /// The running kernel: its ranks compete for cores.
  uint64_t machine = 0;
  /// Processes that can share memory: one machine, network name space (for Unix sockets), user, and
  /// TUTTI_HOSTID, by which tests emulate hosts.
  uint64_t host = 0;
};

/// Never fails: what cannot be read counts as equal, and set-up tests whether memory can be shared. `host_id`
/// is Config's.
Locality find_locality(const std::string& host_id);

}  // namespace tutti
