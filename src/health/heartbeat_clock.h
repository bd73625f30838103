// HeartbeatClock: how often a process beats, and how long a peer may be silent; the same within a host and
// between hosts.
#pragma once

#include <cstdint>

namespace tutti {

class HeartbeatClock {
 public:
  explicit HeartbeatClock(uint64_t heartbeat_ms) : heartbeat_ns_(heartbeat_ms * 1'000'000) {}

  uint64_t period_ns() const { return heartbeat_ns_ / kBeatsInTime; }
  static double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
  /// The last beat may have come a period before the peer was stopped. So a stop that is shorter than the
  /// heartbeat never counts.
  bool is_too_long(uint64_t silent_ns) const { return silent_ns > heartbeat_ns_ + period_ns(); }
  void start(uint64_t now_ns) { last_ns_ = now_ns; }
  /// Counts a beat of this process. True if it missed some: it was stopped and heard nothing, so it starts
  /// its peers' silence anew.
  bool beat(uint64_t now_ns) {
    const bool was_stopped = now_ns - last_ns_ > 2 * period_ns();
    last_ns_ = now_ns;
    return was_stopped;
  }

 private:
  // Beats within the time after which a silent peer is lost.
  static constexpr uint64_t kBeatsInTime = 4;

  uint64_t heartbeat_ns_;
  uint64_t last_ns_ = 0;
};

}  // namespace tutti
