// The control thread: who is called for which descriptor, and when no more.
#include "net/control_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <string>

#include "core/clock.h"
#include "net/file_server.h"
#include "net/local_socket.h"
#include "tests/support/control_shortage.h"
#include "tests/support/failing_allocations.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

FileDescriptor event() {
  return FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void set(const FileDescriptor& event) {
  EXPECT_EQ(eventfd_write(event.get(), 1), 0);
}

void reset(const FileDescriptor& event) {
  eventfd_t value = 0;
  EXPECT_EQ(eventfd_read(event.get(), &value), 0);
}

/// A control thread of the test's own, and a way to await that it has run what was due.
class ControlTest : public testing::Test {
 protected:
  void watch(const FileDescriptor& event, ControlThread::Handler handler) {
    const Status watched = control_->watch(event.get(), EPOLLIN, std::move(handler));
    EXPECT_TRUE(watched.is_ok()) << watched.text();
  }

  /// Returns when what was ready before has been handled.
  void settle() {
    const FileDescriptor last = event();
    std::promise<void> handled;
    watch(last, [&](uint32_t) {
      control_->forget(last.get());
      handled.set_value();
    });
    set(last);
    handled.get_future().wait();
  }

  std::unique_ptr<ControlThread> control_ = std::move(*ControlThread::start());
};

// Goal: an event of a descriptor that has been closed is not told to who watches the next one of its number:
// that one's peer was taken for dead. Method: two descriptors are ready at once, and whoever is called first
// replaces the other by one that is not.
TEST_F(ControlTest, ANewDescriptorOfAnOldNumberHasNoOldEvents) {
  FileDescriptor pair[2] = {event(), event()};
  const FileDescriptor start = event();
  std::atomic<int> called = 0;
  std::atomic<int> old_events = 0;
  const auto replace = [&](FileDescriptor& other) {
    ++called;
    const int number = other.get();
    control_->forget(number);
    ASSERT_EQ(dup3(event().get(), number, O_CLOEXEC), number);
    watch(other, [&](uint32_t) { ++old_events; });
  };
  for (int i = 0; i < 2; ++i) {
    watch(pair[i], [&, i](uint32_t) {
      reset(pair[i]);
      replace(pair[1 - i]);
    });
  }
  watch(start, [&](uint32_t) {
    reset(start);
    for (const FileDescriptor& one : pair) set(one);
  });
  set(start);
  settle();
  settle();
  EXPECT_EQ(called, 1);
  EXPECT_EQ(old_events, 0);
}

// Goal: a listener that is left alone for a moment is looked at again after it; one that is forgotten
// meanwhile is not.
TEST_F(ControlTest, APauseEnds) {
  const FileDescriptor listener = event();
  const FileDescriptor forgotten = event();
  std::atomic<int> calls = 0;
  std::promise<void> again;
  watch(listener, [&](uint32_t) {
    if (++calls == 1) return control_->pause(listener.get());
    control_->forget(listener.get());
    again.set_value();
  });
  watch(forgotten, [&](uint32_t) {
    control_->pause(forgotten.get());
    control_->forget(forgotten.get());
  });
  set(forgotten);
  set(listener);
  again.get_future().wait();
  EXPECT_EQ(calls, 2);
}

// A listener whose connections cannot be taken stays ready: the control thread spun on it. Method: it finds
// no descriptor three times, then one; what it did in between is counted by its handler, and a connection
// that waited comes in.
TEST_F(ControlTest, AListenerIsLeftAloneWhileThereIsNoDescriptor) {
  if (sanitized() && !thread_sanitized()) GTEST_SKIP() << "the sanitizer needs descriptors to look at types";
  const std::string name = "tutti-test-full-" + std::to_string(getpid());
  auto listener = local_listen(name);
  ASSERT_TRUE(listener.status().is_ok()) << listener.status().text();
  const auto connection = local_connect(name, UINT64_MAX);
  ASSERT_TRUE(connection.status().is_ok()) << connection.status().text();
  auto none = std::make_unique<NoDescriptors>();
  int turns = 0;
  const uint64_t began_ns = now_ns();
  std::atomic<uint64_t> taken_ns = 0;
  ASSERT_TRUE(control_->watch(listener->get(), EPOLLIN, [&](uint32_t) {
    if (++turns == 4) none.reset();
    accept_waiting(*control_, *listener, [&](const FileDescriptor&) {
      taken_ns = now_ns();
      taken_ns.notify_one();
    });
  }));
  // Three pauses of 10 ms, less what each rounds off.
  taken_ns.wait(0);
  EXPECT_GE(taken_ns - began_ns, 25'000'000u);
  control_->forget(listener->get());
  EXPECT_EQ(turns, 4);
}

// Goal: a handler and a timer that find no memory come again, keep no others from their turn, and end
// nothing. They once ended the process.
TEST_F(ControlTest, WhatFoundNoMemoryComesAgain) {
  const FileDescriptor first = event();
  const FileDescriptor second = event();
  std::atomic<int> calls = 0;
  std::atomic<int> rings = 0;
  std::promise<void> handled;
  std::promise<void> rung;
  {
    const auto hold = control_->hold();
    for (const FileDescriptor* one : {&first, &second}) {
      watch(*one, [&, one](uint32_t) {
        if (++calls < 6) throw std::bad_alloc();
        reset(*one);
        if (calls == 7) handled.set_value();
      });
    }
    control_->loop().call_at(0, [&] {
      if (++rings < 3) throw std::bad_alloc();
      rung.set_value();
    });
    set(first);
    set(second);
  }
  handled.get_future().wait();
  rung.get_future().wait();
  settle();
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(rings, 3);
}

// Goal: a timer that has been cancelled before its action ran out of memory does not come again: its owner
// may be gone.
TEST_F(ControlTest, ACancelledTimerDoesNotComeAgain) {
  std::atomic<int> rings = 0;
  EventLoop::Timer timer;
  std::promise<void> rung;
  {
    const auto hold = control_->hold();
    timer = control_->loop().call_at(0, [&] {
      ++rings;
      control_->loop().cancel(timer);
      throw std::bad_alloc();
    });
    control_->loop().call_at(1, [&] { rung.set_value(); });
  }
  rung.get_future().wait();
  settle();
  EXPECT_EQ(rings, 1);
}

// Goal: a process that runs out of memory while another one fetches a file goes on, and keeps no one waiting.
// Method: each allocation of the control thread fails in turn.
TEST_F(ControlTest, AFileServerWithoutMemoryKeepsNoOneWaiting) {
  const std::string name = "tutti-test-files-" + std::to_string(getpid());
  auto server = FileServer::start(*control_, name);
  ASSERT_TRUE(server.status().is_ok()) << server.status().text();
  const FileDescriptor file = event();
  const FileSecret secret{std::byte{1}};
  (*server)->offer(secret, {file.get()});
  bool has_failed = true;
  for (uint64_t turn = 0; has_failed; ++turn) {
    ControlShortage shortage(*control_, turn);
    const auto files = fetch_files(
        {.name = name, .secret = secret, .count = 1, .deadline_ns = deadline_after_ms(60'000), .check = [] {
           return Status::ok();
         }});
    has_failed = shortage.has_failed();
    const bool may_end = has_failed && files.status().code() == Code::kPeerLost;
    EXPECT_TRUE(files.is_ok() || may_end) << turn << ": " << files.status().text();
  }
  const auto hold = control_->hold();
  server->reset();
}

// Goal: a listener whose pause finds no memory pauses later, and is looked at again. Method: each allocation
// of the pause fails in turn.
TEST_F(ControlTest, APauseThatFindsNoMemoryEnds) {
  bool has_failed = true;
  for (uint64_t turn = 0; has_failed; ++turn) {
    const FileDescriptor listener = event();
    std::promise<void> again;
    int pauses = 0;
    has_failed = false;
    watch(listener, [&](uint32_t) {
      if (pauses == 0) {
        const FailingAllocations shortage(has_failed ? UINT64_MAX : turn);
        try {
          control_->pause(listener.get());
        } catch (...) {
          has_failed = true;
          throw;
        }
        ++pauses;
        return;
      }
      control_->forget(listener.get());
      again.set_value();
    });
    set(listener);
    again.get_future().wait();
  }
}

}  // namespace
}  // namespace tutti::test
