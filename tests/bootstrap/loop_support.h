// What the tests of sockets share: a clock that is moved by hand, and waits that end.
#pragma once

#include <poll.h>
#include <sys/resource.h>

#include <functional>
#include <memory>

#include "net/endpoint.h"
#include "net/event_loop.h"

namespace tutti::test {

/// A loop on a clock that stands still unless it is moved.
class ManualLoop {
 public:
  EventLoop& operator*() { return *loop_; }
  EventLoop* operator->() { return loop_.get(); }
  uint64_t now() const { return *now_; }

  /// Moves the clock and runs what has become due.
  void advance_ms(uint64_t ms) {
    *now_ += ms * 1'000'000;
    while (loop_->run_ready()) {
    }
  }
  /// Runs what the kernel brings until `done`; false when nothing came for 20 s.
  bool run_until(const std::function<bool()>& done) {
    while (!done()) {
      if (loop_->run_ready()) continue;
      pollfd entry{loop_->descriptor(), POLLIN, 0};
      if (poll(&entry, 1, 20'000) <= 0) return false;
    }
    return true;
  }

 private:
  std::shared_ptr<uint64_t> now_ = std::make_shared<uint64_t>(1'000'000'000);
  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::create([now = now_] { return *now; }));
};

inline constexpr uint64_t kSecondNs = 1'000'000'000;

/// The loopback address, as an endpoint of a listener.
inline Endpoint loopback(uint16_t port) {
  Endpoint endpoint;
  endpoint.address[0] = std::byte{127};
  endpoint.address[3] = std::byte{1};
  endpoint.port = port;
  return endpoint;
}

/// Listens for this test only.
inline Listener loopback_listener() {
  Listener listener = std::move(*listen_at({.interfaces = "=lo"}));
  const uint16_t port = listener.endpoints[0].port;
  listener.endpoints = {loopback(port)};
  return listener;
}

/// Whether this process may have that many descriptors open; asks for them.
inline bool raise_descriptor_limit(rlim_t count) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= count) return true;
  limit.rlim_cur = std::min(count, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

}  // namespace tutti::test
