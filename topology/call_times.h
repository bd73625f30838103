// Call times: what whole calls took on this machine, as trials have measured them (tools/trials.h). Predicted
// times are corrected by them (tools/corrections.h).
//
// As lines of files with measurements (measurements.h) and with graphs (text.h): collective, ranks, hosts,
// algorithm, bytes of the largest buffer, the time of a call among many, and in how many starts of the ranks
// it was measured, if not in one.
//
//   trial all_reduce 4 1 ring 32768 35.2 us spread 12 starts 3
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/types.h"
#include "topology/fact.h"
#include "topology/units.h"

namespace tutti::topology {

/// More in a file is a mistake.
inline constexpr uint64_t kTriedRanksMax = 4096;
inline constexpr uint64_t kTriedBytesMax = uint64_t{1} << 40;

struct TriedCall {
  Collective collective = Collective::kAllReduce;
  uint32_t ranks = 0;
  uint32_t hosts = 1;  ///< more: hosts that this machine emulates, so that messages pass sockets
  std::string algorithm = {};

  friend auto operator<=>(const TriedCall&,
                          const TriedCall&) = default;  // NOLINT(modernize-use-nullptr): the check is wrong
};

/// More starts do not count: machines change.
inline constexpr uint32_t kStartsMost = 5;

struct CallTime {
  Fact ns = {};
  uint32_t starts = 1;  ///< of the ranks, up to kStartsMost; the time is the mean of theirs

  friend bool operator==(const CallTime&, const CallTime&) = default;
};

/// By bytes.
using CallTimes = std::map<TriedCall, std::map<uint64_t, CallTime>>;

std::string print_calls(const CallTimes& calls);
/// As take_slice_line.
Result<bool> take_call_line(Scanner& scanner, CallTimes& calls);

}  // namespace tutti::topology
