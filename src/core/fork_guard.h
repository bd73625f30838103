// ForkGuard: descriptors that a forked child must close. Peers learn from a closed descriptor that this
// process has ended. A child that kept the descriptor would hide the end.
#pragma once

#include <utility>

namespace tutti {

/// From now on a child closes its copy of `fd` at once. Any thread. Does nothing beyond 4096 descriptors:
/// then peers learn of the death by the heartbeat.
void close_in_child(int fd);
/// Call before this process closes `fd`. Any thread.
void keep_in_child(int fd);

/// Guards a descriptor for as long as it lives. Declare it after the descriptor's owner.
class ForkGuard {
 public:
  ForkGuard() = default;
  explicit ForkGuard(int fd) : fd_(fd) { close_in_child(fd); }
  ForkGuard(ForkGuard&& other) noexcept : fd_(std::exchange(other.fd_, kNone)) {}
  ForkGuard& operator=(ForkGuard&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ForkGuard() {
    if (fd_ != kNone) keep_in_child(fd_);
  }

 private:
  static constexpr int kNone = -1;
  int fd_ = kNone;
};

}  // namespace tutti
