// The list of the library's transports, and the choice between them.
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
  /// Makes the transport of one rank. Does not block. Errors: kSystemError, kOutOfMemory. A machine without
  /// the hardware is no error: then address() is empty.
  Result<std::unique_ptr<Transport>> (*open)(const TransportOptions& options) = nullptr;
  /// The settings of this transport that all ranks must share. May be null.
  std::vector<AgreedSetting> (*settings)(const Config& config) = nullptr;
};

/// The transports of the library, best first where two cost the same.
std::span<const TransportEntry> transports();

/// Those that may join ranks of different hosts under Config::transport. Errors: kInvalidArgument, when no
/// transport has the configured name; the text lists the names.
Result<std::vector<const TransportEntry*>> network_transports(const Config& config);

/// The tuned constants for a communicator whose ranks are on several hosts: the largest slots and the
/// smallest reference among `entries`, so that all ranks agree before they know who joins whom.
TransportTraits combined_traits(std::span<const TransportEntry* const> entries);

/// The values of all settings that transports want to be equal on all ranks, Config::transport among them.
/// The same settings in the same order on every rank; what is not used is 0.
using AgreedValues = std::array<uint64_t, 4>;
AgreedValues agreed_values(const Config& config);
/// Ok where the values of a rank and of rank 0 are equal. Errors: kInvalidArgument, which names the setting,
/// the rank and both values. All ranks that compare the same values find the same error.
Status compare_settings(uint32_t rank, const AgreedValues& theirs, const AgreedValues& first);

/// Index of the cheapest transport that joins two ranks. `costs`: Transport::reach of each transport, in the
/// order of the registry. Empty where no transport joins them.
std::optional<size_t> choose_transport(std::span<const std::optional<LinkCost>> costs);

}  // namespace tutti
