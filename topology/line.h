// Line: what a cache line takes from one core to another. Two cores send it back and forth.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti::topology {

/// In memory that both cores reach, all 0 before the first probe.
struct LinePair {
  alignas(128) std::atomic<uint32_t> there{0};
  alignas(128) std::atomic<uint32_t> back{0};
};

struct LineTrips {
  uint32_t count;    ///< of a probe, there and back: a multiple of `stretch`
  uint32_t stretch;  ///< trips between two looks at the clock
  std::chrono::steady_clock::duration patience;
};

/// One core calls send_line, the other one answer_line, at about the same time and with the same arguments.
/// `number`: of the probe on these lines, from 1 on, so that no answer is taken for that of another probe.
/// Returns nanoseconds one way, of the fastest stretch: other threads may take a core away. 0 if the other
/// core was not there in time.
double send_line(LinePair& lines, uint32_t number, const LineTrips& trips);
/// Whether the other core was there in time.
bool answer_line(LinePair& lines, uint32_t number, const LineTrips& trips);

}  // namespace tutti::topology
