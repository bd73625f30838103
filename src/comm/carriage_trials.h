// CarriageTrials: whether a large call between processes is staged through slots or pulled out of the
// sender's process, found out by timing both.
//
// Which of the two is faster depends on how the ranks' cores share caches, which nothing tells on a virtual
// machine, and which changes while it runs. Both are tried in turn in the first calls, then ever more seldom.
// Only neighbouring calls are compared, since minutes differ by more than the two do, and one comparison
// decides nothing: a call that met a page fault or another program would stay wrong for dozens of calls.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace tutti {

class CarriageTrials {
 public:
  /// Whether the call that begins now is to be pulled.
  bool begin() {
    const bool again = calls_ >= kFirstTrials && std::has_single_bit(calls_);
    was_pulled_ = pulls_;
    pulls_ = calls_ < kFirstTrials ? calls_ % 2 != 0 : again != (lead_ > 0);
    ++calls_;
    return pulls_;
  }

  /// How long that call took.
  void end(uint64_t took_ns) {
    took_ns_[pulls_] = took_ns;
    // The first call of each kind pays for pages that are touched for the first time.
    if (pulls_ == was_pulled_ || calls_ <= kColdCalls) return;
    lead_ = std::clamp(lead_ + (took_ns_[1] < took_ns_[0] ? 1 : -1), -kMostLead, kMostLead);
  }

 private:
  static constexpr uint32_t kFirstTrials = 12;
  static constexpr uint32_t kColdCalls = 3;
  static constexpr int kMostLead = 3;

  uint32_t calls_ = 0;
  bool pulls_ = false;
  bool was_pulled_ = false;               ///< the call before
  int lead_ = 0;                          ///< comparisons that pulling has won beyond those it has lost
  std::array<uint64_t, 2> took_ns_ = {};  ///< the last call staged, the last one pulled
};

}  // namespace tutti
