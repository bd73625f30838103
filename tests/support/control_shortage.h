// ControlShortage: a shortage of memory on a control thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cstdint>
#include <functional>
#include <future>
#include <optional>

#include "net/control_thread.h"
#include "tests/support/failing_allocations.h"

namespace tutti::test {

/// Returns when the control thread has run `body`.
inline void run_on(ControlThread& control, const std::function<void()>& body) {
  const FileDescriptor event(eventfd(1, EFD_CLOEXEC));
  std::promise<void> done;
  const Status watched = control.watch(event.get(), EPOLLIN, [&](uint32_t) {
    control.forget(event.get());
    body();
    done.set_value();
  });
  EXPECT_TRUE(watched.is_ok()) << watched.text();
  done.get_future().wait();
}

/// While this object lives, allocations of the control thread fail as in FailingAllocations.
class ControlShortage {
 public:
  explicit ControlShortage(ControlThread& control, uint64_t passed, uint64_t count = 1) : control_(control) {
    run_on(control_, [&] { shortage_.emplace(passed, count); });
  }
  ~ControlShortage() {
    run_on(control_, [this] { shortage_.reset(); });
  }
  ControlShortage(const ControlShortage&) = delete;
  ControlShortage& operator=(const ControlShortage&) = delete;

  bool has_failed() {
    bool failed = false;
    run_on(control_, [&failed] { failed = FailingAllocations::have_failed(); });
    return failed;
  }

 private:
  ControlThread& control_;
  std::optional<FailingAllocations> shortage_;
};

}  // namespace tutti::test
