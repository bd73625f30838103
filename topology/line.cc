#include "topology/line.h"

#include <algorithm>

namespace tutti::topology {
namespace {

using Clock = std::chrono::steady_clock;

/// Waits until the line has `turn`. False after the deadline.
bool await(const std::atomic<uint32_t>& line, uint32_t turn, Clock::time_point deadline) {
  for (uint32_t spins = 1; line.load(std::memory_order_acquire) != turn; ++spins) {
    if (spins % 4096 == 0 && Clock::now() > deadline) return false;
  }
  return true;
}

}  // namespace

double send_line(LinePair& lines, uint32_t number, const LineTrips& trips) {
  const uint32_t first = number * (trips.count + 1);
  const auto deadline = Clock::now() + trips.patience;
  auto start = Clock::now();
  double least_ns = 0;
  // In turn 0 the cores find each other.
  for (uint32_t i = 0; i <= trips.count; ++i) {
    lines.there.store(first + i, std::memory_order_release);
    if (!await(lines.back, first + i, deadline)) return 0;
    if (i % trips.stretch != 0) continue;
    const auto now = Clock::now();
    const double one_ns =
        std::chrono::duration<double, std::nano>(now - start).count() / (2.0 * trips.stretch);
    if (i > 0) least_ns = least_ns == 0 ? one_ns : std::min(least_ns, one_ns);
    start = now;
  }
  return least_ns;
}

bool answer_line(LinePair& lines, uint32_t number, const LineTrips& trips) {
  const uint32_t first = number * (trips.count + 1);
  const auto deadline = Clock::now() + trips.patience;
  for (uint32_t i = 0; i <= trips.count; ++i) {
    if (!await(lines.there, first + i, deadline)) return false;
    lines.back.store(first + i, std::memory_order_release);
  }
  return true;
}

}  // namespace tutti::topology
