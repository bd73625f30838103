// Goal: a waiter spins or yields first, then sleeps longer and longer, and begins anew when something moved.
// Beside a computing thread it leaves the core alone.
// Method: turns counted, time read from the waiter's own answer, processor time compared.
#include "engine/wait.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "core/clock.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

/// Turns until the waiter has read a clock.
uint32_t quiet_turns(Waiter& waiter) {
  uint32_t turns = 0;
  while (waiter.pause() == 0) ++turns;
  return turns;
}

uint64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

class WaiterTest : public testing::TestWithParam<WaitMode> {};

TEST_P(WaiterTest, AShortWaitReadsNoClock) {
  if (GetParam() == WaitMode::kBeside) GTEST_SKIP() << "it measures how long it gave its core away";
  Waiter waiter(GetParam());
  EXPECT_GE(quiet_turns(waiter), 4u);
  // The design promises 1,000 failed polls where a rank has a core for itself.
  if (GetParam() == WaitMode::kSpin) {
    Waiter again(GetParam());
    EXPECT_GE(quiet_turns(again) * again.polls(), 1000u);
  }
}

TEST_P(WaiterTest, AWaitBeginsAnewWhenSomethingMoved) {
  Waiter waiter(GetParam());
  const uint32_t turns = quiet_turns(waiter);
  while (waiter.pause() < 3'000'000) {
  }
  const uint64_t moved_ns = now_ns();
  waiter.moved();
  EXPECT_EQ(quiet_turns(waiter), turns);
  const uint64_t waited = waiter.pause();
  EXPECT_LE(waited, now_ns() - moved_ns + 1) << "the time of the wait before was not forgotten";
}

/// As a job that is suspended in its first sleep.
class StoppedSleeper final : public Sleeper {
 public:
  void sleep(uint64_t) override {
    if (was_stopped) return;
    was_stopped = true;
    const uint64_t until_ns = now_ns() + kStopNs;
    while (now_ns() < until_ns) std::this_thread::yield();
  }
  static constexpr uint64_t kStopNs = 1'500'000'000;
  bool was_stopped = false;
};

// A job that a batch system had suspended for longer than its deadline failed when it went on.
TEST_P(WaiterTest, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  StoppedSleeper sleeper;
  Waiter waiter(GetParam(), &sleeper);
  while (!sleeper.was_stopped) waiter.pause();
  EXPECT_LT(waiter.pause(), StoppedSleeper::kStopNs);
}

TEST_P(WaiterTest, TheTimeWaitedGrowsAndIsReal) {
  Waiter waiter(GetParam());
  quiet_turns(waiter);
  const uint64_t began = now_ns();
  uint64_t before = waiter.pause();
  const uint64_t first = before;
  while (before < 5'000'000) {
    const uint64_t waited = waiter.pause();
    ASSERT_GE(waited, before);
    before = waited;
  }
  EXPECT_LE(before - first, now_ns() - began);
}

TEST(WaiterModeTest, OnlyASpinningWaiterLetsAnOperationPollManyTimes) {
  EXPECT_EQ(Waiter(WaitMode::kYield).polls(), 1u);
  EXPECT_EQ(Waiter(WaitMode::kBeside).polls(), 1u);
  EXPECT_GT(Waiter(WaitMode::kSpin).polls(), 1u);
}

// Goal: many ranks on a core together wake it no more often than a few do, and each still wakes four times a
// second.
TEST(WaiterModeTest, SleepsGrowWithTheRanksOnACore) {
  EXPECT_EQ(Waiter::longest_sleep_ns(2, 2), Waiter::kLongestSleepNs);
  EXPECT_EQ(Waiter::longest_sleep_ns(28, 2), Waiter::kLongestSleepNs);
  EXPECT_EQ(Waiter::longest_sleep_ns(560, 2), 20 * Waiter::kLongestSleepNs);
  EXPECT_EQ(Waiter::longest_sleep_ns(4096, 1), 250'000'000u);
  EXPECT_EQ(Waiter::longest_sleep_ns(4096, 0), 250'000'000u);
}

TEST_P(WaiterTest, ALongWaitCostsLittleProcessorTime) {
  if (!full_run()) GTEST_SKIP() << "waits for a second; TUTTI_TEST_FULL=1 runs it";
  Waiter waiter(GetParam());
  const uint64_t cpu_before = thread_cpu_ns();
  uint64_t turns = 0;
  while (waiter.pause() < 1'000'000'000) ++turns;
  const uint64_t cpu_ns = thread_cpu_ns() - cpu_before;
  RecordProperty("cpu_us", static_cast<int>(cpu_ns / 1000));
  RecordProperty("turns", static_cast<int>(turns));
  // Awake for its first 2 ms; then a wake-up each 1/16 of the time waited, at most 3 ms.
  EXPECT_LT(cpu_ns, 50'000'000u) << turns << " turns";
}

/// Moves the calling thread, and those it starts, to the core it runs on; back at its end.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
};

struct Shares {
  uint64_t waiting_ns = 0;  ///< processor time of the thread that waits
  uint64_t computing_ns = 0;
};

/// Waits of 1 ms on one core with a thread that computes.
Shares wait_beside_computing(WaitMode mode) {
  constexpr int kWaits = 40;
  const OneCore core;
  std::atomic<bool> done = false;
  Shares shares;
  std::thread computing([&] {
    while (!done.load(std::memory_order_relaxed)) {
    }
    shares.computing_ns = thread_cpu_ns();
  });
  const uint64_t cpu_before = thread_cpu_ns();
  Waiter waiter(mode);
  for (int wait = 0; wait < kWaits; ++wait) {
    while (waiter.pause() < 1'000'000) {
    }
    waiter.moved();
  }
  shares.waiting_ns = thread_cpu_ns() - cpu_before;
  done = true;
  computing.join();
  return shares;
}

// Ranks that train wait for each other's gradients again and again, a little each time, on cores that
// compute.
TEST(WaiterBesideTest, ShortWaitsEndInTimeAndLeaveTheCoreToAThreadThatComputes) {
  const Shares yielding = wait_beside_computing(WaitMode::kYield);
  const Shares beside = wait_beside_computing(WaitMode::kBeside);
  RecordProperty("yielding_computing_us", static_cast<int>(yielding.computing_ns / 1000));
  RecordProperty("beside_computing_us", static_cast<int>(beside.computing_ns / 1000));
  RecordProperty("beside_waiting_us", static_cast<int>(beside.waiting_ns / 1000));
  EXPECT_LT(beside.computing_ns, yielding.computing_ns / 2) << "who yields waits for a time slice each time";
  EXPECT_LT(beside.waiting_ns, beside.computing_ns / 3);
}

INSTANTIATE_TEST_SUITE_P(Modes, WaiterTest,
                         testing::Values(WaitMode::kSpin, WaitMode::kYield, WaitMode::kBeside),
                         [](const auto& tested) {
                           if (tested.param == WaitMode::kBeside) return "beside";
                           return tested.param == WaitMode::kSpin ? "spin" : "yield";
                         });

}  // namespace
}  // namespace tutti::test
