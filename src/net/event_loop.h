// EventLoop: sockets and timers, driven by one thread.
//
// What the room owns (src/net): the means by which processes talk to each other beside the data. The room
// knows nothing of ranks that meet, communicators or calls. It sees src/core only. Its parts:
//   EventLoop, ControlThread        sockets and timers on the calling thread, or on a thread of their own
//   local_socket, file_server       Unix sockets, and descriptors that are handed out over them
//   endpoint, connector, acceptor   addresses; both ends of a new TCP connection
//   handshake, crypto               how the two ends prove that they know a key
//   frame, frame_socket, wire       what is said after that
//   locality                        where a process runs
//
// A loop is an epoll instance whose descriptor becomes readable when anything is due, a timer included. So
// the same state machines run three ways: a blocking call drives its own loop; one thread drives the loops of
// a thousand simulated ranks; another epoll thread watches descriptor() and calls run_ready(). Time comes
// from a clock that tests drive by hand. One thread at a time; handlers may forget any descriptor and cancel
// any timer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "core/clock.h"
#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

class EventLoop {
 public:
  using Handler = std::function<void(uint32_t events)>;
  using Clock = std::function<uint64_t()>;
  /// Names one timer; a default one names none.
  struct Timer {
    uint64_t time_ns = 0;
    uint64_t number = 0;
    auto operator<=>(const Timer&) const = default;  // NOLINT(modernize-use-nullptr): the check is wrong
  };

  /// Errors: kSystemError.
  static Result<std::unique_ptr<EventLoop>> create(Clock clock = now_ns);

  /// Nanoseconds of the loop's clock.
  uint64_t now() const { return clock_(); }

  /// Calls `handler` with the epoll events that come on `fd`: any of `events`, errors, hang-ups.
  Status watch(int fd, uint32_t events, Handler handler);
  /// Awaits other events on a watched descriptor.
  void change(int fd, uint32_t events);
  /// Call it before `fd` is closed. Its handler does not run again.
  void forget(int fd);

  /// Calls `action` once, when the clock has reached `time_ns`.
  Timer call_at(uint64_t time_ns, std::function<void()> action);
  /// Does nothing for a timer that has run. Resets the name.
  void cancel(Timer& timer);

  /// Readable when run_ready has something to do.
  int descriptor() const { return epoll_.get(); }
  /// Runs what is due, without waiting. False when nothing was.
  bool run_ready() { return run(0); }
  /// Runs until `done` holds; waits in between. The caller bounds it by a timer or a descriptor of its own.
  void run_until(const std::function<bool()>& done);

 private:
  struct Watch {
    uint32_t generation;
    std::shared_ptr<Handler> handler;
  };

  explicit EventLoop(Clock clock) : clock_(std::move(clock)) {}
  bool run(int timeout_ms);
  bool run_timers();
  void arm();

  Clock clock_;
  FileDescriptor epoll_;
  FileDescriptor alarm_;
  uint64_t armed_ns_ = 0;  ///< when the alarm rings; 0: never
  uint64_t timer_count_ = 0;
  uint32_t generation_ = 0;  ///< tells a descriptor from an earlier one of the same number
  std::map<int, Watch> watches_;
  std::map<Timer, std::function<void()>> timers_;
};

}  // namespace tutti
