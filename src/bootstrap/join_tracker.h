// JoinTracker: which ranks have been at a rendezvous, so that a failure is kept for the ranks that come late,
// and no longer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

namespace tutti {

/// How long a process that serves a failed bootstrap stays for ranks that have not heard why. Processes that
/// one launcher starts come within seconds, and a process with an error to report should not wait long for
/// ranks that may never come.
inline constexpr uint64_t kStayMs = 5000;

class JoinTracker {
 public:
  /// A rank says that so many are to come. Where they differ, the fewest: nobody waits for ranks that may not
  /// be.
  void expect(uint32_t rank_count) {
    expected_ = expected_ == 0 ? rank_count : std::min(expected_, rank_count);
  }
  /// A rank has been here and is gone: the rank has heard how the bootstrap ended, or has ended itself.
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
