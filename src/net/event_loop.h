// EventLoop: sockets and timers, driven by one thread.
//
// This folder, src/net, owns the communication of processes beside the data path. It knows nothing of
// communicators, and sees src/core only. Its parts:
//   EventLoop, ControlThread        sockets and timers on the calling thread, or on their own thread
//   local_socket, file_server       Unix sockets, and descriptors sent over them
//   endpoint, connector, acceptor   addresses; both ends of a new TCP connection
//   handshake, crypto               how both ends prove that they know a key
//   frame, frame_socket, wire       the messages after that
//   locality                        where a process runs
//
// A loop is an epoll instance, whose descriptor is readable when a socket is ready and, after add_alarm(),
// when a timer is due. So the same state machines run in three ways: a blocking call drives its own loop; one
// thread drives the loops of a thousand simulated ranks; another epoll thread watches descriptor() and calls
// run_ready(). Tests can set the clock. One thread at a time. Handlers may forget any descriptor and cancel
// any timer.
//
// A handler may throw where memory is short. It is called again if it has left its descriptor ready, and a
// timer's action always, unless the timer has been cancelled meanwhile.
#pragma once

#include <cstdint>
#include <exception>
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
  /// A default-constructed one names no timer.
  struct Timer {
    uint64_t time_ns = 0;
    uint64_t number = 0;
    auto operator<=>(const Timer&) const = default;  // NOLINT(modernize-use-nullptr): the check is wrong
  };

  /// Errors: kSystemError.
  static Result<std::unique_ptr<EventLoop>> create(Clock clock = now_ns);

  uint64_t now() const { return clock_(); }

  /// Calls `handler` with epoll events on `fd`: any of `events`, errors, hang-ups.
  Status watch(int fd, uint32_t events, Handler handler);
  void change(int fd, uint32_t events);
  /// Call it before `fd` is closed. The handler does not run again.
  void forget(int fd);

  /// Calls `action` once, when the clock reaches `time_ns`.
  Timer call_at(uint64_t time_ns, std::function<void()> action);
  /// Resets the name. Does nothing if the timer has run.
  void cancel(Timer& timer);

  /// Readable when a watched descriptor is ready.
  int descriptor() const { return epoll_.get(); }
  /// Makes descriptor() readable when a timer is due, too, for a loop that another one watches. Takes a
  /// descriptor, which a loop that its own thread drives can do without. May be called again. Errors:
  /// kSystemError.
  Status add_alarm();
  /// Lets run_until() look at its condition again. Any thread.
  void wake();
  /// Never waits. False if nothing was due. What a handler throws leaves after all others have had their
  /// turn.
  bool run_ready();
  /// Waits in between. The caller bounds the wait by a timer or a descriptor. What a handler throws leaves at
  /// once.
  void run_until(const std::function<bool()>& done);

 private:
  struct Watch {
    uint32_t generation;
    std::shared_ptr<Handler> handler;
  };

  explicit EventLoop(Clock clock) : clock_(std::move(clock)) {}
  /// With `thrown`, what handlers throw goes there.
  bool run(int timeout_ms, std::exception_ptr* thrown);
  bool run_timers(std::exception_ptr* thrown);
  void run_timer(const Timer& timer);
  void arm();
  /// Milliseconds until the first timer is due, rounded up; -1: none is set.
  int next_timer_ms() const;

  Clock clock_;
  FileDescriptor epoll_;
  FileDescriptor alarm_;   ///< after add_alarm()
  uint64_t armed_ns_ = 0;  ///< when the alarm rings; 0: never
  uint64_t timer_count_ = 0;
  uint32_t generation_ = 0;  ///< distinguishes descriptors that had the same number
  std::map<int, Watch> watches_;
  std::map<Timer, std::function<void()>> timers_;
};

}  // namespace tutti
