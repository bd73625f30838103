// MemoryRegistrations: two ranks of one process, on devices that map whatever they are offered.
#include "comm/memory_registrations.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/trial.h"
#include "tests/device/fake_device.h"
#include "tests/support/rank_pages.h"

namespace tutti::test {
namespace {

using cuda::Trial;

/// Two ranks, each with a device and a table. Their library's calls are gathers in this process's memory.
class Pair {
 public:
  explicit Pair(Process& process) {
    for (uint32_t number = 0; number < 2; ++number) {
      Rank& rank = ranks_[number];
      auto device = std::make_unique<FakeRank>(rank.notes);
      rank.device = device.get();
      rank.executor = std::make_unique<DeviceExecutor>(DeviceExecutorOptions{.peers = pages_.of(number),
                                                                             .config = config_,
                                                                             .devices = rank.devices,
                                                                             .relaunch_thread = relaunch_,
                                                                             .rank = std::move(device)});
      rank.table = std::make_unique<MemoryRegistrations>(MemoryRegistrations::Options{
          .process = process,
          .peers = pages_.of(number),
          .device = *rank.executor,
          .run = [this, number](const Call& call) { return gather(number, call); },
          .forget_bound = [&rank] { ++rank.forgotten; }});
    }
  }

  struct Rank {
    DeviceNotes notes;
    FakeDevices devices{notes};
    FakeRank* device = nullptr;
    std::unique_ptr<DeviceExecutor> executor;
    std::unique_ptr<MemoryRegistrations> table;
    int forgotten = 0;
    int offered = 0;
    int gathers_until_failure = INT32_MAX;
    std::array<std::byte, 64> memory;
  };
  Rank& of(uint32_t number) { return ranks_[number]; }
  RankPages& pages() { return pages_; }

  /// Both ranks register their memory at the same time.
  std::array<Result<uint32_t>, 2> add() {
    std::array<Result<uint32_t>, 2> numbers = {0u, 0u};
    both([&](uint32_t number) { numbers[number] = add(number); });
    return numbers;
  }
  std::array<Status, 2> remove(uint32_t registered) {
    std::array<Status, 2> results;
    both([&](uint32_t number) { results[number] = of(number).table->remove(registered, true, 60'000); });
    return results;
  }
  /// A buffer of this rank's that no other registration has.
  Result<uint32_t> add(uint32_t number) {
    Rank& rank = of(number);
    return rank.table->add(rank.memory.data() + rank.offered++, 1, 60'000);
  }

 private:
  static void both(const std::function<void(uint32_t)>& body) {
    const std::jthread other(body, 1);
    body(0);
  }
  Status gather(uint32_t number, const Call& call) {
    sent_[number] = call.send;
    barrier_.arrive_and_wait();
    for (uint32_t from = 0; from < 2; ++from)
      std::memcpy(static_cast<std::byte*>(call.recv) + from * call.shape.count, sent_[from],
                  call.shape.count);
    barrier_.arrive_and_wait();
    if (of(number).gathers_until_failure-- > 0) return Status::ok();
    return {Code::kTimeout, "rank 1 has waited"};
  }

  RankPages pages_{2};
  Config config_;
  RelaunchThread relaunch_;
  std::barrier<> barrier_{2};
  std::array<const void*, 2> sent_{};
  std::array<Rank, 2> ranks_;
};

/// In a child: a process of tutti's has threads, which a test may not leave to its children.
std::string with_pair(const std::function<void(Trial&, Pair&)>& body) {
  return cuda::run([&](Trial& trial) {
    const auto process = Process::instance();
    if (!trial.ok(process.status(), "process")) return;
    Pair pair(**process);
    body(trial, pair);
  });
}

bool are(const std::array<Result<uint32_t>, 2>& numbers, uint32_t number) {
  return numbers[0] && numbers[1] && *numbers[0] == number && *numbers[1] == number;
}

// Goal: memory has one number on all ranks, the least that is free; calls are bound anew after each change,
// and a number may be used again once its memory is deregistered.
TEST(MemoryRegistrationsTest, NumbersAreEqualOnAllRanksAndUsedAgain) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              trial.is(are(pair.add(), 1), "the first number");
              trial.is(are(pair.add(), 2), "the second number");
              trial.is(pair.of(0).notes.registered.size() == 2, "two are mapped");
              trial.is(pair.of(0).forgotten == 2, "bound calls are forgotten");
              trial.is(pair.of(0).executor->facts().can_reference, "algorithms may use it");
              for (const Status& removed : pair.remove(1)) trial.ok(removed, "deregister");
              trial.is(pair.of(0).notes.registered.size() == 1 && pair.of(0).forgotten == 3, "one is left");
              trial.is(are(pair.add(), 1), "the first number again");
              for (const uint32_t number : {1u, 2u}) {
                for (const Status& removed : pair.remove(number)) trial.ok(removed, "deregister");
              }
              trial.is(!pair.of(0).executor->facts().can_reference, "none is left");
            }),
            "");
}

// Goal: more memory than the devices have numbers for is no error: calls go on as before.
TEST(MemoryRegistrationsTest, NumbersMayRunOut) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              for (uint32_t number = 1; number < 4; ++number) trial.is(are(pair.add(), number), "a number");
              trial.is(are(pair.add(), 0), "none is left");
              trial.is(pair.of(1).forgotten == 3, "nothing has changed");
            }),
            "");
}

// Goal: what one rank cannot offer, such as memory that overlaps registered memory, no rank registers.
TEST(MemoryRegistrationsTest, WhatOneRankCannotOfferNoRankRegisters) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              pair.of(1).device->registration = {Code::kUnsupported, "it overlaps registered memory"};
              trial.is(are(pair.add(), 0), "nothing is registered");
              trial.is(pair.of(0).notes.registered.empty() && pair.of(0).forgotten == 0, "nothing changed");
              trial.ok(pair.pages().of(0).error(), "no rank is in error");
              pair.of(1).device->registration = {};
              trial.is(are(pair.add(), 1), "the number is free");
            }),
            "");
}

// Goal: what one rank cannot map, the others close again.
TEST(MemoryRegistrationsTest, WhatOneRankCannotMapNoRankRegisters) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              pair.of(1).device->mapping = {Code::kUnsupported, "no access to the peer"};
              trial.is(are(pair.add(), 0), "nothing is registered");
              trial.is(pair.of(0).notes.registered.empty(), "rank 0 has closed it");
              pair.of(1).device->mapping = {};
              trial.is(are(pair.add(), 1), "the number is free");
            }),
            "");
}

// Goal: an exchange that fails on a rank is an error there, and nothing stays mapped. If the rank has mapped
// the memory by then, all ranks learn of the failure: the others may take the memory for registered.
TEST(MemoryRegistrationsTest, AFailedExchangeLeavesNothingMapped) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              for (const int passed : {0, 1}) {
                pair.of(0).gathers_until_failure = passed == 0 ? 0 : INT32_MAX;
                pair.of(1).gathers_until_failure = passed;
                const auto numbers = pair.add();
                trial.fails(numbers[1].status(), Code::kTimeout, "rank 1 has waited");
                trial.is(pair.of(1).notes.registered.empty(), "nothing is mapped");
                trial.is(pair.pages().of(0).has_error() == (passed == 1), "who learns of the failure");
              }
            }),
            "");
}

// Goal: while an operation is under way memory is not deregistered: the rank waits for its end.
TEST(MemoryRegistrationsTest, MemoryInUseIsDeregisteredAfterTheOperation) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              trial.is(are(pair.add(), 1), "registered");
              pair.of(0).device->show(running());
              std::jthread other([&] { trial.ok(pair.of(0).table->remove(1, false, 60'000), "deregister"); });
              trial.ok(pair.of(1).table->remove(1, false, 60'000), "the idle rank does not wait");
              trial.is(pair.of(0).notes.registered.size() == 1, "the busy rank keeps it");
              pair.of(0).device->show({});
              other.join();
              trial.is(pair.of(0).notes.registered.empty(), "closed");
            }),
            "");
}

// Goal: a rank waits until the others have deregistered too, and names the one that has not.
TEST(MemoryRegistrationsTest, ARankThatDoesNotDeregisterIsNamed) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              trial.is(are(pair.add(), 1), "registered");
              const Status late = pair.of(0).table->remove(1, true, 0);
              trial.fails(late, Code::kTimeout, "rank 1 has not called tutti_memory_deregister");
              trial.is(pair.of(0).notes.registered.empty(), "closed all the same");
              trial.fails(pair.pages().of(1).error(), Code::kTimeout, "which rank 0 waits for");
            }),
            "");
}

// The wait ended with success if a peer was stopped while it wrote this rank's alert: the memory then seemed
// free, but the peer still mapped it.
TEST(MemoryRegistrationsTest, AHalfWrittenAlertHidesNoLateRank) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              trial.is(are(pair.add(), 1), "registered");
              pair.pages().header(0).alert.state.store(Alert::claimed_by(1));
              trial.fails(pair.of(0).table->remove(1, true, 0), Code::kTimeout,
                          "rank 1 has not called tutti_memory_deregister");
            }),
            "");
}

// Goal: a rank that has left keeps nobody waiting, and neither does a failure.
TEST(MemoryRegistrationsTest, ARankThatHasLeftIsNotWaitedFor) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              trial.is(are(pair.add(), 1), "registered");
              pair.pages().of(1).show_left();
              trial.ok(pair.of(0).table->remove(1, true, 60'000), "deregister");
            }),
            "");
}
TEST(MemoryRegistrationsTest, AFailureEndsTheWaitForTheOthers) {
  EXPECT_EQ(with_pair([](Trial& trial, Pair& pair) {
              trial.is(are(pair.add(), 1), "registered");
              pair.pages().of(1).raise({Code::kAborted, "given up"});
              trial.fails(pair.of(0).table->remove(1, true, 60'000), Code::kAborted, "given up");
              trial.is(pair.of(0).notes.registered.empty(), "closed all the same");
            }),
            "");
}

}  // namespace
}  // namespace tutti::test
