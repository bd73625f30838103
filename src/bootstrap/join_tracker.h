// JoinTracker: who has been at a meeting, so that a failure is kept for those that come late, and no longer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

namespace tutti {

/// How long who serves a meeting that has failed stays for ranks that have not heard why: processes that one
/// launcher starts come within seconds, and who has an error to report should not wait long for ranks that
/// may never come.
inline constexpr uint64_t kStayMs = 5000;

class JoinTracker {
 public:
  /// A rank says that so many are to come. Where they differ, the fewest: nobody waits for ranks that may not
  /// be.
  void expect(uint32_t rank_count) {
    expected_ = expected_ == 0 ? rank_count : std::min(expected_, rank_count);
  }
  /// A rank has been here and is gone: it has heard how the meeting ended, or it has ended itself.
  void gone(uint32_t rank) { gone_.insert(rank); }
  /// The same for one that came under the number of another, which is still to come, or has been here, too.
  void gone_under_another_name() { ++nameless_; }
  /// Nobody is left who could come and ask.
  bool is_complete() const { return expected_ > 0 && gone_.size() + nameless_ >= expected_; }

 private:
  uint32_t expected_ = 0;
  std::set<uint32_t> gone_;
  size_t nameless_ = 0;
};

}  // namespace tutti
