// Groups of calls of ranks that one thread drives, all on one device: they share launches where the device
// has room, and make progress where it has none, however their streams are.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/driver/control.h"
#include "tests/cuda/numbers.h"

namespace tutti::test {
namespace {

constexpr int kRanks = 4;
constexpr uint64_t kOwnSum = kRanks * (kRanks - 1) / 2;

/// The ranks, and what they sum up.
class Family {
 public:
  /// Rank i's numbers count from i.
  static std::unique_ptr<Family> open(Rank& rank, size_t count) {
    auto family = std::unique_ptr<Family>(new Family(rank));
    family->place_ = CudaPlace::open(rank, 0, Order::kBlocking);
    if (family->place_ == nullptr) return nullptr;
    tutti_config_t config = rank.config();
    if (!rank.expect_ok(tutti_comm_create_all(family->comms_, kRanks, &config), "create_all")) return nullptr;
    for (uint64_t i = 0; i < kRanks; ++i) {
      family->numbers_.emplace_back(*family->place_, count);
      rank.expect_true(family->numbers_.back().count_from(i), "input");
      family->streams_.push_back(std::move(*cuda::Stream::create(family->place_->context())));
    }
    return family;
  }
  ~Family() {
    for (tutti_comm_t* comm : comms_) rank_.expect_ok(tutti_comm_destroy(comm), "destroy");
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  CudaPlace& place() { return *place_; }
  CUstream stream(size_t i) const { return streams_[i].handle(); }
  Numbers& numbers(size_t i) { return numbers_[i]; }
  tutti_comm_t* comm(size_t i) const { return comms_[i]; }

  /// A group with `call` of each rank.
  void in_group(const std::function<tutti_result_t(size_t)>& call) {
    rank_.expect_ok(tutti_group_start(), "a group");
    for (size_t i = 0; i < kRanks; ++i) rank_.expect_ok(call(i), "recorded");
    rank_.expect_ok(tutti_group_end(), "its end");
  }
  /// Everybody's sum in place, on the stream that `stream` says.
  void sum_up(const std::function<tutti_stream_t(size_t)>& stream) {
    in_group([&](size_t i) { return sum(numbers_[i], numbers_[i], comms_[i], stream(i)); });
  }
  tutti_stream_t own(size_t i) const { return tutti_stream_cuda(stream(i)); }
  tutti_stream_t first(size_t /*i*/) const { return tutti_stream_cuda(stream(0)); }

  /// Once the streams are done: everybody's numbers are as after `sums` sums.
  void expect_sums(int sums) {
    uint64_t factor = 1;
    for (int i = 0; i < sums; ++i) factor *= kRanks;
    for (size_t i = 0; i < kRanks; ++i) {
      rank_.expect_true(synchronize(*place_, stream(i)), "the stream");
      rank_.expect_true(numbers_[i].holds(factor, factor / kRanks * kOwnSum),
                        "the sums of rank " + std::to_string(i));
    }
  }

 private:
  explicit Family(Rank& rank) : rank_(rank) {}

  Rank& rank_;
  std::unique_ptr<CudaPlace> place_;
  tutti_comm_t* comms_[kRanks] = {};
  std::vector<Numbers> numbers_;
  std::vector<cuda::Stream> streams_;
};

/// Short and long sums on devices with room for one block, for some and for all.
void expect_on_any_device(const std::function<void(Rank&, Family&)>& body) {
  const struct {
    int blocks;
    size_t count;
  } cases[] = {{1, kLongCount}, {3, kCount}, {64, kLongCount}, {64, kCount}};
  for (const auto& one : cases) {
    ClusterOptions options = on_device(1, one.blocks);
    options.create = false;
    EXPECT_EQ(run_cluster(options,
                          [&](Rank& rank) {
                            const auto family = Family::open(rank, one.count);
                            if (family != nullptr) body(rank, *family);
                          }),
              "")
        << one.blocks << " blocks, " << one.count << " numbers";
  }
}

TEST(GroupTest, RanksOfOneThreadBlockOrHaveStreamsOfTheirOwn) {
  expect_on_any_device([](Rank&, Family& family) {
    family.sum_up([](size_t) { return TUTTI_BLOCKING; });
    family.sum_up([&](size_t i) { return family.own(i); });
    family.sum_up([&](size_t i) { return family.own(kRanks - 1 - i); });
    family.expect_sums(3);
  });
}

TEST(GroupTest, RanksOfOneThreadMayShareAStream) {
  expect_on_any_device([](Rank&, Family& family) {
    for (int turn = 0; turn < 2; ++turn) family.sum_up([&](size_t i) { return family.first(i); });
    family.expect_sums(2);
  });
}

TEST(GroupTest, SeveralCallsOfEachRankRunInOrder) {
  expect_on_any_device([](Rank& rank, Family& family) {
    rank.expect_ok(tutti_group_start(), "a group around groups");
    for (int turn = 0; turn < 2; ++turn) family.sum_up([&](size_t i) { return family.first(i); });
    rank.expect_ok(tutti_group_end(), "its end");
    family.expect_sums(2);
  });
}

TEST(GroupTest, MessagesGoRoundInOneStream) {
  expect_on_any_device([](Rank& rank, Family& family) {
    std::vector<Numbers> came;
    for (size_t i = 0; i < kRanks; ++i) came.emplace_back(family.place(), family.numbers(i).count());
    rank.expect_ok(tutti_group_start(), "a group");
    for (int i = 0; i < kRanks; ++i) {
      const auto own = static_cast<size_t>(i);
      const Numbers& sent = family.numbers(own);
      rank.expect_ok(tutti_send(sent.get(), sent.count(), TUTTI_UINT64, (i + 1) % kRanks, 0, family.comm(own),
                                family.first(own)),
                     "send");
      rank.expect_ok(tutti_recv(came[own].get(), sent.count(), TUTTI_UINT64, (i + kRanks - 1) % kRanks, 0,
                                family.comm(own), family.first(own)),
                     "recv");
    }
    rank.expect_ok(tutti_group_end(), "its end");
    rank.expect_true(synchronize(family.place(), family.stream(0)), "the stream");
    for (size_t i = 0; i < kRanks; ++i)
      rank.expect_true(came[i].holds(1, (i + kRanks - 1) % kRanks), "what has come");
  });
}

/// The streams join the capture of the first by its event, or are that one.
TEST(GroupTest, AGroupIsCapturedAndReplayed) {
  for (const bool shares : {true, false}) {
    expect_on_any_device([&](Rank& rank, Family& family) {
      const cuda::Driver& driver = family.place().driver();
      const cuda::CurrentContext current(family.place().context());
      std::vector<cuda::Event> events;
      for (int i = 0; i < kRanks; ++i)
        events.push_back(std::move(*cuda::Event::create(family.place().context())));
      rank.expect_true(
          driver.stream_begin_capture(family.stream(0), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS,
          "capture");
      (void)events[0].record(family.stream(0));
      for (size_t i = 1; !shares && i < kRanks; ++i) (void)events[0].make_wait(family.stream(i));
      family.sum_up([&](size_t i) { return shares ? family.first(i) : family.own(i); });
      for (size_t i = 1; !shares && i < kRanks; ++i) {
        (void)events[i].record(family.stream(i));
        (void)events[i].make_wait(family.stream(0));
      }
      CUgraph graph = nullptr;
      CUgraphExec executable = nullptr;
      rank.expect_true(driver.stream_end_capture(family.stream(0), &graph) == CUDA_SUCCESS, "its end");
      rank.expect_true(driver.graph_instantiate(&executable, graph, 0) == CUDA_SUCCESS, "the graph");
      (void)driver.graph_destroy(graph);
      for (int turn = 0; turn < 2; ++turn)
        rank.expect_true(driver.graph_launch(executable, family.stream(0)) == CUDA_SUCCESS, "a replay");
      family.expect_sums(2);
      (void)driver.graph_exec_destroy(executable);
    });
  }
}

// Goal: what fits is one launch. Method: the fake driver counts those of which all blocks are resident at
// once.
TEST(GroupTest, WhatFitsIsOneLaunch) {
  const struct {
    int blocks;
    uint64_t launches;
  } cases[] = {{1, 0}, {64, 3}};
  for (const auto& one : cases) {
    ClusterOptions options = on_device(1, one.blocks);
    options.create = false;
    EXPECT_EQ(run_cluster(options,
                          [&](Rank& rank) {
                            const auto family = Family::open(rank, kCount);
                            if (family == nullptr || !fake_cuda::is_loaded()) return;
                            const uint64_t before = fake_cuda::cooperative_launches();
                            family->sum_up([](size_t) { return TUTTI_BLOCKING; });
                            family->sum_up([&](size_t i) { return family->own(i); });
                            family->sum_up([&](size_t i) { return family->first(i); });
                            family->expect_sums(3);
                            const uint64_t launches = fake_cuda::cooperative_launches() - before;
                            rank.expect_true(launches == one.launches,
                                             std::to_string(launches) + " launches of several ranks");
                          }),
              "")
        << one.blocks << " blocks";
  }
}

TEST(GroupTest, RanksInDifferentCallsLearnOfIt) {
  ClusterOptions options = on_device(1, 64);
  options.create = false;
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const auto family = Family::open(rank, kCount);
                          if (family == nullptr) return;
                          rank.expect_ok(tutti_group_start(), "a group");
                          for (size_t i = 0; i < kRanks; ++i) {
                            const void* numbers = family->numbers(i).get();
                            rank.expect_ok(tutti_all_reduce(numbers, family->numbers(i).get(),
                                                            i == 2 ? kCount / 2 : kCount, TUTTI_UINT64,
                                                            TUTTI_SUM, family->comm(i), TUTTI_BLOCKING),
                                           "recorded");
                          }
                          rank.expect(tutti_group_end(), TUTTI_MISMATCH, "its end");
                          rank.expect_text({"count 2000", "count 1000"}, "its end");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
