// What the trials by timing share: what counts alike, and how many decide (transports/carriage_trials.h,
// engine/result_trials.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tutti {

/// Sizes that are judged together: class 0 ends below 2 * `least`, each following one at twice that. The last
/// of `classes` has no end.
constexpr uint32_t size_class(uint64_t bytes, uint64_t least, uint32_t classes) {
  const auto width = static_cast<uint32_t>(std::bit_width(bytes / least));
  return std::min(std::max(width, 1u) - 1, classes - 1);
}

/// Which of two ways wins, by votes. Two net votes change the result, or four if all before agreed: one
/// disturbed call must not decide.
class TrialVotes {
 public:
  explicit constexpr TrialVotes(bool wins_at_first = false) : wins_(wins_at_first) {}

  bool wins() const { return wins_; }
  void vote(bool is_for) {
    votes_ = std::clamp(votes_ + (is_for ? 1 : -1), -kVotes, kVotes);
    if (votes_ == kVotes) wins_ = true;
    if (votes_ == -kVotes || (is_anew_ && !is_for)) wins_ = false;
    is_anew_ = false;
  }
  /// The trials before do not count. The next one decides alone if it is against.
  void begin_anew() {
    votes_ = 0;
    is_anew_ = true;
  }

 private:
  static constexpr int kVotes = 2;
  bool wins_;
  bool is_anew_ = false;
  int votes_ = 0;  ///< trials for it, less the others
};

}  // namespace tutti
