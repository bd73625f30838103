// Ranks on devices end to end, through the C interface: what every collective gives, in whatever way it is
// ordered, with any number of ranks on a device and any number of blocks that it holds.
//
// The machine is the fake driver's; the test asks for nothing that a real one could not give.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/trial.h"
#include "tests/cuda/cuda_place.h"
#include "tests/cuda/driver/control.h"
#include "tests/cuda/numbers.h"
#include "tests/support/pairwise.h"
#include "tests/support/scope.h"
#include "tests/support/scratch.h"
#include "tests/support/values.h"
#include "transports/ring.h"

namespace tutti::test {
namespace {

constexpr uint64_t kSeed = 20261121;
constexpr int kRankCounts[] = {1, 2, 3, 4, 8};
constexpr int kOrders = 4;

/// Around the inline limit, a slice, and enough bytes for several stripes.
uint64_t count_of(int count_class, tutti_type_t type) {
  const uint64_t element = tutti_type_bytes(type);
  switch (count_class) {
    case 0: return 0;
    case 1: return 1;
    case 2: return kInlineBytes / element + 1;
    case 3: return 1000;
    case 4: return 16'385 / element + 1;
    default: return 40'003 / element;
  }
}

/// collective, type, operator, root, in place, count, ranks, order, blocks, reproducible.
std::vector<int> factor_sizes() {
  return {
      kKindCount, TUTTI_TYPE_COUNT, kOpChoices, 3, 2, 6, static_cast<int>(std::size(kRankCounts)), kOrders, 3,
      2};
}

struct Setting {
  int ranks = 1;
  Order order = Order::kBlocking;
  int blocks = 1;
  bool reproducible = false;

  auto operator<=>(const Setting&) const = default;  // NOLINT(modernize-use-nullptr): the check is wrong
};

Trial trial_of(const std::vector<int>& row, uint64_t seed) {
  Trial trial = draw_trial(row, kRankCounts[row[6]], seed);
  trial.count = count_of(row[5], trial.type);
  return trial;
}

TEST(DeviceTest, EveryCollectiveGivesItsResultHoweverItIsOrdered) {
  std::map<Setting, std::vector<Trial>> plan;
  const auto rows = pairwise_rows(factor_sizes(), kSeed);
  constexpr int kBlocks[] = {1, 3, 16};
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int>& row = rows[i];
    const Setting setting{kRankCounts[row[6]], static_cast<Order>(row[7]), kBlocks[row[8]], row[9] != 0};
    plan[setting].push_back(trial_of(row, kSeed + i));
  }
  for (const auto& entry : plan) {
    const Setting& setting = entry.first;
    const std::vector<Trial>& trials = entry.second;
    ClusterOptions options = on_device(setting.ranks, setting.blocks);
    options.config.reproducible = setting.reproducible ? 1 : 0;
    const std::string failures = run_cluster(options, [&](Rank& rank) {
      const auto place = CudaPlace::open(rank, 0, setting.order);
      if (place == nullptr) return;
      for (const Trial& trial : trials) run_trial(rank, trial, *place);
    });
    EXPECT_EQ(failures, "") << setting.ranks << " ranks, " << order_name(setting.order) << ", "
                            << setting.blocks << " blocks" << (setting.reproducible ? ", reproducible" : "");
  }
}

TEST(DeviceTest, RanksOfSeveralProcessesAndDevices) {
  struct Case {
    std::vector<int> layout;
    int devices;
    const char* queues = "";  ///< CUDA_DEVICE_MAX_CONNECTIONS
    Order order = Order::kStream;
  };
  for (const Case& one :
       {Case{{1, 1}, 1}, Case{{2, 1}, 1}, Case{{2, 2}, 2}, Case{{3}, 2}, Case{{4}, 2}, Case{{2, 2}, 2, "1"},
        Case{{1, 1, 1}, 1, "1", Order::kStreams}, Case{{1, 1}, 1, "1", Order::kGraph}}) {
    // The thread sanitizer sees nothing between processes, and keeps a megabyte for each thread of a device.
    if (thread_sanitized() && one.layout.size() > 1) continue;
    ClusterOptions options = on_device(1, 2);
    options.layout = one.layout;
    options.create = false;
    options.environment.emplace_back("FAKE_CUDA_DEVICES", std::to_string(one.devices));
    options.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", one.queues);
    const std::string failures = run_cluster(options, [&](Rank& rank) {
      tutti_config_t config = rank.config();
      const int device = rank.rank() % one.devices;
      config.device = TUTTI_CUDA_DEVICE(device);
      if (!rank.renew(config)) return;
      const auto place = CudaPlace::open(rank, device, one.order);
      if (place == nullptr) return;
      for (uint64_t i = 0; i < kKindCount; ++i) {
        Trial trial;
        trial.kind = static_cast<Kind>(i);
        trial.count = i % 2 == 0 || thread_sanitized() ? 300 : 30'000;
        trial.seed = kSeed + i;
        run_trial(rank, trial, *place);
      }
    });
    EXPECT_EQ(failures, "") << layout_name(one.layout) << " on " << one.devices
                            << " devices, queues: " << one.queues;
  }
}

/// Ranks on four devices, each on its own, whose links a file describes.
class LinkedDevicesTest : public testing::Test {
 protected:
  /// `parts`: besides the GPUs g0 to g3. Returns the failures.
  std::string run(const std::string& parts, const std::vector<std::pair<std::string, std::string>>& settings,
                  const std::function<void(Rank& rank, CudaPlace& place)>& body) const {
    std::string text = "tutti topology 1\nhost h\n";
    for (int i = 0; i < 4; ++i) text += format("gpu g%d in h bus 0000:%02x:00.0\n", i, i + 1);
    ClusterOptions options = on_device(4, 4);
    options.create = false;
    options.environment.insert(options.environment.end(),
                               {{"FAKE_CUDA_DEVICES", "4"},
                                {"TUTTI_TOPOLOGY_FILE", scratch_.write("links.topo", text + parts)},
                                {"TUTTI_CACHE_DIR", folder_}});
    options.environment.insert(options.environment.end(), settings.begin(), settings.end());
    return run_cluster(options, [&](Rank& rank) {
      tutti_config_t config = rank.config();
      config.device = TUTTI_CUDA_DEVICE(rank.rank());
      if (!rank.renew(config)) return;
      const auto place = CudaPlace::open(rank, rank.rank(), Order::kBlocking);
      if (place != nullptr) body(rank, *place);
    });
  }
  /// Makes the call, checks its result, and expects these parts in what explain says.
  static void expect(Rank& rank, CudaPlace& place, Kind kind, size_t count,
                     std::initializer_list<const char*> parts) {
    Trial trial;
    trial.kind = kind;
    trial.count = thread_sanitized() ? std::min<size_t>(count, 3'000) : count;
    trial.seed = kSeed;
    run_trial(rank, trial, place);
    std::array<char, 2048> told{};
    rank.expect_ok(tutti_comm_explain(rank.comm, told.data(), told.size()), "explain");
    for (const char* part : parts)
      rank.expect_true(std::string(told.data()).find(part) != std::string::npos,
                       format("'%s' is not in: %s", part, told.data()));
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_.path().string();
};

// Goal: rings follow the links between the devices, and give the right results. Method: four devices whose
// links make a ring that is not the order of the ranks; the default choice, then rings. No path joins all
// pairs, so some algorithms have no price, and the table decides.
TEST_F(LinkedDevicesTest, RingsFollowTheLinks) {
  std::string links;
  for (const char* ends : {"g0 g2", "g2 g1", "g1 g3", "g3 g0"})
    links += format("link %s nvlink 50 GB/s nvml 500 ns assumed\n", ends);
  for (const char* algorithm : {"", "ring"}) {
    const char* const part =
        *algorithm == '\0' ? "rings follow the links between the devices (2)" : "algorithm ring";
    EXPECT_EQ(run(links, {{"TUTTI_ALGORITHM", algorithm}},
                  [&](Rank& rank, CudaPlace& place) {
                    for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce})
                      expect(rank, place, kind, 270'000, {part});
                  }),
              "")
        << "algorithm '" << algorithm << "'";
  }
}

std::string switch_links(const char* speed) {
  std::string parts = "nvswitch s in h\n";
  for (int i = 0; i < 4; ++i) parts += format("link g%d s nvlink %s nvml 500 ns assumed\n", i, speed);
  return parts;
}

// Goal: prices of the devices' links choose algorithms, and packets or links, and the results are right.
// Method: one size, which packets carry over fast links only; a long call; every collective.
TEST_F(LinkedDevicesTest, PricesChoose) {
  if (thread_sanitized()) GTEST_SKIP() << "a call of this size takes minutes";
  EXPECT_EQ(run(switch_links("371 GB/s"), {},
                [](Rank& rank, CudaPlace& place) {
                  expect(rank, place, Kind::kAllReduce, 2, {"by price", "by packets", "direct_one_shot"});
                  expect(rank, place, Kind::kAllReduce, 70'000,
                         {"algorithm direct_two_shot", "by price", "by packets", "a graph of 1 host"});
                  for (uint64_t i = 0; i < kKindCount; ++i)
                    run_trial(rank, Trial{.kind = static_cast<Kind>(i), .count = 300}, place);
                }),
            "");
  EXPECT_EQ(run(switch_links("10 GB/s"), {},
                [](Rank& rank, CudaPlace& place) {
                  expect(rank, place, Kind::kAllReduce, 70'000, {"algorithm ring", "by price, in place of"});
                }),
            "");
}

TEST_F(LinkedDevicesTest, TheUsersRowsAndSettingsWin) {
  const std::string links = switch_links("371 GB/s");
  const std::string table = scratch_.write("choice", "all_reduce * * any ring\n");
  EXPECT_EQ(run(links, {{"TUTTI_CHOICE_FILE", table}},
                [](Rank& rank, CudaPlace& place) {
                  expect(rank, place, Kind::kAllReduce, 2, {"algorithm ring, by row 0", "TUTTI_CHOICE_FILE"});
                }),
            "");
  EXPECT_EQ(run(links, {{"TUTTI_PRICES", "0"}},
                [](Rank& rank, CudaPlace& place) {
                  expect(rank, place, Kind::kAllReduce, 2,
                         {"direct_one_shot, by row 2", "an estimate; TUTTI_PRICES is 0; rings follow"});
                }),
            "");
}

/// A captured all_reduce and a copy of its result.
CUgraphExec capture_sum(Rank& rank, CudaPlace& place, const Numbers& send, const Numbers& recv,
                        const Numbers& copy) {
  const cuda::Driver& driver = place.driver();
  const CUstream stream = place.stream();
  rank.expect_true(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS,
                   "capture");
  rank.expect_ok(sum(send, recv, rank.comm, tutti_stream_cuda(stream)), "a captured all_reduce");
  (void)driver.memcpy_async(reinterpret_cast<CUdeviceptr>(copy.get()),
                            reinterpret_cast<CUdeviceptr>(recv.get()), recv.bytes(), stream);
  return end_capture(rank, driver, stream, [&rank] { (void)rank.meet(); });
}

/// Replays a captured sum of so many numbers, with calls of both kinds between.
void replay_sums(Rank& rank, size_t count) {
  const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
  if (place == nullptr) return;
  Numbers send(*place, count);
  Numbers recv(*place, count);
  Numbers copy(*place, count);
  Numbers others[] = {Numbers(*place, 10), Numbers(*place, kLongCount), Numbers(*place, kCount)};
  const cuda::CurrentContext current(place->context());
  // Nobody else does what CUDA forbids beside a capture.
  (void)rank.meet();
  const CUgraphExec graph = capture_sum(rank, *place, send, recv, copy);
  (void)rank.meet();
  const auto ranks = static_cast<uint64_t>(rank.count());
  const auto own = static_cast<uint64_t>(rank.rank());
  for (uint64_t turn = 1; turn <= 4; ++turn) {
    const uint64_t base = turn * 100;
    rank.expect_true(send.count_from(base + own), "input");
    rank.expect_true(place->driver().graph_launch(graph, place->stream()) == CUDA_SUCCESS,
                     "launching the graph");
    rank.expect_true(synchronize(*place, place->stream()), "the graph");
    rank.expect_true(copy.holds(ranks, ranks * base + ranks * (ranks - 1) / 2),
                     "the copy of turn " + std::to_string(turn));
    // Calls outside the graph take their numbers in the same sequence.
    for (Numbers& other : others) {
      rank.expect_true(other.count_from(own), "input");
      rank.expect_ok(sum(other, other, rank.comm, TUTTI_BLOCKING), "a call between");
      rank.expect_true(other.holds(ranks, ranks * (ranks - 1) / 2), "its result");
    }
  }
  (void)place->driver().graph_exec_destroy(graph);
}

TEST(DeviceTest, AGraphIsReplayedAndWhatFollowsReadsFinishedData) {
  const struct {
    int ranks;
    int blocks;
    size_t count;
  } cases[] = {{3, 1, kLongCount}, {3, 8, kLongCount}, {2, 1, kCount}, {3, 8, kCount}, {8, 2, 500}};
  for (const auto& one : cases) {
    EXPECT_EQ(
        run_cluster(on_device(one.ranks, one.blocks), [&](Rank& rank) { replay_sums(rank, one.count); }), "")
        << one.ranks << " ranks, " << one.blocks << " blocks, " << one.count << " numbers";
  }
}

TEST(DeviceTest, ShortAndLongCallsFollowEachOtherInAnyOrder) {
  for (const int ranks : {2, 4, 8}) {
    EXPECT_EQ(
        run_cluster(
            on_device(ranks, 3),
            [](Rank& rank) {
              const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
              if (place == nullptr) return;
              Numbers numbers[] = {Numbers(*place, 3), Numbers(*place, 300), Numbers(*place, kLongCount)};
              for (Numbers& each : numbers) rank.expect_true(each.count_from(1), "input");
              const tutti_stream_t stream = tutti_stream_cuda(place->stream());
              // Five sums of each, none waited for.
              for (const int which : {0, 1, 0, 2, 2, 1, 0, 0, 1, 2, 1, 0, 2, 1, 2}) {
                const Numbers& each = numbers[which];
                rank.expect_ok(sum(each, each, rank.comm, stream), "all_reduce");
              }
              rank.expect_true(synchronize(*place, place->stream()), "the stream");
              uint64_t factor = 1;
              for (int i = 0; i < 5; ++i) factor *= static_cast<uint64_t>(rank.count());
              for (Numbers& each : numbers) rank.expect_true(each.holds(factor, factor), "results");
            }),
        "")
        << ranks << " ranks";
  }
}

TEST(DeviceTest, ShortCallsGoByPacketsAndSayIt) {
  EXPECT_EQ(run_cluster(on_device(2, 3),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          for (const bool is_short : {true, false}) {
                            const Numbers numbers(*place, is_short ? 43'690 : 43'691);
                            rank.expect_ok(sum(numbers, numbers, rank.comm, TUTTI_BLOCKING), "all_reduce");
                            char text[512] = {};
                            (void)tutti_comm_explain(rank.comm, text, sizeof text);
                            rank.expect_true(
                                (std::string(text).find("by packets") != std::string::npos) == is_short,
                                text);
                          }
                        }),
            "");
}

TEST(DeviceTest, OperationsKeepTheirOrderAcrossStreams) {
  EXPECT_EQ(run_cluster(on_device(2, 2),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          auto other = cuda::Stream::create(place->context());
                          Numbers numbers(*place);
                          rank.expect_true(numbers.count_from(1), "input");
                          for (int turn = 0; turn < 10; ++turn) {
                            const CUstream stream = turn % 2 == 0 ? place->stream() : other->handle();
                            rank.expect_ok(sum(numbers, numbers, rank.comm, tutti_stream_cuda(stream)),
                                           "all_reduce");
                          }
                          rank.expect_true(synchronize(*place, other->handle()), "the streams");
                          rank.expect_true(numbers.holds(1024, 1024), "doubled ten times");
                        }),
            "");
}

TEST(DeviceTest, DestroyWaitsForWhatStreamsHold) {
  EXPECT_EQ(run_cluster(on_device(4, 1),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          Numbers numbers(*place);
                          rank.expect_true(numbers.count_from(0), "input");
                          for (int turn = 0; turn < 5; ++turn)
                            rank.expect_ok(
                                sum(numbers, numbers, rank.comm, tutti_stream_cuda(place->stream())), "sum");
                          rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                          rank.comm = nullptr;
                          rank.expect_true(numbers.holds(1024, 0), "all five are done");
                        }),
            "");
}

TEST(DeviceTest, CommunicatorsInOppositeOrdersDoNotStopEachOther) {
  EXPECT_EQ(run_cluster(on_device(2, 1),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          tutti_comm_t* first = rank.comm;
                          if (!rank.renew()) return;
                          tutti_comm_t* second = rank.comm;
                          auto other = cuda::Stream::create(place->context());
                          Numbers one(*place);
                          Numbers two(*place);
                          rank.expect_true(one.count_from(0) && two.count_from(5), "input");
                          for (int turn = 0; turn < 4; ++turn) {
                            const bool swaps = rank.rank() == 1;
                            const auto run = [&](bool is_first) {
                              return is_first ? sum(one, one, first, tutti_stream_cuda(place->stream()))
                                              : sum(two, two, second, tutti_stream_cuda(other->handle()));
                            };
                            rank.expect_ok(run(!swaps), "all_reduce");
                            rank.expect_ok(run(swaps), "all_reduce");
                          }
                          rank.expect_true(synchronize(*place, place->stream()), "the first");
                          rank.expect_true(synchronize(*place, other->handle()), "the second");
                          rank.expect_true(one.holds(16, 0) && two.holds(16, 80), "results");
                          rank.expect_ok(tutti_comm_destroy(first), "destroy");
                        }),
            "");
}

// Goal: communicators come and go while an operation of another one waits on the device for its peer, and
// none of that waits for the operation. Method: two ranks of a process, each on a device of its own. Rank 0
// begins a sum, both destroy and make communicators, then rank 1 begins the sum. The fake driver waits
// wherever CUDA may, as in cuMemFree.
TEST(DeviceTest, CommunicatorsComeAndGoWhileAnOperationOfAnotherWaits) {
  ClusterOptions options = on_device(2, 4);
  options.create = false;
  options.environment.emplace_back("FAKE_CUDA_DEVICES", "2");
  const std::string failures = run_cluster(options, [](Rank& rank) {
    tutti_config_t config = rank.config();
    config.device = TUTTI_CUDA_DEVICE(rank.rank());
    if (!rank.renew(config)) return;
    tutti_comm_t* first = std::exchange(rank.comm, nullptr);
    if (!rank.renew(config)) return;
    const auto place = CudaPlace::open(rank, rank.rank(), Order::kBlocking);
    if (place == nullptr) return;
    Numbers numbers(*place, kLongCount);
    Numbers others(*place, kLongCount);
    rank.expect_true(numbers.count_from(1) && others.count_from(1), "input");
    rank.expect_ok(sum(others, others, rank.comm, TUTTI_BLOCKING), "a sum of the second communicator");
    const auto run = [&] {
      rank.expect_ok(sum(numbers, numbers, first, tutti_stream_cuda(place->stream())), "sum");
    };
    if (rank.rank() == 0) run();
    if (!rank.meet()) return;
    rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy the second");
    if (!rank.renew(config)) return;
    rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy the third");
    if (!rank.meet()) return;
    if (rank.rank() == 1) run();
    rank.expect_true(synchronize(*place, place->stream()) && numbers.holds(2, 2), "the sum");
    rank.expect_ok(tutti_comm_destroy(first), "destroy");
  });
  EXPECT_EQ(failures, "");
}

/// A sum on a communicator of its own, which is destroyed, in the second turn while the thread's stream is
/// being captured.
void destroy_amid_capture(Rank& rank) {
  const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
  if (place == nullptr) return;
  const cuda::Driver& driver = place->driver();
  const CUstream stream = place->stream();
  Numbers numbers(*place);
  Numbers copy(*place);
  const cuda::CurrentContext current(place->context());
  std::string left;
  for (const bool is_captured : {false, true}) {
    if (!rank.renew()) return;
    rank.expect_true(numbers.count_from(1), "input");
    rank.expect_ok(sum(numbers, numbers, rank.comm, TUTTI_BLOCKING), "a sum");
    tutti_registered_memory_t* registered = nullptr;  // as long as the communicator: the peer maps it
    rank.expect_ok(tutti_memory_register(rank.comm, numbers.get(), numbers.bytes(), &registered), "register");
    if (is_captured) {
      rank.expect_true(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS,
                       "capture");
    }
    rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy");
    if (!is_captured) left = fake_cuda::leaks();
  }
  (void)driver.memcpy_async(reinterpret_cast<CUdeviceptr>(copy.get()),
                            reinterpret_cast<CUdeviceptr>(numbers.get()), copy.bytes(), stream);
  const CUgraphExec graph = end_capture(rank, driver, stream);
  rank.expect_true(graph != nullptr && driver.graph_launch(graph, stream) == CUDA_SUCCESS, "the graph");
  rank.expect_true(synchronize(*place, stream) && copy.holds(2, 2), "the copy");
  (void)driver.graph_exec_destroy(graph);
  rank.expect_true(fake_cuda::leaks() == left, "as much is left as before: " + fake_cuda::leaks());
}

// Goal: who destroys a communicator while a stream is being captured, in the mode that forbids much, keeps
// the capture, and all memory is freed. Method: a rank a process, so that its communicator is the device's
// last one, which frees memory; CUDA forbids cuMemFree beside a capture and would end the capture.
TEST(DeviceTest, ACommunicatorIsDestroyedAmidACapture) {
  ClusterOptions options = on_device(1, 3);
  options.layout = {1, 1};
  options.create = false;
  EXPECT_EQ(run_cluster(options, destroy_amid_capture), "");
}

// Goal: who splits a communicator or registers memory while a stream is being captured keeps the capture.
// Both meet in pinned memory, which CUDA forbids to allocate beside a capture.
TEST(DeviceTest, ASplitAndARegistrationAmidACaptureLeaveTheCaptureAsItIs) {
  ClusterOptions options = on_device(1, 3);
  options.layout = {1, 1};
  const auto body = [](Rank& rank) {
    const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
    if (place == nullptr) return;
    const cuda::Driver& driver = place->driver();
    const CUstream stream = place->stream();
    Numbers numbers(*place);
    const cuda::CurrentContext current(place->context());
    for (const bool splits : {true, false}) {
      rank.expect_true(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS,
                       "capture");
      tutti_comm_t* half = nullptr;
      tutti_registered_memory_t* registered = nullptr;
      if (splits) {
        rank.expect_ok(tutti_comm_split(rank.comm, 0, 0, &half, nullptr), "split");
      } else {
        rank.expect_ok(tutti_memory_register(rank.comm, numbers.get(), numbers.bytes(), &registered),
                       "register");
      }
      const CUgraphExec graph = end_capture(rank, driver, stream);
      (void)driver.graph_exec_destroy(graph);
      if (half != nullptr) rank.expect_ok(tutti_comm_destroy(half), "destroy");
    }
  };
  EXPECT_EQ(run_cluster(options, body), "");
}

TEST(DeviceTest, ASplitMakesCommunicatorsOnTheSameDevice) {
  EXPECT_EQ(run_cluster(on_device(4, 2),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr) return;
                          tutti_comm_t* half = nullptr;
                          if (!rank.expect_ok(tutti_comm_split(rank.comm, rank.rank() % 2, 0, &half, nullptr),
                                              "split"))
                            return;
                          Numbers numbers(*place);
                          rank.expect_true(numbers.count_from(static_cast<uint64_t>(rank.rank())), "input");
                          rank.expect_ok(sum(numbers, numbers, half, TUTTI_BLOCKING), "all_reduce of a half");
                          rank.expect_true(numbers.holds(2, rank.rank() % 2 == 0 ? 2 : 4), "its result");
                          rank.expect_ok(tutti_comm_destroy(half), "destroy");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
