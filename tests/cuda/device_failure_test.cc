// What goes wrong on devices: each fault becomes an error on every rank, with a text that says which, and
// nothing hangs. The machine is the fake driver's.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/cuda_place.h"
#include "tests/support/cluster.h"
#include "tests/support/failing_allocations.h"

namespace tutti::test {
namespace {

ClusterOptions on_device(int ranks) {
  ClusterOptions options;
  options.layout = threads(ranks);
  options.config.device = TUTTI_CUDA_DEVICE(0);
  options.config.timeout_ms = static_cast<uint64_t>(patience_s(60)) * 1000;
  options.seconds = 120;
  options.environment = {{"FAKE_CUDA_SMS", "2"}, {"FAKE_CUDA_BLOCKS", "2"}};
  return options;
}

/// Runs `body` on ranks that are threads, and on ranks that are processes whose launches stay on the device
/// because it has one queue only. Empty, or what failed.
std::string run_everywhere(int ranks, const std::function<void(Rank&)>& body, uint64_t timeout_ms = 0) {
  ClusterOptions options = on_device(ranks);
  if (timeout_ms > 0) options.config.timeout_ms = timeout_ms;
  std::string failures = run_cluster(options, body);
  options.layout.assign(static_cast<size_t>(ranks), 1);
  options.environment = {
      {"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"FAKE_CUDA_SMS", "1"}, {"FAKE_CUDA_BLOCKS", "1"}};
  if (const std::string more = run_cluster(options, body); !more.empty())
    failures += "with one queue: " + more;
  return failures;
}

/// Two buffers of a rank on device 0.
struct Bench {
  explicit Bench(Rank& rank) : place(CudaPlace::open(rank, 0, Order::kBlocking)) {
    if (place == nullptr) return;
    send = place->allocate(kBytes);
    recv = place->allocate(kBytes);
    rank.expect_true(send != nullptr && recv != nullptr, "device memory");
  }
  explicit operator bool() const { return recv != nullptr; }

  bool stream_goes_on() const { return place->driver().stream_synchronize(place->stream()) == CUDA_SUCCESS; }
  static tutti_result_t async_error(Rank& rank) {
    tutti_result_t error = TUTTI_SUCCESS;
    rank.expect_ok(tutti_comm_async_error(rank.comm, &error), "async_error");
    return error;
  }

  static constexpr size_t kBytes = 1 << 20;
  std::unique_ptr<CudaPlace> place;
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

/// Ranks 0 and 1 reduce different counts; both learn of both.
void expect_mismatch(size_t count_of_0, size_t count_of_1) {
  EXPECT_EQ(run_everywhere(2,
                           [&](Rank& rank) {
                             Bench bench(rank);
                             if (!bench) return;
                             const size_t count = rank.rank() == 0 ? count_of_0 : count_of_1;
                             rank.expect(tutti_all_reduce(bench.send, bench.recv, count, TUTTI_FLOAT32,
                                                          TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                                         TUTTI_MISMATCH, "all_reduce of different counts");
                             rank.expect_text({"count " + std::to_string(count_of_0),
                                               "count " + std::to_string(count_of_1), "the same calls"},
                                              "the text");
                           }),
            "")
      << count_of_0 << " and " << count_of_1;
}

TEST(DeviceFailureTest, RanksInDifferentCallsLearnOfItOnBothSides) {
  expect_mismatch(100, 200);
  expect_mismatch(140'000, 140'001);
  // One sends packets, the other messages.
  expect_mismatch(100, 140'000);
}

TEST(DeviceFailureTest, AMessageOfAnotherTypeIsNamed) {
  EXPECT_EQ(
      run_everywhere(2,
                     [](Rank& rank) {
                       Bench bench(rank);
                       if (!bench) return;
                       if (rank.rank() == 0) {
                         (void)tutti_send(bench.send, 10, TUTTI_FLOAT32, 1, 3, rank.comm, TUTTI_BLOCKING);
                       } else {
                         rank.expect(tutti_recv(bench.recv, 10, TUTTI_INT32, 0, 3, rank.comm, TUTTI_BLOCKING),
                                     TUTTI_MISMATCH, "recv of another type");
                         rank.expect_text({"its type is float32", "int32 was expected"}, "the text");
                       }
                       (void)rank.meet();
                     }),
      "");
}

TEST(DeviceFailureTest, ADeadlineNamesWhoIsNotThere) {
  EXPECT_EQ(run_everywhere(
                3,
                [](Rank& rank) {
                  Bench bench(rank);
                  if (!bench) return;
                  if (rank.rank() != 2) {
                    rank.expect(tutti_all_reduce(bench.send, bench.recv, 5000, TUTTI_FLOAT32, TUTTI_SUM,
                                                 rank.comm, TUTTI_BLOCKING),
                                TUTTI_TIMEOUT, "all_reduce without rank 2");
                    rank.expect_text({"no progress for", "rank 2 has made no collective call"}, "the text");
                  }
                  (void)rank.meet();
                },
                300),
            "");
}

// Goal: after a call that timed out, its buffers are the caller's alone. A late rank's launch once began as
// if nothing had happened, found the buffer exposed and wrote its sums there. Method: rank 1's launch stands
// behind a word. Rank 0's call times out, rank 0 fills its output, and then rank 1's stream goes on.
TEST(DeviceFailureTest, ALateRankLeavesTheBuffersOfAFailedCallAlone) {
  constexpr size_t kLongBytes = 8 << 20;
  ClusterOptions options = on_device(2);
  options.config.timeout_ms = 300;
  const auto body = [](Rank& rank) {
    Bench bench(rank);
    if (!bench) return;
    std::byte* const send = bench.place->allocate(kLongBytes);
    std::byte* const recv = bench.place->allocate(kLongBytes);
    const auto word = cuda::PinnedMemory::allocate(bench.place->context(), sizeof(uint32_t));
    rank.expect_true(recv != nullptr && word, "memory");
    const auto sum = [&](tutti_stream_t stream) {
      return tutti_all_reduce(send, recv, kLongBytes / sizeof(float), TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                              stream);
    };
    if (rank.rank() == 1) {
      const cuda::CurrentContext current(bench.place->context());
      const CUstream stream = bench.place->stream();
      (void)bench.place->driver().stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(word->as<void>()),
                                                      1, CU_STREAM_WAIT_VALUE_EQ);
      rank.expect_ok(sum(tutti_stream_cuda(stream)), "the late call");
      (void)rank.meet();
      (void)rank.meet();
      std::atomic_ref(*word->as<uint32_t>()).store(1);
      rank.expect_true(bench.stream_goes_on(), "the late stream");
      (void)rank.meet();
      rank.expect(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), TUTTI_TIMEOUT, "destroy");
      return;
    }
    (void)rank.meet();
    rank.expect(sum(TUTTI_BLOCKING), TUTTI_TIMEOUT, "all_reduce without rank 1");
    const std::vector<std::byte> pattern(kLongBytes, std::byte{0x5a});
    rank.expect_true(bench.place->copy(recv, pattern.data(), kLongBytes), "the pattern");
    (void)rank.meet();
    (void)rank.meet();
    std::vector<std::byte> found(kLongBytes);
    rank.expect_true(bench.place->copy(found.data(), recv, kLongBytes) && found == pattern,
                     "rank 0's buffer is as rank 0 left it");
  };
  EXPECT_EQ(run_cluster(options, body), "");
}

TEST(DeviceFailureTest, ARankThatHasLeftIsNoHang) {
  EXPECT_EQ(run_everywhere(2,
                           [](Rank& rank) {
                             Bench bench(rank);
                             if (!bench) return;
                             if (rank.rank() == 1) {
                               rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                               rank.comm = nullptr;
                               return;
                             }
                             rank.expect(tutti_all_reduce(bench.send, bench.recv, 5000, TUTTI_FLOAT32,
                                                          TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                                         TUTTI_PEER_LOST, "all_reduce with a rank that has left");
                             rank.expect_text({"rank 1, which has left"}, "the text");
                           }),
            "");
}

TEST(DeviceFailureTest, AbortEndsBlockingCallsAndStreams) {
  EXPECT_EQ(
      run_everywhere(3,
                     [](Rank& rank) {
                       Bench bench(rank);
                       if (!bench) return;
                       if (rank.rank() == 2) {
                         (void)rank.wait_value(0, 2);
                         rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
                         rank.comm = nullptr;
                         return;
                       }
                       const bool blocks = rank.rank() == 0;
                       const CUstream stream = bench.place->stream();
                       rank.add(0);
                       const tutti_result_t result =
                           tutti_all_reduce(bench.send, bench.recv, 5000, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                            blocks ? TUTTI_BLOCKING : tutti_stream_cuda(stream));
                       if (blocks) {
                         rank.expect(result, TUTTI_ABORTED, "a blocking call");
                         rank.expect_text({"rank 2 called tutti_comm_abort"}, "the text");
                         return;
                       }
                       // Aborted before the call was made, or after.
                       if (result == TUTTI_SUCCESS) {
                         rank.expect_true(bench.stream_goes_on(), "the stream goes on");
                       }
                       rank.expect_true(Bench::async_error(rank) == TUTTI_ABORTED, "the communicator knows");
                       // It says what has become of the operation on the stream, if there was one.
                       const tutti_result_t destroyed = tutti_comm_destroy(rank.comm);
                       rank.comm = nullptr;
                       rank.expect_true(destroyed == TUTTI_SUCCESS || destroyed == TUTTI_ABORTED, "destroy");
                     }),
      "");
}

// Goal: a group on a stream that fails when some of its calls are under way is an error of all ranks, who
// once waited for the rest of it until the deadline. Method: on rank 0 the device has no memory for the
// launch of the second call, the fourth after two of the device's opening.
TEST(DeviceFailureTest, AGroupThatFailsHalfWayIsAnErrorOfAllRanks) {
  ClusterOptions options = on_device(1);
  options.layout = {1, 1};
  options.create = false;
  const auto body = [](Rank& rank) {
    if (rank.rank() == 0) (void)setenv("FAKE_CUDA_FAIL", "cuLaunchKernelEx:4:2", 1);
    if (!rank.renew(rank.config())) return;
    Bench bench(rank);
    if (!bench) return;
    const tutti_stream_t stream = tutti_stream_cuda(bench.place->stream());
    rank.expect_ok(tutti_group_start(), "a group");
    for (const size_t count : {size_t{100}, size_t{140'000}}) {
      rank.expect_ok(
          tutti_all_reduce(bench.send, bench.recv, count, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, stream),
          "recorded");
    }
    const tutti_result_t result = tutti_group_end();
    if (rank.rank() == 0) {
      rank.expect(result, TUTTI_OUT_OF_MEMORY, "the group");
      rank.expect_text({"cuLaunchKernelEx"}, "its text");
    }
    rank.expect_true(bench.stream_goes_on(), "the stream");
    rank.expect_true(Bench::async_error(rank) == TUTTI_OUT_OF_MEMORY, "async_error");
    (void)tutti_comm_destroy(std::exchange(rank.comm, nullptr));
  };
  EXPECT_EQ(run_cluster(options, body), "");
}

// Goal: a device that has failed is an error of all ranks, and its rank can be destroyed. An operation behind
// a stream's work was once thought to run for ever. Method: rank 0's launch stands behind a word, and then
// the driver answers every question about an event with an illegal address.
TEST(DeviceFailureTest, ADeviceThatFailsUnderAnOperationIsAnErrorOfAllRanks) {
  ClusterOptions options = on_device(1);
  options.layout = {1, 1};
  options.create = false;
  const auto body = [](Rank& rank) {
    if (rank.rank() == 0) (void)setenv("FAKE_CUDA_FAIL", "cuEventQuery:5:700", 1);
    if (!rank.renew(rank.config())) return;
    Bench bench(rank);
    if (!bench) return;
    const auto word = cuda::PinnedMemory::allocate(bench.place->context(), sizeof(uint32_t));
    if (rank.rank() == 0) {
      const cuda::CurrentContext current(bench.place->context());
      const CUstream stream = bench.place->stream();
      (void)bench.place->driver().stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(word->as<void>()),
                                                      1, CU_STREAM_WAIT_VALUE_EQ);
      rank.expect_ok(tutti_all_reduce(bench.send, bench.recv, 5000, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                      tutti_stream_cuda(stream)),
                     "queued");
    }
    while (Bench::async_error(rank) == TUTTI_SUCCESS) std::this_thread::yield();
    rank.expect_true(Bench::async_error(rank) == TUTTI_SYSTEM_ERROR, "async_error");
    (void)tutti_comm_destroy(std::exchange(rank.comm, nullptr));
    std::atomic_ref(*word->as<uint32_t>()).store(1);
    rank.expect_true(bench.stream_goes_on(), "the stream");
  };
  EXPECT_EQ(run_cluster(options, body), "");
}

// Goal: a call that runs out of memory ends, wherever it does. A program that could not be noted once waited
// for a lock of its own thread. Method: one allocation of a call on a stream fails, in each turn a later one,
// until none does; the peer never makes it.
TEST(DeviceFailureTest, ACallThatRunsOutOfMemoryEnds) {
  EXPECT_EQ(run_cluster(on_device(2),
                        [](Rank& rank) {
                          Bench bench(rank);
                          if (!bench) return;
                          const tutti_stream_t stream = tutti_stream_cuda(bench.place->stream());
                          bool has_failed = rank.rank() == 0;
                          for (uint64_t turn = 0; has_failed; ++turn) {
                            rank.at("turn " + std::to_string(turn));
                            const FailingAllocations shortage(turn);
                            const tutti_result_t result = tutti_all_reduce(
                                bench.send, bench.recv, 100, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, stream);
                            has_failed = FailingAllocations::have_failed();
                            rank.expect(result, has_failed ? TUTTI_OUT_OF_MEMORY : TUTTI_SUCCESS, "the call");
                          }
                          rank.meet();
                          (void)tutti_comm_abort(std::exchange(rank.comm, nullptr));
                          rank.expect_true(bench.stream_goes_on(), "the stream");
                        }),
            "");
}

/// A graph of one all_reduce, on the bench's stream.
CUgraphExec capture_sum(Rank& rank, const Bench& bench) {
  const cuda::Driver& driver = bench.place->driver();
  const CUstream stream = bench.place->stream();
  rank.expect_true(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS,
                   "capture");
  rank.expect_ok(tutti_all_reduce(bench.send, bench.recv, 5000, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                  tutti_stream_cuda(stream)),
                 "a captured all_reduce");
  return end_capture(rank, driver, stream);
}

// Replays that wait for a rank that never comes are known to nobody but the driver: an abort once gave their
// memory back under them.
TEST(DeviceFailureTest, AbortLeavesReplaysTheirMemoryAndEndsThem) {
  EXPECT_EQ(run_everywhere(
                2,
                [](Rank& rank) {
                  Bench bench(rank);
                  if (!bench) return;
                  const cuda::CurrentContext current(bench.place->context());
                  const CUgraphExec graph = capture_sum(rank, bench);
                  const cuda::Driver& driver = bench.place->driver();
                  const CUstream stream = bench.place->stream();
                  for (int turn = 0; rank.rank() == 0 && turn < 3; ++turn)
                    rank.expect_true(driver.graph_launch(graph, stream) == CUDA_SUCCESS, "a launch");
                  (void)rank.meet();
                  // The other rank's streams are idle.
                  rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
                  rank.comm = nullptr;
                  rank.expect_true(driver.stream_synchronize(stream) == CUDA_SUCCESS, "the stream goes on");
                  (void)driver.graph_exec_destroy(graph);
                }),
            "");
}

TEST(DeviceFailureTest, MemoryOfTheWrongKindIsRefused) {
  EXPECT_EQ(run_cluster(
                on_device(2),
                [](Rank& rank) {
                  Bench bench(rank);
                  if (!bench) return;
                  std::vector<float> host(100);
                  rank.expect(tutti_all_reduce(host.data(), bench.recv, 100, TUTTI_FLOAT32, TUTTI_SUM,
                                               rank.comm, TUTTI_BLOCKING),
                              TUTTI_INVALID_ARGUMENT, "host memory on a device rank");
                  rank.expect_text({"argument send", "host memory", "device 0"}, "the text");
                  rank.expect(tutti_recv(host.data(), 1, TUTTI_FLOAT32, 0, 0, rank.comm, TUTTI_BLOCKING),
                              TUTTI_INVALID_ARGUMENT, "recv into host memory");
                  // The communicator is as it was.
                  rank.expect_ok(tutti_all_reduce(bench.send, bench.recv, 100, TUTTI_FLOAT32, TUTTI_SUM,
                                                  rank.comm, TUTTI_BLOCKING),
                                 "all_reduce after that");
                  tutti_config_t config = rank.config();
                  config.device = 0;
                  rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                  if (!rank.renew(config)) return;
                  rank.expect(tutti_all_reduce(bench.send, bench.recv, 100, TUTTI_FLOAT32, TUTTI_SUM,
                                               rank.comm, TUTTI_BLOCKING),
                              TUTTI_INVALID_ARGUMENT, "device memory on a host rank");
                  rank.expect_text({"argument send", "memory of CUDA device 0", "config.device"}, "the text");
                  rank.expect(tutti_all_reduce(host.data(), host.data(), 100, TUTTI_FLOAT32, TUTTI_SUM,
                                               rank.comm, tutti_stream_cuda(bench.place->stream())),
                              TUTTI_UNSUPPORTED, "a CUDA stream on a host rank");
                }),
            "");
}

/// Creating communicators fails on every rank, with `code` and a text that holds one of the parts.
void expect_no_communicator(ClusterOptions options, const std::function<int(int rank)>& device_of,
                            tutti_result_t code, const std::vector<std::string>& parts) {
  options.create = false;
  EXPECT_EQ(run_cluster(options,
                        [&](Rank& rank) {
                          tutti_config_t config = rank.config();
                          config.device = TUTTI_CUDA_DEVICE(device_of(rank.rank()));
                          tutti_comm_t* comm = nullptr;
                          rank.expect(tutti_comm_create(&comm, rank.count(), rank.id(), rank.rank(), &config),
                                      code, "creating a communicator");
                          rank.expect_text(parts, "the text");
                          rank.expect_true(comm == nullptr, "no handle");
                        }),
            "");
}

// A relaunch may stand in a queue behind the stream that waits for it. It then had no deadline, and the
// stream waited for ever. Method: rank 1 does not call, so rank 0's launch leaves. Ranks are processes with
// two queues, to which their streams are dealt in turn: one of two streams shares the relaunches' queue.
TEST(DeviceFailureTest, ARelaunchThatCannotBeginHasADeadline) {
  ClusterOptions options = on_device(2);
  options.layout = processes(2);
  options.config.timeout_ms = 2000;
  options.environment = {
      {"CUDA_DEVICE_MAX_CONNECTIONS", "2"}, {"FAKE_CUDA_SMS", "1"}, {"FAKE_CUDA_BLOCKS", "1"}};
  for (const size_t which : {0, 1}) {
    const auto body = [which](Rank& rank) {
      const Bench bench(rank);
      if (!bench) return;
      const std::array streams = {cuda::Stream::create(bench.place->context()),
                                  cuda::Stream::create(bench.place->context())};
      const CUstream stream = streams[which]->handle();
      if (rank.rank() == 0) {
        rank.expect_ok(tutti_all_reduce(bench.send, bench.recv, Bench::kBytes / sizeof(float), TUTTI_FLOAT32,
                                        TUTTI_SUM, rank.comm, tutti_stream_cuda(stream)),
                       "all_reduce");
        rank.at("waiting for the stream");
        rank.expect_true(bench.place->driver().stream_synchronize(stream) == CUDA_SUCCESS,
                         "the stream goes on");
      }
      (void)rank.meet();
      rank.expect(Bench::async_error(rank), TUTTI_TIMEOUT, "the error of both ranks");
      rank.expect_ok(tutti_comm_abort(std::exchange(rank.comm, nullptr)), "abort");
    };
    EXPECT_EQ(run_cluster(options, body), "") << "stream " << which;
  }
}

TEST(DeviceFailureTest, AMissingDeviceIsRefusedOnEveryRank) {
  expect_no_communicator(on_device(3), [](int rank) { return rank == 1 ? 7 : 0; }, TUTTI_INVALID_ARGUMENT,
                         {"7"});
}

TEST(DeviceFailureTest, MoreRanksThanADeviceHasMemoryFor) {
  ClusterOptions options = on_device(4);
  options.environment.emplace_back("FAKE_CUDA_MEMORY", std::to_string(100 << 20));
  expect_no_communicator(options, [](int) { return 0; }, TUTTI_OUT_OF_MEMORY, {"MiB of device 0", "4 ranks"});
}

TEST(DeviceFailureTest, AMachineWithoutADeviceSaysSo) {
  ClusterOptions options = on_device(2);
  options.environment.emplace_back("FAKE_CUDA_DEVICES", "0");
  expect_no_communicator(options, [](int) { return 0; }, TUTTI_UNSUPPORTED, {"device"});
}

}  // namespace
}  // namespace tutti::test
