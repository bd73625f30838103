// Where the cores are: what a cache line takes between ranks 0 and 1. The host of a virtual machine moves its
// cores, often many times a second, and a call between far cores takes several times as long.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/result.h"
#include "perf/agree.h"
#include "topology/line.h"

namespace tutti::perf {

/// Of ranks that are processes of one machine, each with one thread, bound to cores.
class LineProbe {
 public:
  /// Collective. Null on all ranks if the system gives ranks 0 and 1 no page to share. Errors: those of
  /// Agreement.
  static Result<std::unique_ptr<LineProbe>> make(const Agreement& agreement, int rank);
  ~LineProbe();
  LineProbe(const LineProbe&) = delete;
  LineProbe& operator=(const LineProbe&) = delete;

  /// Called by all ranks at about the same time; only 0 and 1 do something. On rank 0: nanoseconds one way,
  /// of the call before this one and of this one; 0 if rank 1 did not run within some milliseconds.
  std::array<uint64_t, 2> measure();

 private:
  explicit LineProbe(int rank) : rank_(rank) {}

  topology::LinePair* lines_ = nullptr;  ///< of ranks 0 and 1
  int rank_;
  uint32_t number_ = 0;  ///< of the latest probe
  uint64_t line_ns_ = 0;
};

}  // namespace tutti::perf
