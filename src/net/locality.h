// Locality: where a process runs, from which follows which ranks share memory.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

/// Where a process runs. Equal numbers: the same place.
struct Locality {
  /// The running kernel: its ranks compete for cores.
  uint64_t machine = 0;
  /// Where memory can be shared: one machine, one network name space (in which ranks find each other's Unix
  /// sockets), one user; and, where tests emulate hosts, one TUTTI_HOSTID.
  uint64_t host = 0;
};

/// Of this process; `host_id` as in Config. Never fails: what cannot be read counts as the same everywhere,
/// and sharing memory is tried before it is believed.
Locality find_locality(const std::string& host_id);

}  // namespace tutti
