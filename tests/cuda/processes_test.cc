// Ranks on devices in several processes, and on several devices: their links lie in memory that they share by
// file.
#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cuda/context.h"
#include "cuda/memory.h"
#include "tests/cuda/driver/control.h"
#include "tests/support/cluster.h"

namespace tutti::cuda {
namespace {

using test::ClusterOptions;
using test::Rank;

/// Inline, one slot, and several stripes of many slots.
constexpr size_t kCounts[] = {3, 700, 90'000};

/// A rank's device, with two buffers of the largest count.
struct Buffers {
  std::unique_ptr<const Driver> driver;
  std::unique_ptr<Context> context;
  DeviceMemory input;
  DeviceMemory output;

  bool open(Rank& rank, int device, size_t bytes) {
    auto found = Driver::find();
    if (!rank.expect_true(found.is_ok(), std::string(found.status().text()))) return false;
    driver = std::move(*found);
    auto retained = Context::retain(*driver, device);
    if (!rank.expect_true(retained.is_ok(), std::string(retained.status().text()))) return false;
    context = std::move(*retained);
    auto one = DeviceMemory::allocate(*context, bytes);
    auto other = DeviceMemory::allocate(*context, bytes * static_cast<size_t>(rank.count()));
    if (!rank.expect_true(one.is_ok() && other.is_ok(), "memory")) return false;
    input = std::move(*one);
    output = std::move(*other);
    return true;
  }
  /// As open, on device 0, where the rank joins its communicator.
  bool join(Rank& rank, size_t bytes) {
    tutti_config_t config = rank.config();
    config.device = TUTTI_CUDA_DEVICE(0);
    return open(rank, 0, bytes) && rank.renew(config);
  }
  void write(const std::vector<float>& values) const {
    (void)copy_now(*context, input.as<void>(), values.data(), values.size() * sizeof(float));
  }
  std::vector<float> read(size_t count) const {
    std::vector<float> values(count);
    (void)copy_now(*context, values.data(), output.as<void>(), count * sizeof(float));
    return values;
  }
};

float value_of(int rank, size_t index) {
  return static_cast<float>(rank + 1) * static_cast<float>(index % 1000);
}

std::vector<float> values_of(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value_of(rank, i);
  return values;
}

void check_all_reduce(Rank& rank, const Buffers& buffers, size_t count, tutti_stream_t stream) {
  const std::string what = "all_reduce of " + std::to_string(count);
  rank.at(what);
  buffers.write(values_of(rank.rank(), count));
  rank.expect_ok(tutti_all_reduce(buffers.input.as<void>(), buffers.output.as<void>(), count, TUTTI_FLOAT32,
                                  TUTTI_SUM, rank.comm, stream),
                 what);
  rank.expect_true(buffers.driver->stream_synchronize(static_cast<CUstream>(stream.handle)) == CUDA_SUCCESS,
                   what);
  const float sum = static_cast<float>(rank.count() * (rank.count() + 1)) / 2;
  std::vector<float> wanted(count);
  for (size_t i = 0; i < count; ++i) wanted[i] = sum * static_cast<float>(i % 1000);
  rank.expect_true(buffers.read(count) == wanted, what + ": the result");
}

void check_all_gather(Rank& rank, const Buffers& buffers, size_t count) {
  const std::string what = "all_gather of " + std::to_string(count);
  rank.at(what);
  buffers.write(values_of(rank.rank(), count));
  rank.expect_ok(tutti_all_gather(buffers.input.as<void>(), buffers.output.as<void>(), count, TUTTI_FLOAT32,
                                  rank.comm, TUTTI_BLOCKING),
                 what);
  std::vector<float> wanted;
  for (int peer = 0; peer < rank.count(); ++peer) {
    const std::vector<float> theirs = values_of(peer, count);
    wanted.insert(wanted.end(), theirs.begin(), theirs.end());
  }
  rank.expect_true(buffers.read(wanted.size()) == wanted, what + ": the result");
}

std::string run_on_device(std::vector<int> layout,
                          std::vector<std::pair<std::string, std::string>> environment) {
  ClusterOptions options;
  options.layout = std::move(layout);
  options.create = false;
  options.environment = std::move(environment);
  options.seconds = 120;
  return test::run_cluster(options, [](Rank& rank) {
    tutti_config_t config = rank.config();
    config.device = TUTTI_CUDA_DEVICE(0);
    Buffers buffers;
    constexpr size_t kMost = *std::max_element(std::begin(kCounts), std::end(kCounts));
    if (!buffers.open(rank, 0, kMost * sizeof(float))) return;
    if (!rank.renew(config)) return;
    {
      const auto stream = Stream::create(*buffers.context);
      const CurrentContext current(*buffers.context);
      for (const size_t count : kCounts) {
        check_all_reduce(rank, buffers, count, TUTTI_BLOCKING);
        check_all_reduce(rank, buffers, count, tutti_stream_cuda(stream->handle()));
        check_all_gather(rank, buffers, count);
      }
    }
    rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
    rank.comm = nullptr;
  });
}

TEST(ProcessesTest, RanksOfSeveralProcessesShareADevice) {
  EXPECT_EQ(run_on_device({1, 1}, {}), "");
  EXPECT_EQ(run_on_device({2, 1}, {{"FAKE_CUDA_SMS", "1"}, {"FAKE_CUDA_BLOCKS", "1"}}), "");
}

// With few queues a stream may hold up what another one is given later: ranks that were late once waited for
// each other until the deadline, each one's new launch behind its own stream's wait.
TEST(ProcessesTest, ARankAProcessNeedsNoQueueBesideItsStreams) {
  const struct {
    const char* queues;
    const char* multiprocessors;
    const char* blocks;
  } cases[] = {{"1", "1", "1"}, {"1", "4", "2"}, {"1", "64", "1"}, {"2", "8", "2"}, {"2", "64", "1"}};
  for (const auto& one : cases) {
    EXPECT_EQ(run_on_device({1, 1, 1}, {{"CUDA_DEVICE_MAX_CONNECTIONS", one.queues},
                                        {"FAKE_CUDA_SMS", one.multiprocessors},
                                        {"FAKE_CUDA_BLOCKS", one.blocks}}),
              "")
        << one.queues << " queues, " << one.multiprocessors << " multiprocessors";
  }
}

constexpr size_t kLongCount = 90'000;

/// Runs `body` with a communicator on device 0, filled buffers of kLongCount floats and a stream. Rank 1
/// comes late: when rank 0 adds to counter 0.
template <class Body>
void run_with_late_rank(Rank& rank, const Body& body) {
  tutti_config_t config = rank.config();
  config.device = TUTTI_CUDA_DEVICE(0);
  Buffers buffers;
  if (!buffers.open(rank, 0, kLongCount * sizeof(float)) || !rank.renew(config)) return;
  const CurrentContext current(*buffers.context);
  const auto stream = Stream::create(*buffers.context);
  buffers.write(values_of(rank.rank(), kLongCount));
  if (rank.rank() == 1) (void)rank.wait_value(0, 1);
  body(buffers, *stream);
  rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
  rank.comm = nullptr;
}

void queue_sum(Rank& rank, const Buffers& buffers, const Stream& stream) {
  rank.expect_ok(tutti_all_reduce(buffers.input.as<void>(), buffers.output.as<void>(), kLongCount,
                                  TUTTI_FLOAT32, TUTTI_SUM, rank.comm, tutti_stream_cuda(stream.handle())),
                 "all_reduce");
}

// Goal: work that stands behind an operation in its stream does not keep late ranks from it. Method: one
// queue; rank 0 has queued a copy behind its operation before rank 1 makes its own.
TEST(ProcessesTest, WorkBehindAnOperationWaitsForNobodyElse) {
  const std::vector<std::pair<std::string, std::string>> environment = {
      {"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"FAKE_CUDA_SMS", "1"}, {"FAKE_CUDA_BLOCKS", "1"}};
  ClusterOptions options{.layout = {1, 1}, .environment = environment, .create = false};
  const auto body = [](Rank& rank, const Buffers& buffers, const Stream& stream) {
    for (int turn = 0; turn < 3; ++turn) {
      queue_sum(rank, buffers, stream);
      rank.expect_true(
          buffers.driver->memcpy_async(buffers.input.address(), buffers.output.address(),
                                       kLongCount * sizeof(float), stream.handle()) == CUDA_SUCCESS,
          "a copy behind it");
    }
    if (rank.rank() == 0) rank.add(0);
    rank.expect_true(stream.synchronize().is_ok(), "the stream");
    const std::vector<float> sums = buffers.read(kLongCount);
    // Of what is equal on both ranks a sum is twice as much.
    for (size_t i = 0; i < kLongCount; i += 997)
      rank.expect_true(sums[i] == 4 * 3 * static_cast<float>(i % 1000), "the sums");
  };
  EXPECT_EQ(test::run_cluster(options,
                              [&](Rank& rank) {
                                run_with_late_rank(rank, [&](const Buffers& buffers, const Stream& stream) {
                                  body(rank, buffers, stream);
                                });
                              }),
            "");
}

/// An empty file, for as long as this object lives.
class EmptyFile {
 public:
  EmptyFile() : path_((std::filesystem::temp_directory_path() / "tutti-turns-XXXXXX").string()) {
    ::close(mkstemp(path_.data()));
  }
  ~EmptyFile() { std::filesystem::remove(path_); }
  EmptyFile(const EmptyFile&) = delete;
  EmptyFile& operator=(const EmptyFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Goal: ranks of several processes make progress on a device that serves one process until that process has
// nothing to run, as if time slices never ended. Method: the fake driver's processes take turns.
TEST(ProcessesTest, LaunchesLeaveTheDeviceToOtherProcesses) {
  const EmptyFile turns;
  const struct {
    std::vector<int> layout;
    const char* queues;
  } cases[] = {{{1, 1}, "32"}, {{1, 1, 1}, "32"}, {{2, 1}, "32"}, {{1, 1}, "8"}};
  for (const auto& one : cases) {
    std::vector<std::pair<std::string, std::string>> environment = {
        {"FAKE_CUDA_TURNS", turns.path()},
        {"CUDA_DEVICE_MAX_CONNECTIONS", one.queues},
        {"TUTTI_GPU_YIELD", "1"}};
    EXPECT_EQ(run_on_device(one.layout, environment), "") << one.layout.size() << " processes";
  }
}

uint64_t launches_so_far() {
  return fake_cuda::launches("tutti_run") + fake_cuda::launches("tutti_short");
}

/// Rank 0's call waits until rank 1 makes its own, which it does when rank 0 has launched `awaited` times.
/// Rank 0 counts its launches.
void call_one_by_one(Rank& rank, uint64_t awaited, bool is_only) {
  run_with_late_rank(rank, [&](const Buffers& buffers, const Stream& stream) {
    const uint64_t before = launches_so_far();
    queue_sum(rank, buffers, stream);
    if (rank.rank() == 0) {
      rank.at("waiting for launches");
      while (launches_so_far() < before + awaited) std::this_thread::yield();
      rank.add(0);
    }
    rank.expect_true(stream.synchronize().is_ok(), "the stream");
    if (is_only) rank.expect_true(launches_so_far() == before + 1, "one launch");
  });
}

// Goal: where another process is on the device, launches leave it and come back if the user says so and the
// relaunch has a queue; else they stay.
TEST(ProcessesTest, LaunchesLeaveWhereTheyMay) {
  const struct {
    const char* queues;
    const char* yield;
    const char* mps;
    bool leaves;
  } cases[] = {{"32", "", "0", false}, {"8", "1", "0", true},  {"32", "1", "0", true},
               {"1", "1", "0", false}, {"8", "0", "1", false}, {"32", "1", "1", true}};
  for (const auto& one : cases) {
    ClusterOptions options{.layout = {1, 1}, .create = false};
    options.environment = {{"CUDA_DEVICE_MAX_CONNECTIONS", one.queues}, {"FAKE_CUDA_MPS", one.mps}};
    if (*one.yield != '\0') options.environment.emplace_back("TUTTI_GPU_YIELD", one.yield);
    EXPECT_EQ(test::run_cluster(options,
                                [&](Rank& rank) { call_one_by_one(rank, one.leaves ? 4 : 1, !one.leaves); }),
              "")
        << one.queues << " queues, TUTTI_GPU_YIELD=" << one.yield << ", MPS " << one.mps;
  }
}

// The driver may refuse a launch that stays, under MPS. A launch of one rank then had fewer blocks than
// lanes, and nobody ran the other lanes.
TEST(ProcessesTest, ARefusedLaunchOfOneRankRunsAllItsLanes) {
  ClusterOptions options{.layout = {1, 1}, .create = false};
  options.environment = {{"FAKE_CUDA_MPS", "1"},
                         {"FAKE_CUDA_COOPERATIVE", "0"},
                         {"FAKE_CUDA_SMS", "4"},
                         {"FAKE_CUDA_BLOCKS", "1"}};
  EXPECT_EQ(
      test::run_cluster(
          options,
          [](Rank& rank) {
            Buffers buffers;
            if (!buffers.join(rank, 700 * sizeof(float))) return;
            const CurrentContext current(*buffers.context);
            const auto stream = Stream::create(*buffers.context);
            const tutti_stream_t there = tutti_stream_cuda(stream->handle());
            const int peer = 1 - rank.rank();
            buffers.write(std::vector<float>(700, value_of(rank.rank(), 1)));
            rank.expect_ok(tutti_group_start(), "a group");
            rank.expect_ok(
                tutti_send(buffers.input.as<void>(), 700, TUTTI_FLOAT32, peer, 0, rank.comm, there), "send");
            rank.expect_ok(
                tutti_recv(buffers.output.as<void>(), 700, TUTTI_FLOAT32, peer, 0, rank.comm, there), "recv");
            rank.expect_ok(tutti_group_end(), "its end");
            rank.expect_true(stream->synchronize().is_ok(), "the stream");
            rank.expect_true(buffers.read(700)[699] == value_of(peer, 1), "the numbers");
          }),
      "");
}

// Goal: where ranks of one process would surely hold up each other, they are told, and calls that need no
// stream work. Method: two ranks of a process on a device with one queue.
TEST(ProcessesTest, RanksOfAProcessWithOneQueuePassThroughHostMemory) {
  ClusterOptions options{
      .layout = {2, 1}, .environment = {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}, .create = false};
  EXPECT_EQ(
      test::run_cluster(
          options,
          [](Rank& rank) {
            Buffers buffers;
            if (!buffers.join(rank, 700 * sizeof(float))) return;
            const CurrentContext current(*buffers.context);
            check_all_reduce(rank, buffers, 700, TUTTI_BLOCKING);
            if (rank.rank() < 2) {
              const auto stream = Stream::create(*buffers.context);
              rank.expect(
                  tutti_all_reduce(buffers.input.as<void>(), buffers.output.as<void>(), 700, TUTTI_FLOAT32,
                                   TUTTI_SUM, rank.comm, tutti_stream_cuda(stream->handle())),
                  TUTTI_UNSUPPORTED, "a call on a stream");
              rank.expect_text({"argument stream", "CUDA_DEVICE_MAX_CONNECTIONS", "8 or more"}, "the text");
            }
            check_all_gather(rank, buffers, 700);
            rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
            rank.comm = nullptr;
          }),
      "");
}

}  // namespace
}  // namespace tutti::cuda
