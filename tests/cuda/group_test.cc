// Groups of calls of ranks that one thread drives, all on one device: they share launches where the device
// has room, and make progress where it has none, however their streams are.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
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
    for (tutti_comm_t* comm : comms_) {
      if (comm == nullptr) continue;
      const tutti_result_t destroyed = tutti_comm_destroy(comm);
      if (!has_failed_) rank_.expect_ok(destroyed, "destroy");
    }
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  CudaPlace& place() { return *place_; }
  CUstream stream(size_t i) const { return streams_[i].handle(); }
  Numbers& numbers(size_t i) { return numbers_[i]; }
  tutti_comm_t* comm(size_t i) const { return comms_[i]; }
  /// Destroying tells of failures on streams again.
  void has_failed() { has_failed_ = true; }
  /// For the caller to destroy.
  tutti_comm_t* take_comm(size_t i) { return std::exchange(comms_[i], nullptr); }

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
    for (size_t i = 0; i < kRanks; ++i) rank_.expect_true(synchronize(*place_, stream(i)), "the stream");
    for (size_t i = 0; i < kRanks; ++i) {
      rank_.expect_true(numbers_[i].holds(factor, factor / kRanks * kOwnSum),
                        "the sums of rank " + std::to_string(i));
    }
  }

 private:
  explicit Family(Rank& rank) : rank_(rank) {}

  Rank& rank_;
  std::unique_ptr<CudaPlace> place_;
  tutti_comm_t* comms_[kRanks] = {};
  bool has_failed_ = false;
  std::vector<Numbers> numbers_;
  std::vector<cuda::Stream> streams_;
};

ClusterOptions of_one_thread(int blocks) {
  ClusterOptions options = on_device(1, blocks);
  options.create = false;
  return options;
}

std::string run_family(const ClusterOptions& options, size_t count,
                       const std::function<void(Rank&, Family&)>& body) {
  return run_cluster(options, [&](Rank& rank) {
    const auto family = Family::open(rank, count);
    if (family != nullptr) body(rank, *family);
  });
}

/// Short and long sums on devices with room for one block, for some and for all.
void expect_on_any_device(const std::function<void(Rank&, Family&)>& body) {
  const struct {
    int blocks;
    size_t count;
  } cases[] = {{1, kLongCount}, {3, kCount}, {16, kLongCount}, {16, kCount}};
  for (const auto& one : cases) {
    EXPECT_EQ(run_family(of_one_thread(one.blocks), one.count, body), "")
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
      events.reserve(kRanks);
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
      const CUgraphExec executable = end_capture(rank, driver, family.stream(0));
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
    const char* blocks;
    const char* cooperative;
    uint64_t launches;
  } cases[] = {{"1", "16", 0}, {"16", "16", 3}, {"16", "1", 0}, {"16", "0", 0}};
  for (const auto& one : cases) {
    ClusterOptions options = of_one_thread(std::stoi(one.blocks));
    options.environment.emplace_back("FAKE_CUDA_COOPERATIVE", one.cooperative);
    EXPECT_EQ(run_family(options, 100,
                         [&](Rank& rank, Family& family) {
                           if (!fake_cuda::is_loaded()) return;
                           const uint64_t before = fake_cuda::cooperative_launches();
                           family.sum_up([](size_t) { return TUTTI_BLOCKING; });
                           family.sum_up([&](size_t i) { return family.own(i); });
                           family.sum_up([&](size_t i) { return family.first(i); });
                           family.expect_sums(3);
                           const uint64_t launches = fake_cuda::cooperative_launches() - before;
                           rank.expect_true(launches == one.launches,
                                            std::to_string(launches) + " launches of several ranks");
                         }),
              "")
        << one.blocks << " blocks, " << one.cooperative << " of a cooperative launch";
  }
}

TEST(GroupTest, MoreRanksThanALaunchHolds) {
  constexpr int kMany = 18;
  EXPECT_EQ(run_cluster(of_one_thread(24),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          tutti_config_t config = rank.config();
                          tutti_comm_t* comms[kMany] = {};
                          if (!rank.expect_ok(tutti_comm_create_all(comms, kMany, &config), "create_all"))
                            return;
                          std::vector<Numbers> numbers;
                          numbers.reserve(kMany);
                          rank.expect_ok(tutti_group_start(), "a group");
                          for (uint64_t i = 0; i < kMany; ++i) {
                            Numbers& own = numbers.emplace_back(*place, 10);
                            rank.expect_true(own.count_from(i), "input");
                            rank.expect_ok(sum(own, own, comms[i], tutti_stream_cuda(place->stream())),
                                           "recorded");
                          }
                          rank.expect_ok(tutti_group_end(), "its end");
                          rank.expect_true(synchronize(*place, place->stream()), "the stream");
                          for (Numbers& own : numbers)
                            rank.expect_true(own.holds(kMany, kMany * (kMany - 1) / 2), "the sums");
                          for (tutti_comm_t* comm : comms)
                            rank.expect_ok(tutti_comm_destroy(comm), "destroy");
                        }),
            "");
}

/// A sum of all ranks in one communicator, and a sum of its results in another, whichever call comes first
/// in the group.
TEST(GroupTest, CallsOfTwoCommunicatorsKeepTheirOrderInAStream) {
  for (const int kind : {0, 1, 2, 3}) {
    const bool shares = kind % 2 == 0;
    const bool by_rank = kind / 2 == 0;
    for (const auto& [blocks, count] : {std::pair(1, kLongCount), std::pair(16, size_t{100})}) {
      const auto body = [&](Rank& rank, Family& family) {
        tutti_config_t config = rank.config();
        tutti_comm_t* others[kRanks] = {};
        if (!rank.expect_ok(tutti_comm_create_all(others, kRanks, &config), "create_all")) return;
        rank.expect_ok(tutti_group_start(), "a group");
        for (size_t call = 0; call < 2 * kRanks; ++call) {
          const size_t i = by_rank ? call / 2 : call % kRanks;
          const bool is_second = by_rank ? call % 2 == 1 : call >= kRanks;
          const Numbers& numbers = family.numbers(i);
          rank.expect_ok(sum(numbers, numbers, is_second ? others[i] : family.comm(i),
                             shares ? family.first(i) : family.own(i)),
                         "recorded");
        }
        rank.expect_ok(tutti_group_end(), "its end");
        family.expect_sums(2);
        for (tutti_comm_t* other : others) rank.expect_ok(tutti_comm_destroy(other), "destroy");
      };
      EXPECT_EQ(run_family(of_one_thread(blocks), count, body), "") << blocks << " blocks, kind " << kind;
    }
  }
}

/// The same with a thread for each rank: a group holds one rank of each communicator.
TEST(GroupTest, EachThreadsCallsKeepTheirOrderInAStream) {
  EXPECT_EQ(run_cluster(on_device(3, 1),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          tutti_comm_t* first = rank.comm;
                          if (!rank.renew()) return;
                          Numbers numbers(*place, kLongCount);
                          rank.expect_true(numbers.count_from(1), "input");
                          const tutti_stream_t stream = tutti_stream_cuda(place->stream());
                          rank.expect_ok(tutti_group_start(), "a group");
                          for (tutti_comm_t* comm : {first, rank.comm, first})
                            rank.expect_ok(sum(numbers, numbers, comm, stream), "recorded");
                          rank.expect_ok(tutti_group_end(), "its end");
                          rank.expect_true(synchronize(*place, place->stream()), "the stream");
                          rank.expect_true(numbers.holds(27, 27), "three sums");
                          rank.expect_ok(tutti_comm_destroy(first), "destroy");
                        }),
            "");
}

// Goal: a message does not wait for another rank's stream. Method: the stream of rank 1 is held up; what rank
// 0 sends to rank 2 comes all the same.
TEST(GroupTest, MessagesDoNotWaitForOtherStreams) {
  expect_on_any_device([](Rank& rank, Family& family) {
    const cuda::Driver& driver = family.place().driver();
    const cuda::CurrentContext current(family.place().context());
    auto acceptor = cuda::PinnedMemory::allocate(family.place().context(), sizeof(uint32_t));
    const auto word = reinterpret_cast<CUdeviceptr>(acceptor->as<uint32_t>());
    *acceptor->as<uint32_t>() = 0;
    (void)driver.stream_wait_value32(family.stream(1), word, 1, CU_STREAM_WAIT_VALUE_EQ);
    family.in_group([&](size_t i) {
      const Numbers& numbers = family.numbers(i);
      const int peer = static_cast<int>(i + 2) % kRanks;
      return i < 2 ? tutti_send(numbers.get(), numbers.count(), TUTTI_UINT64, peer, 0, family.comm(i),
                                family.own(i))
                   : tutti_recv(numbers.get(), numbers.count(), TUTTI_UINT64, peer, 0, family.comm(i),
                                family.own(i));
    });
    rank.expect_true(synchronize(family.place(), family.stream(2)), "the stream of rank 2");
    rank.expect_true(family.numbers(2).holds(1, 0), "the numbers of rank 0");
    std::atomic_ref(*acceptor->as<uint32_t>()).store(1, std::memory_order_release);
    rank.expect_true(synchronize(family.place(), family.stream(1)), "the stream of rank 1");
    rank.expect_true(synchronize(family.place(), family.stream(3)), "the stream of rank 3");
    rank.expect_true(family.numbers(3).holds(1, 1), "the numbers of rank 1");
  });
}

// Goal: a stream that can take no more holds up its own thread only. Method: a stream of few entries on a
// device of one block, where every operation needs relaunches.
TEST(GroupTest, AFullStreamDoesNotKeepOthersFromGoingOn) {
  ClusterOptions options = on_device(2, 1);
  options.environment.emplace_back("FAKE_CUDA_QUEUE", "6");
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          Numbers numbers(*place);
                          rank.expect_true(numbers.count_from(1), "input");
                          for (int i = 0; i < 20; ++i)
                            rank.expect_ok(
                                sum(numbers, numbers, rank.comm, tutti_stream_cuda(place->stream())), "sum");
                          rank.expect_true(synchronize(*place, place->stream()), "the stream");
                          rank.expect_true(numbers.holds(1 << 20, 1 << 20), "twenty sums");
                        }),
            "");
}

// A thread that launched for several ranks kept other such threads waiting, also while the driver had no room
// in its stream. Method: thread 0 fills its streams, because the ranks of thread 1 do not begin before it
// stands still.
TEST(GroupTest, AFullStreamOfAGroupDoesNotKeepOtherGroupsFromGoingOn) {
  ClusterOptions options = of_one_thread(1);
  options.environment.emplace_back("FAKE_CUDA_QUEUE", "6");
  EXPECT_EQ(run_family(options, kCount,
                       [](Rank& rank, Family& family) {
                         constexpr int kTurns = 8;
                         std::atomic<int> begun = 0;
                         const auto sum_half = [&](size_t first) {
                           for (int turn = 0; turn < kTurns; ++turn) {
                             if (first == 0) ++begun;
                             rank.expect_ok(tutti_group_start(), "a group");
                             for (const size_t i : {first, first + 1}) {
                               rank.expect_ok(
                                   sum(family.numbers(i), family.numbers(i), family.comm(i), family.own(i)),
                                   "recorded");
                             }
                             rank.expect_ok(tutti_group_end(), "its end");
                           }
                         };
                         std::thread other([&] { sum_half(0); });
                         // It stands still, or goes on without this thread: then nothing is tested.
                         for (int looks = 0, seen = 0; looks < 20'000 || seen == 0; ++looks) {
                           if (begun != seen) looks = 0;
                           seen = begun;
                           std::this_thread::yield();
                         }
                         sum_half(2);
                         other.join();
                         family.expect_sums(kTurns);
                       }),
            "");
}

/// Each of the driver's functions that a launch needs fails at its first calls. Opening the device makes two
/// launches.
TEST(GroupTest, WhatTheDriverRefusesIsAnErrorAndNothingHangs) {
  for (const char* blocks : {"1", "16"}) {
    for (const char* fault : {"cuLaunchKernelEx:3:999", "cuLaunchKernelEx:4:999", "cuStreamWaitValue32:1:999",
                              "cuStreamWaitValue32:3:999", "cuEventRecord:1:999", "cuEventRecord:3:999",
                              "cuEventRecord:6:999", "cuStreamWaitEvent:1:999"}) {
      for (const bool has_streams : {true, false}) {
        ClusterOptions options = of_one_thread(std::stoi(blocks));
        options.environment.emplace_back("FAKE_CUDA_FAIL", fault);
        EXPECT_EQ(run_family(options, kCount,
                             [&](Rank& rank, Family& family) {
                               rank.expect_ok(tutti_group_start(), "a group");
                               // Twice, so that streams have something to wait for.
                               for (size_t call = 0; call < 2 * kRanks; ++call) {
                                 const size_t i = call % kRanks;
                                 rank.expect_ok(sum(family.numbers(i), family.numbers(i), family.comm(i),
                                                    has_streams ? family.own((i + call / kRanks) % kRanks)
                                                                : TUTTI_BLOCKING),
                                                "recorded");
                               }
                               family.has_failed();
                               const tutti_result_t result = tutti_group_end();
                               const std::string text = tutti_last_error();
                               // Launches that stay have no wait behind them.
                               const bool stays = std::string(blocks) == "16";
                               const bool waits = std::string(fault).starts_with("cuStreamWaitValue");
                               const bool needs_it = std::string(fault).starts_with("cuLaunch") ||
                                                     (has_streams && !(waits && stays));
                               rank.expect_true(!needs_it || result != TUTTI_SUCCESS, "no error");
                               rank.expect_true(
                                   result == TUTTI_SUCCESS || text.find("cu") != std::string::npos, text);
                             }),
                  "")
            << blocks << " blocks, " << fault << (has_streams ? ", streams" : ", blocking");
      }
    }
  }
}

// Goal: a refused argument leaves a capture as it was. Method: a group of which rank 1 has no stream of this
// device's; then rank 0 makes a call on another stream of the capture.
TEST(GroupTest, ARefusedGroupLeavesACaptureAsItWas) {
  EXPECT_EQ(run_family(of_one_thread(16), kCount,
                       [](Rank& rank, Family& family) {
                         const cuda::Driver& driver = family.place().driver();
                         const cuda::CurrentContext current(family.place().context());
                         const auto fork = cuda::Event::create(family.place().context());
                         (void)driver.stream_begin_capture(family.stream(0), CU_STREAM_CAPTURE_MODE_GLOBAL);
                         (void)fork->record(family.stream(0));
                         (void)fork->make_wait(family.stream(1));
                         rank.expect_ok(tutti_group_start(), "a group");
                         int no_stream = 0;
                         for (size_t i = 0; i < kRanks; ++i) {
                           rank.expect_ok(sum(family.numbers(i), family.numbers(i), family.comm(i),
                                              i == 1 ? tutti_stream_cuda(&no_stream) : family.first(i)),
                                          "recorded");
                         }
                         rank.expect(tutti_group_end(), TUTTI_INVALID_ARGUMENT, "its end");
                         rank.expect_text({"is no CUDA stream"}, "its end");
                         rank.expect_ok(
                             sum(family.numbers(0), family.numbers(0), family.comm(0), family.own(1)),
                             "a call on the other stream");
                         (void)fork->record(family.stream(1));
                         (void)fork->make_wait(family.stream(0));
                         CUgraph graph = nullptr;
                         rank.expect_true(driver.stream_end_capture(family.stream(0), &graph) == CUDA_SUCCESS,
                                          "the capture");
                         (void)driver.graph_destroy(graph);
                       }),
            "");
}

// Goal: destroy leaves nothing that a stream still waits for. Method: in one stream rank 0 waits for a
// message while rank 1 is done; rank 1's end is destroyed, and then the message comes.
TEST(GroupTest, DestroyWaitsForTheStreamThatRanksShare) {
  expect_on_any_device([](Rank& rank, Family& family) {
    const auto message = [&](size_t own, int peer, bool sends, tutti_stream_t stream) {
      const Numbers& numbers = family.numbers(own);
      return sends
                 ? tutti_send(numbers.get(), numbers.count(), TUTTI_UINT64, peer, 0, family.comm(own), stream)
                 : tutti_recv(numbers.get(), numbers.count(), TUTTI_UINT64, peer, 0, family.comm(own),
                              stream);
    };
    rank.expect_ok(tutti_group_start(), "a group");
    rank.expect_ok(message(0, 3, false, family.first(0)), "rank 0 receives");
    rank.expect_ok(message(1, 2, true, family.first(0)), "rank 1 sends");
    rank.expect_ok(message(2, 1, false, family.own(2)), "rank 2 receives");
    rank.expect_ok(tutti_group_end(), "its end");
    rank.expect_true(synchronize(family.place(), family.stream(2)), "the stream of rank 2");
    std::thread destroys([&] { rank.expect_ok(tutti_comm_destroy(family.take_comm(1)), "destroy"); });
    rank.expect_ok(message(3, 0, true, family.own(3)), "rank 3 sends");
    destroys.join();
    rank.expect_true(synchronize(family.place(), family.stream(0)), "the shared stream");
    rank.expect_true(family.numbers(0).holds(1, 3) && family.numbers(2).holds(1, 1), "what has come");
  });
}

/// A rank with a thread of its own, and two streams.
struct TwoStreams {
  explicit TwoStreams(Rank& rank) : place(CudaPlace::open(rank, 0, Order::kBlocking)) {
    for (int i = 0; place != nullptr && i < 2; ++i)
      streams.push_back(std::move(*cuda::Stream::create(place->context())));
  }
  tutti_stream_t tag(size_t i) const { return tutti_stream_cuda(streams[i].handle()); }

  std::unique_ptr<CudaPlace> place;
  std::vector<cuda::Stream> streams;
};

/// Runs `calls` as a group, or as one that is captured, in a capture that both streams are part of, and
/// launched.
void run_group(Rank& rank, const TwoStreams& two, bool is_captured, const std::function<void()>& calls) {
  const cuda::Driver& driver = two.place->driver();
  const cuda::CurrentContext current(two.place->context());
  const CUstream first = two.streams[0].handle();
  const CUstream second = two.streams[1].handle();
  const auto event = cuda::Event::create(two.place->context());
  if (is_captured) {
    // Other ranks' threads capture, too.
    rank.expect_true(driver.stream_begin_capture(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS,
                     "capture");
    (void)event->record(first);
    (void)event->make_wait(second);
  }
  rank.expect_ok(tutti_group_start(), "a group");
  calls();
  rank.expect_ok(tutti_group_end(), "its end");
  if (!is_captured) return;
  (void)event->record(second);
  (void)event->make_wait(first);
  const CUgraphExec executable = end_capture(rank, driver, first);
  rank.expect_true(driver.graph_launch(executable, first) == CUDA_SUCCESS, "a launch");
  rank.expect_true(synchronize(*two.place, first), "the first stream");
  (void)driver.graph_exec_destroy(executable);
}

// Goal: a rank's messages of a group are one operation, on whichever streams: each of two ranks sends on one
// stream, and receives on the other, more than the links hold.
TEST(GroupTest, MessagesOnSeveralStreamsMeet) {
  for (const bool is_captured : {false, true}) {
    EXPECT_EQ(run_cluster(on_device(2, 16),
                          [&](Rank& rank) {
                            const TwoStreams two(rank);
                            if (two.place == nullptr) return;
                            const auto own = static_cast<uint64_t>(rank.rank());
                            const int peer = 1 - rank.rank();
                            Numbers sent(*two.place, 200'000);
                            Numbers got(*two.place, 200'000);
                            rank.expect_true(sent.count_from(own), "input");
                            run_group(rank, two, is_captured, [&] {
                              rank.expect_ok(tutti_send(sent.get(), sent.count(), TUTTI_UINT64, peer, 0,
                                                        rank.comm, two.tag(0)),
                                             "send");
                              rank.expect_ok(tutti_recv(got.get(), got.count(), TUTTI_UINT64, peer, 0,
                                                        rank.comm, two.tag(1)),
                                             "recv");
                            });
                            for (const cuda::Stream& stream : two.streams)
                              rank.expect_true(synchronize(*two.place, stream.handle()), "a stream");
                            rank.expect_true(got.holds(1, 1 - own), "what has come");
                          }),
              "")
        << (is_captured ? "captured" : "not captured");
  }
}

// Goal: sums of a group on two streams are in order, and the second stream goes on behind both.
TEST(GroupTest, CollectivesOnSeveralStreamsKeepTheirOrder) {
  for (const bool is_captured : {false, true}) {
    for (const size_t count : {kCount, kLongCount}) {
      EXPECT_EQ(run_cluster(on_device(2, 16),
                            [&](Rank& rank) {
                              const TwoStreams two(rank);
                              if (two.place == nullptr) return;
                              Numbers numbers(*two.place, count);
                              rank.expect_true(numbers.count_from(1), "input");
                              run_group(rank, two, is_captured, [&] {
                                for (const size_t i : {size_t{0}, size_t{1}, size_t{0}})
                                  rank.expect_ok(sum(numbers, numbers, rank.comm, two.tag(i)), "recorded");
                              });
                              rank.expect_true(synchronize(*two.place, two.streams[1].handle()),
                                               "the second stream");
                              rank.expect_true(numbers.holds(8, 8), "three sums");
                            }),
                "")
          << count << " numbers" << (is_captured ? ", captured" : "");
    }
  }
}

// Goal: a group begins when all of its streams have come to it. Method: the second stream is held up, and
// then copies what the first one's sum reads.
TEST(GroupTest, AGroupWaitsForAllOfItsStreams) {
  EXPECT_EQ(run_cluster(on_device(2, 16),
                        [](Rank& rank) {
                          const TwoStreams two(rank);
                          if (two.place == nullptr) return;
                          const cuda::Driver& driver = two.place->driver();
                          const cuda::CurrentContext current(two.place->context());
                          Numbers source(*two.place);
                          Numbers numbers(*two.place);
                          rank.expect_true(source.count_from(1) && numbers.count_from(500), "input");
                          auto acceptor =
                              cuda::PinnedMemory::allocate(two.place->context(), sizeof(uint32_t));
                          auto* const word = acceptor->as<uint32_t>();
                          *word = 0;
                          const CUstream second = two.streams[1].handle();
                          (void)driver.stream_wait_value32(second, reinterpret_cast<CUdeviceptr>(word), 1,
                                                           CU_STREAM_WAIT_VALUE_EQ);
                          (void)driver.memcpy_async(reinterpret_cast<CUdeviceptr>(numbers.get()),
                                                    reinterpret_cast<CUdeviceptr>(source.get()),
                                                    numbers.bytes(), second);
                          rank.expect_ok(tutti_group_start(), "a group");
                          rank.expect_ok(sum(numbers, numbers, rank.comm, two.tag(0)), "recorded");
                          rank.expect_ok(tutti_barrier(rank.comm, two.tag(1)), "recorded");
                          rank.expect_ok(tutti_group_end(), "its end");
                          std::atomic_ref(*word).store(1, std::memory_order_release);
                          rank.expect_true(synchronize(*two.place, two.streams[0].handle()), "the stream");
                          rank.expect_true(numbers.holds(2, 2), "the sum");
                        }),
            "");
}

// Goal: a group that names a stream which is gone is refused, whichever of its streams that is, and one that
// names a stream outside its capture, too.
TEST(GroupTest, StreamsOfAGroupAreChecked) {
  EXPECT_EQ(run_family(of_one_thread(16), kCount,
                       [](Rank& rank, Family& family) {
                         int no_stream = 0;
                         const auto refused = [&](tutti_stream_t stream, tutti_result_t wanted) {
                           rank.expect_ok(tutti_group_start(), "a group");
                           for (const tutti_stream_t one : {family.own(0), stream}) {
                             rank.expect_ok(sum(family.numbers(0), family.numbers(0), family.comm(0), one),
                                            "recorded");
                           }
                           rank.expect(tutti_group_end(), wanted, "its end");
                         };
                         refused(tutti_stream_cuda(&no_stream), TUTTI_INVALID_ARGUMENT);
                         rank.expect_text({"is no CUDA stream"}, "its end");
                         refused(TUTTI_BLOCKING, TUTTI_INVALID_USAGE);
                         rank.expect_text({"mixes"}, "its end");
                         const cuda::Driver& driver = family.place().driver();
                         const cuda::CurrentContext current(family.place().context());
                         (void)driver.stream_begin_capture(family.stream(0), CU_STREAM_CAPTURE_MODE_GLOBAL);
                         refused(family.own(1), TUTTI_INVALID_USAGE);
                         rank.expect_text({"being captured"}, "its end");
                         CUgraph graph = nullptr;
                         rank.expect_true(driver.stream_end_capture(family.stream(0), &graph) == CUDA_SUCCESS,
                                          "the capture");
                         (void)driver.graph_destroy(graph);
                         family.sum_up([&](size_t i) { return family.own(i); });
                         family.expect_sums(1);
                       }),
            "");
}

TEST(GroupTest, RanksInDifferentCallsLearnOfIt) {
  EXPECT_EQ(run_family(of_one_thread(16), kCount,
                       [](Rank& rank, Family& family) {
                         rank.expect_ok(tutti_group_start(), "a group");
                         for (size_t i = 0; i < kRanks; ++i) {
                           void* numbers = family.numbers(i).get();
                           rank.expect_ok(
                               tutti_all_reduce(numbers, numbers, i == 2 ? kCount / 2 : kCount, TUTTI_UINT64,
                                                TUTTI_SUM, family.comm(i), TUTTI_BLOCKING),
                               "recorded");
                         }
                         rank.expect(tutti_group_end(), TUTTI_MISMATCH, "its end");
                         rank.expect_text({"count 2000", "count 1000"}, "its end");
                       }),
            "");
}

}  // namespace
}  // namespace tutti::test
