// Goal: the simulated device runs kernels as a GPU may: in any order, with few slots, with the edges that
// CUDA grants and no others; and it says exactly who waits where when nothing can go on. Method: small
// kernels written against the device header whose results depend on the property; many seeds.
#include "tests/simt/scheduler.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/cuda/device.h"

namespace tutti::simt {
namespace {

using namespace tutti::cuda;

/// The thread sanitizer makes a fiber in a millisecond, and finds what is wrong in any order.
constexpr uint64_t kSeeds = kThreadSanitizer ? 2 : 20;

/// Blocks of a stream in a chain: block b waits for b flags, then raises its own.
void pass_on(uint64_t* flags) {
  const uint32_t block = device::block_index();
  if (device::thread_index() != 0) return;
  if (block > 0) {
    while (device::load_acquire(&flags[block - 1]) == 0)
      device::poll_failed("the block before", &flags[block - 1], false);
    device::wait_ended();
  }
  device::store_release(&flags[block], 1);
}

struct Sums {
  uint32_t partial[64];
};

/// A sum over the block through shared memory: wrong without its barriers.
void sum_block(const uint32_t* values, uint32_t count, uint32_t* result) {
  TUTTI_SHARED(Sums, sums);
  const uint32_t thread = device::thread_index();
  sums.partial[thread] = 0;
  for (uint32_t i = thread; i < count; i += device::thread_count()) sums.partial[thread] += values[i];
  device::barrier("partial sums");
  for (uint32_t half = device::thread_count() / 2; half > 0; half /= 2) {
    if (thread < half) sums.partial[thread] += sums.partial[thread + half];
    device::barrier("half of them");
  }
  if (thread == 0) *result = sums.partial[0];
}

TEST(SchedulerTest, ABlockSharesMemoryAndMeetsAtBarriers) {
  std::vector<uint32_t> values(1000);
  uint32_t expected = 0;
  for (uint32_t i = 0; i < values.size(); ++i) expected += values[i] = i * i;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const uint32_t threads : {1u, 2u, 32u, 64u}) {
      uint32_t result = 0;
      Scheduler scheduler({.seed = seed});
      scheduler.launch(
          {.name = "sum", .threads = threads, .body = [&] { sum_block(values.data(), 1000, &result); }});
      ASSERT_TRUE(scheduler.run());
      EXPECT_EQ(result, expected) << "seed " << seed << ", " << threads << " threads";
    }
  }
}

TEST(SchedulerTest, BlocksStartInOrderSoThatAChainNeedsOneSlot) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<uint64_t> flags(9);
    Scheduler scheduler({.block_slots = 1, .seed = seed});
    scheduler.launch({.name = "chain", .blocks = 9, .threads = 2, .body = [&] { pass_on(flags.data()); }});
    EXPECT_TRUE(scheduler.run()) << scheduler.report();
    EXPECT_EQ(scheduler.most_resident(), 1u);
  }
}

/// Two grids whose blocks wait for one another need two slots.
bool meet(uint32_t slots, std::string* report) {
  uint64_t flags[2] = {0, 0};
  const auto body = [&flags](int mine) {
    device::store_release(&flags[mine], 1);
    while (device::load_acquire(&flags[1 - mine]) == 0)
      device::poll_failed("the other", &flags[1 - mine], false);
    device::wait_ended();
  };
  Scheduler scheduler({.block_slots = slots, .seed = 3});
  scheduler.launch({.name = "left", .stream = 1, .body = [&] { body(0); }});
  scheduler.launch({.name = "right", .stream = 2, .body = [&] { body(1); }});
  const bool ends = scheduler.run();
  *report = scheduler.report();
  return ends;
}

TEST(SchedulerTest, TooFewSlotsAreADeadlockAndTheReportSaysWhoWaits) {
  std::string report;
  EXPECT_TRUE(meet(2, &report));
  EXPECT_EQ(report, "");
  EXPECT_FALSE(meet(1, &report));
  EXPECT_NE(report.find("block 0: 1 thread polling for the other at 0x"), std::string::npos) << report;
  EXPECT_NE(report.find(": 1 blocks without a slot"), std::string::npos) << report;
}

TEST(SchedulerTest, ABarrierThatSomebodyMissesIsNamed) {
  uint64_t never = 0;
  Scheduler scheduler({.seed = 5});
  scheduler.launch({.name = "split", .threads = 3, .body = [&] {
                      if (device::thread_index() == 0) {
                        while (device::load_acquire(&never) == 0) device::poll_failed("luck", &never, false);
                      }
                      device::barrier("the end");
                    }});
  EXPECT_FALSE(scheduler.run());
  EXPECT_NE(
      scheduler.report().find("split, block 0: 2 threads at barrier 'the end', 1 thread polling for luck"),
      std::string::npos)
      << scheduler.report();
}

TEST(SchedulerTest, ThreadsThatHaveLeftCountAsArrived) {
  uint32_t passed = 0;
  Scheduler scheduler({.seed = 6});
  scheduler.launch({.name = "few", .threads = 8, .body = [&] {
                      if (device::thread_index() >= 3) return;
                      device::barrier("of three");
                      __atomic_fetch_add(&passed, 1, __ATOMIC_RELAXED);
                    }});
  EXPECT_TRUE(scheduler.run());
  EXPECT_EQ(passed, 3u);
}

/// Threads 0 to 2 make a value, round after round, and threads 3 and 4 take it: the makers wait until it is
/// taken, and tell of it without waiting.
void make_and_take(uint32_t rounds, uint32_t* wrong) {
  TUTTI_SHARED(Sums, sums);
  constexpr uint32_t kMakers = 3;
  const uint32_t thread = device::thread_index();
  for (uint32_t round = 1; round <= rounds; ++round) {
    if (thread < kMakers) {
      if (round > 1) device::meet<1>(5, "taken");
      sums.partial[thread] = round * (thread + 1);
      device::arrive<2>(5, "made");
      continue;
    }
    device::meet<2>(5, "made");
    if (sums.partial[0] + sums.partial[1] + sums.partial[2] != 6 * round) ++wrong[thread];
    if (round < rounds) device::arrive<1>(5, "taken");
  }
}

TEST(SchedulerTest, SomeArriveAtABarrierAndOthersWaitThere) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    uint32_t wrong[5] = {};
    Scheduler scheduler({.seed = seed});
    scheduler.launch({.name = "make", .threads = 5, .body = [&] { make_and_take(20, wrong); }});
    ASSERT_TRUE(scheduler.run()) << scheduler.report();
    EXPECT_EQ(wrong[3] + wrong[4], 0u) << "seed " << seed;
  }
}

void run_block(uint32_t threads, const std::function<void()>& body) {
  Scheduler scheduler({.seed = 9});
  scheduler.launch({.name = "wrong", .threads = threads, .body = body});
  scheduler.run();
}

TEST(SchedulerTest, ABarrierThatIsUsedWronglyEndsTheProcess) {
  EXPECT_DEATH(run_block(3, [] { device::meet<1>(2 + device::thread_index() % 2, "which?"); }),
               "different numbers of threads");
  EXPECT_DEATH(run_block(2,
                         [] {
                           if (device::thread_index() == 1) return;
                           device::arrive<1>(3, "once");
                           device::arrive<1>(3, "twice");
                         }),
               "comes to a barrier twice");
}

TEST(SchedulerTest, WhoeverOwnsWhatIsPolledCanGoOnWhenTheFibersAreStuck) {
  uint64_t flag = 0;
  uint32_t asked = 0;
  Scheduler scheduler({.seed = 7});
  scheduler.launch({.name = "waits", .body = [&] {
                      while (device::load_acquire(&flag) == 0) device::poll_failed("the host", &flag, false);
                      device::wait_ended();
                    }});
  EXPECT_TRUE(scheduler.run([&] {
    if (++asked == 10) __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    return true;
  }));
  EXPECT_EQ(asked, 10u);
}

TEST(SchedulerTest, ABoundedWaitIsNoDeadlock) {
  uint64_t never = 0;
  Scheduler scheduler({.seed = 8});
  scheduler.launch({.name = "gives up", .body = [&] {
                      for (int polls = 0; polls < 1000 && device::load_acquire(&never) == 0; ++polls)
                        device::poll_failed("nothing", &never, true);
                    }});
  EXPECT_TRUE(scheduler.run());
}

TEST(SchedulerTest, GridsOfAStreamFollowOneAnotherAndSeeWhatEarlierOnesDid) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<uint32_t> values(64, 1);
    Scheduler scheduler({.block_slots = 3, .seed = seed});
    for (int round = 0; round < 5; ++round) {
      scheduler.launch({.name = "double", .stream = 4, .blocks = 4, .threads = 16, .body = [&, round] {
                          // Every launch gives an element to another thread.
                          const uint32_t i = device::block_index() * 16 + device::thread_index();
                          values[(i * 5 + 7 * static_cast<uint32_t>(round)) % 64] *= 2;
                        }});
    }
    EXPECT_TRUE(scheduler.run());
    EXPECT_EQ(values, std::vector<uint32_t>(64, 32));
  }
}

TEST(SchedulerTest, SeedsGiveDifferentOrdersAndTheSameSeedTheSame) {
  const auto order = [](uint64_t seed) {
    std::vector<uint32_t> blocks;
    Scheduler scheduler({.seed = seed});
    scheduler.launch({.name = "order", .blocks = 6, .body = [&] {
                        simulator::preempt();
                        blocks.push_back(device::block_index());
                      }});
    scheduler.run();
    return blocks;
  };
  std::set<std::vector<uint32_t>> seen;
  if (!kThreadSanitizer) {  // the order of the blocks is a race, which is what is looked at
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      EXPECT_EQ(order(seed), order(seed));
      seen.insert(order(seed));
    }
    EXPECT_GT(seen.size(), 10u);
  }
}

}  // namespace
}  // namespace tutti::simt
