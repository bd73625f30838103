// CarriageTrials: finds by timing whether to send a large call between processes through slots or by pulling.
//
// The faster way depends on how the ranks' cores share caches, which a virtual machine does not tell and
// which may change. The first calls alternate; later trials become rarer. Only neighbouring calls are
// compared, because speed drifts by more than the difference. One comparison never decides: one page fault
// would fix the wrong choice for dozens of calls.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace tutti {

class CarriageTrials {
 public:
  /// Whether to pull in the next call.
  bool begin() {
    const bool again = calls_ >= kFirstTrials && std::has_single_bit(calls_);
    was_pulled_ = pulls_;
    pulls_ = calls_ < kFirstTrials ? calls_ % 2 != 0 : again != (lead_ > 0);
    ++calls_;
    return pulls_;
  }

  void end(uint64_t took_ns) {
    took_ns_[pulls_] = took_ns;
    // The first call of each kind pays for first touches of pages.
    if (pulls_ == was_pulled_ || calls_ <= kColdCalls) return;
    lead_ = std::clamp(lead_ + (took_ns_[1] < took_ns_[0] ? 1 : -1), -kMostLead, kMostLead);
  }

 private:
  static constexpr uint32_t kFirstTrials = 12;
  static constexpr uint32_t kColdCalls = 3;
  static constexpr int kMostLead = 3;

  uint32_t calls_ = 0;
  bool pulls_ = false;
  bool was_pulled_ = false;               ///< in the previous call
  int lead_ = 0;                          ///< comparisons won by pulling, less those lost
  std::array<uint64_t, 2> took_ns_ = {};  ///< last staged call, last pulled call
};

}  // namespace tutti
