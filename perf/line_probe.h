// Where the cores are: what a cache line takes between ranks 0 and 1. The host of a virtual machine moves its
// cores, often many times a second, and a call between far cores takes several times as long.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/result.h"
#include "perf/agree.h"
#include "topology/line.h"
#include "transports/shm/memory.h"

namespace tutti::perf {

/// Of ranks that are processes of one machine, each with one thread, bound to cores.
class LineProbe {
 public:
  /// Collective. Null on all ranks if ranks 0 and 1 share a core, or the system gives them no page to share.
  /// `agreement` outlives the probe. Errors: those of Agreement.
  static Result<std::unique_ptr<LineProbe>> make(const Agreement& agreement, int rank);
  /// Collective. Ranks 0 and 1 measure when all ranks are here: the root of a chain may be calls ahead. On
  /// rank 0: nanoseconds one way, of the call before this one and of this one; 0 if rank 1 did not run within
  /// some milliseconds. Errors: those of Agreement.
  Result<std::array<uint64_t, 2>> measure();

 private:
  LineProbe(const Agreement& agreement, int rank) : agreement_(agreement), rank_(rank) {}

  const Agreement& agreement_;
  Mapping page_;  ///< a LinePair, of ranks 0 and 1
  int rank_;
  uint32_t number_ = 0;  ///< of the latest probe
  uint64_t line_ns_ = 0;
};

}  // namespace tutti::perf
