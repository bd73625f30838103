// The control thread: who is called for which descriptor, and when no more.
#include "comm/control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>

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
  FileDescriptor forgotten = event();
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
    forgotten.reset();
  });
  set(forgotten);
  set(listener);
  again.get_future().wait();
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace tutti::test
