// The library's transports, and the choice between them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/result.h"
#include "transports/transport.h"

namespace tutti {

struct TransportEntry {
  const char* name = nullptr;  ///< as users write it in TUTTI_TRANSPORT
  const TransportTraits* traits = nullptr;
  /// Makes one rank's transport without blocking. Missing hardware is no error: then address() is empty.
  /// Errors: kSystemError, kOutOfMemory.
  Result<std::unique_ptr<Transport>> (*open)(const TransportOptions& options) = nullptr;
  /// The settings that must be equal on all ranks. May be null.
  std::vector<AgreedSetting> (*settings)(const Config& config) = nullptr;
};

/// Where two cost the same, the first one wins.
std::span<const TransportEntry> transports();

/// Transports between hosts, under Config::transport. Errors: kInvalidArgument for an unknown name, with the
/// list of names.
Result<std::vector<const TransportEntry*>> network_transports(const Config& config);

/// Tuned constants for ranks on several hosts: the largest slots and the smallest reference. So all ranks
/// agree before they know which transport joins which ranks.
TransportTraits combined_traits(std::span<const TransportEntry* const> entries);

/// All settings that must be equal on all ranks, Config::transport among them, in the same order everywhere.
/// Unused entries are 0.
using AgreedValues = std::array<uint64_t, 4>;
AgreedValues agreed_values(const Config& config);
/// Compares a rank's values with rank 0's. Errors: kInvalidArgument, with setting, rank and both values; the
/// same error on all ranks.
Status compare_settings(uint32_t rank, const AgreedValues& theirs, const AgreedValues& first);

/// Index of the cheapest transport between two ranks; empty if there is none. `costs`: from Transport::reach,
/// in the registry's order.
std::optional<size_t> choose_transport(std::span<const std::optional<LinkCost>> costs);

}  // namespace tutti
