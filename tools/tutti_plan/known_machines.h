// Machines that go by a name, with the bus bandwidth that others have published for them: what predictions
// are held against (docs/measurements/predicted.md).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::tool {

/// Of all_reduce.
struct PublishedBandwidth {
  uint64_t bytes;
  double gigabytes_per_s;
  std::string_view by;
  std::string_view source;
};

struct KnownMachine {
  std::string_view name;
  std::string_view description;  ///< as of topology::parse_topology
  std::span<const PublishedBandwidth> published;
  bool has_multicast = true;  ///< the switch reduces what it loads, and stores to all: from Hopper on
};

/// Null: no machine has the name.
const KnownMachine* find_machine(std::string_view name);
/// "a100, h100, ...".
std::string_view machine_names();

}  // namespace tutti::tool
