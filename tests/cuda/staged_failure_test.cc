// What goes wrong where calls pass through host memory: each fault becomes an error on every rank, streams go
// on, and nothing hangs. The machine is the fake driver's.
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/cuda_place.h"
#include "tests/cuda/staged_bench.h"
#include "tests/support/cluster.h"
#include "tests/support/failing_allocations.h"

namespace tutti::test {
namespace {

constexpr size_t kCount = 3'000;

ClusterOptions options_of(std::vector<int> layout) {
  return staged_options(std::move(layout), 120);
}

struct Bench : StagedBench {
  explicit Bench(Rank& of) : StagedBench(of, kCount, Order::kBlocking) {}
};

std::string run_bench(const ClusterOptions& options, const std::function<void(Bench&)>& body) {
  return run_benches<Bench>(options, body);
}

TEST(StagedFailureTest, RanksInDifferentCallsLearnOfItOnBothSides) {
  for (const bool blocks : {true, false}) {
    EXPECT_EQ(run_bench(options_of({2}),
                        [&](Bench& bench) {
                          Rank& rank = bench.rank;
                          if (rank.rank() == 0 && !blocks) {
                            rank.expect_ok(bench.sum(bench.stream(), 100), "queued");
                            rank.expect_true(bench.stream_goes_on(), "the stream");
                            rank.expect_true(bench.async_error() == TUTTI_MISMATCH, "async_error");
                            rank.expect(bench.sum(bench.stream(), 100), TUTTI_MISMATCH, "the next call");
                          } else {
                            rank.expect(bench.sum(TUTTI_BLOCKING, rank.rank() == 0 ? 100 : 200),
                                        TUTTI_MISMATCH, "all_reduce of different counts");
                          }
                          rank.expect_text({"count 100", "count 200", "the same calls"}, "the text");
                          if (rank.rank() == 0 && !blocks) bench.destroy(TUTTI_MISMATCH);
                        }),
              "")
        << (blocks ? "blocking" : "on a stream");
  }
}

TEST(StagedFailureTest, ADeadlineNamesWhoIsNotThereAndReleasesStreams) {
  ClusterOptions options = options_of({3});
  options.config.timeout_ms = static_cast<uint64_t>(patience_s(2)) * 1000;
  EXPECT_EQ(
      run_bench(options,
                [](Bench& bench) {
                  Rank& rank = bench.rank;
                  if (rank.rank() == 0) {
                    rank.expect_ok(bench.sum(bench.stream()), "queued");
                    rank.expect_ok(bench.sum(bench.stream()), "queued behind it");
                    rank.expect_true(bench.stream_goes_on(), "the stream");
                    rank.expect_true(bench.async_error() == TUTTI_TIMEOUT, "async_error");
                  }
                  if (rank.rank() == 1) {
                    rank.expect(bench.sum(TUTTI_BLOCKING), TUTTI_TIMEOUT, "all_reduce without rank 2");
                    rank.expect_text({"no progress for", "rank 2 has made no collective call"}, "the text");
                  }
                  (void)rank.meet();
                  if (rank.rank() == 0) bench.destroy(TUTTI_TIMEOUT);
                }),
      "");
}

// Goal: abort releases an operation that its own stream has not come to yet, and one that waits for a peer.
TEST(StagedFailureTest, AbortReleasesStreamsWhereverTheyAre) {
  EXPECT_EQ(run_bench(options_of({3}),
                      [](Bench& bench) {
                        Rank& rank = bench.rank;
                        if (rank.rank() == 1) {
                          (void)rank.wait_value(0, 2);
                          rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
                          rank.comm = nullptr;
                          rank.add(1);
                          return;
                        }
                        const auto acceptor = cuda::PinnedMemory::allocate(bench.place->context(), 64);
                        const CUstream stream = bench.place->stream();
                        // Rank 2 is not there: its stream has something else to do first.
                        const cuda::CurrentContext current(bench.place->context());
                        const auto word = reinterpret_cast<CUdeviceptr>(acceptor->as<void>());
                        if (rank.rank() == 2)
                          (void)bench.place->driver().stream_wait_value32(stream, word, 1,
                                                                          CU_STREAM_WAIT_VALUE_EQ);
                        rank.expect_ok(bench.sum(bench.stream()), "queued");
                        rank.add(0);
                        (void)rank.wait_value(1, 1);
                        if (rank.rank() == 0) rank.expect_true(bench.stream_goes_on(), "the stream");
                        rank.expect_true(bench.async_error() == TUTTI_ABORTED, "async_error");
                        rank.expect(bench.sum(TUTTI_BLOCKING), TUTTI_ABORTED, "the next call");
                        rank.expect_text({"rank 1 called tutti_comm_abort"}, "the text");
                        // The stream comes to the operation after its end.
                        std::atomic_ref(*acceptor->as<uint32_t>()).store(1);
                        rank.expect_true(bench.stream_goes_on(), "the stream");
                        bench.destroy(TUTTI_ABORTED);
                      }),
            "");
}

// Goal: a replayed call that fails lets its graph go on, and so do later launches.
TEST(StagedFailureTest, AReplayedCallThatFailsLetsItsGraphGoOn) {
  EXPECT_EQ(run_bench(options_of({2}),
                      [](Bench& bench) {
                        Rank& rank = bench.rank;
                        if (rank.rank() == 1) {
                          rank.expect_ok(bench.sum(TUTTI_BLOCKING), "the first launch's");
                          (void)rank.wait_value(0, 1);
                          rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
                          rank.comm = nullptr;
                          return;
                        }
                        const cuda::CurrentContext current(bench.place->context());
                        const cuda::Driver& driver = bench.place->driver();
                        const CUstream stream = bench.place->stream();
                        (void)driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
                        rank.expect_ok(bench.sum(bench.stream()), "captured");
                        const CUgraphExec executable = end_capture(rank, driver, stream);
                        for (int turn = 0; turn < 3; ++turn) {
                          rank.expect_true(driver.graph_launch(executable, stream) == CUDA_SUCCESS, "launch");
                          if (turn == 1) rank.add(0);
                          rank.expect_true(bench.stream_goes_on(), "the stream");
                          const tutti_result_t wanted = turn == 0 ? TUTTI_SUCCESS : TUTTI_ABORTED;
                          rank.expect_true(bench.async_error() == wanted, "async_error");
                        }
                        (void)driver.graph_exec_destroy(executable);
                        bench.destroy(TUTTI_ABORTED);
                      }),
            "");
}

TEST(StagedFailureTest, AKilledRankIsReportedAndTheOthersGoOn) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, {0, 0, 1}}) {
    ClusterOptions options = options_of({1, 1, 1});
    options.hosts = hosts;
    options.lost_processes = {2};
    EXPECT_EQ(run_bench(options,
                        [](Bench& bench) {
                          Rank& rank = bench.rank;
                          rank.expect_ok(bench.sum(TUTTI_BLOCKING), "all three");
                          (void)rank.meet();
                          if (rank.rank() == 2) {
                            (void)rank.wait_value(0, 1);
                            (void)kill(getpid(), SIGKILL);
                          }
                          if (rank.rank() == 0) {
                            rank.expect_ok(bench.sum(bench.stream()), "queued");
                            rank.add(0);
                            rank.expect_true(bench.stream_goes_on(), "the stream");
                            rank.expect_true(bench.async_error() == TUTTI_PEER_LOST, "async_error");
                          } else {
                            rank.expect(bench.sum(TUTTI_BLOCKING), TUTTI_PEER_LOST, "without rank 2");
                          }
                          tutti_comm_t* rest = nullptr;
                          rank.expect_ok(tutti_comm_shrink(rank.comm, nullptr, 0, 0, &rest, nullptr),
                                         "shrink");
                          std::swap(rank.comm, rest);
                          rank.expect_ok(bench.sum(TUTTI_BLOCKING), "the two that are left");
                          (void)tutti_comm_destroy(rest);
                        }),
              "")
        << (hosts.empty() ? "one host" : "two hosts");
  }
}

TEST(StagedFailureTest, WhatTheDriverRefusesEndsTheOperationOnEveryRank) {
  for (const char* fault : {"cuLaunchHostFunc:2:999", "cuStreamWaitValue32:2:801", "cuEventRecord:2:999"}) {
    ClusterOptions options = options_of({1, 1});
    options.environment.emplace_back("FAKE_CUDA_FAIL", fault);
    EXPECT_EQ(run_bench(options,
                        [](Bench& bench) {
                          Rank& rank = bench.rank;
                          const bool on_device = rank.rank() == 0;
                          rank.expect_ok(bench.sum(on_device ? bench.stream() : TUTTI_BLOCKING), "the first");
                          if (on_device) rank.expect_true(bench.stream_goes_on(), "its end");
                          (void)rank.meet();
                          const tutti_result_t result =
                              bench.sum(on_device ? bench.stream() : TUTTI_BLOCKING);
                          rank.expect_true(result == TUTTI_SYSTEM_ERROR || result == TUTTI_UNSUPPORTED,
                                           "the second: " + std::string(tutti_last_error()));
                          rank.expect_text({"cu"}, "the function");
                          if (on_device) rank.expect_true(bench.stream_goes_on(), "the stream");
                        }),
              "")
        << fault;
  }
}

TEST(StagedFailureTest, NoPinnedMemoryIsAnErrorBeforeAnythingIsSent) {
  ClusterOptions options = options_of({1, 1});
  options.environment.emplace_back("FAKE_CUDA_FAIL", "cuMemHostRegister_v2:1:2");
  EXPECT_EQ(run_bench(options,
                      [](Bench& bench) {
                        Rank& rank = bench.rank;
                        if (rank.rank() == 0) {
                          rank.expect(bench.sum(bench.stream()), TUTTI_OUT_OF_MEMORY, "on a stream");
                          rank.expect_text({"rank 0 needs", "pinned host memory", "rank 1 is in host memory"},
                                           "the text");
                          rank.expect(bench.sum(TUTTI_BLOCKING), TUTTI_OUT_OF_MEMORY, "blocking");
                          rank.expect_true(bench.async_error() == TUTTI_SUCCESS,
                                           "the communicator is as it was");
                        }
                        (void)rank.meet();
                      }),
            "");
}

/// Returns how the call ended.
tutti_result_t sum_on_host_stream(const Bench& bench) {
  tutti_host_stream_t* stream = nullptr;
  bench.rank.expect_ok(tutti_host_stream_create(&stream), "host_stream_create");
  bench.rank.expect_ok(bench.sum(tutti_stream_host(stream)), "queued");
  const tutti_result_t result = tutti_host_stream_synchronize(stream);
  bench.rank.expect_text({"a call of rank 0 has failed", "pinned host memory"}, "the stream's text");
  bench.rank.expect_ok(tutti_host_stream_destroy(stream), "host_stream_destroy");
  return result;
}

tutti_result_t sum_in_group(const Bench& bench) {
  bench.rank.expect_ok(tutti_group_start(), "group_start");
  for (int call = 0; call < 2; ++call) bench.rank.expect_ok(bench.sum(TUTTI_BLOCKING), "recorded");
  return tutti_group_end();
}

// A rank that lacked pinned memory left out the call of a host stream, or of a group, and told nobody. Its
// peer waited, or took the rank's next call for the one that was left out.
TEST(StagedFailureTest, NoPinnedMemoryEndsCallsThatBelongTogether) {
  for (const bool in_group : {true, false}) {
    ClusterOptions options = options_of({1, 1});
    options.environment.emplace_back("FAKE_CUDA_FAIL", "cuMemHostRegister_v2:1:2");
    EXPECT_EQ(run_bench(options,
                        [in_group](Bench& bench) {
                          Rank& rank = bench.rank;
                          const bool queues = rank.rank() == 0 && !in_group;
                          rank.expect(queues ? sum_on_host_stream(bench) : sum_in_group(bench),
                                      TUTTI_OUT_OF_MEMORY, "the calls");
                          rank.expect(bench.sum(TUTTI_BLOCKING), TUTTI_OUT_OF_MEMORY, "the next call");
                          rank.expect_text({"a call of rank 0 has failed", "pinned host memory"}, "the text");
                          rank.expect_true(bench.async_error() == TUTTI_OUT_OF_MEMORY, "async_error");
                          (void)rank.meet();
                          if (queues) bench.destroy(TUTTI_OUT_OF_MEMORY);
                        }),
              "")
        << (in_group ? "in a group" : "on a host stream");
  }
}

// Goal: a call on a stream that runs out of memory on its way leaves no stream waiting: either nothing has
// changed, and it can be made again, or all ranks get the error. A stream once waited for ever for a call
// that its communicator's progress thread had never been given. Method: on rank 0 one allocation of the call
// fails, in each turn a later one, until none does.
TEST(StagedFailureTest, ACallThatRunsOutOfMemoryLeavesNoStreamWaiting) {
  EXPECT_EQ(run_cluster(options_of({2}),
                        [](Rank& rank) {
                          uint64_t errors = 0;
                          for (uint64_t turn = 0; rank.value(1) == 0; ++turn) {
                            rank.at("turn " + std::to_string(turn));
                            Bench bench(rank);
                            if (!bench) return;
                            tutti_result_t result = TUTTI_SUCCESS;
                            if (rank.rank() == 0) {
                              bool has_failed = false;
                              {
                                const FailingAllocations shortage(turn);
                                result = bench.sum(bench.stream());
                                has_failed = FailingAllocations::have_failed();
                              }
                              rank.expect(result, has_failed ? TUTTI_OUT_OF_MEMORY : TUTTI_SUCCESS, "queued");
                              rank.expect_true(bench.stream_goes_on(), "the stream");
                              if (bench.async_error() != TUTTI_SUCCESS) {
                                rank.add(0);
                              } else if (has_failed) {
                                rank.expect_ok(bench.sum(bench.stream()), "again");
                                rank.expect_true(bench.stream_goes_on(), "the stream");
                              }
                              if (!has_failed) rank.add(1);
                            } else {
                              result = bench.sum(TUTTI_BLOCKING);
                            }
                            rank.meet();
                            const bool is_error = rank.value(0) != std::exchange(errors, rank.value(0));
                            const tutti_result_t wanted = is_error ? TUTTI_OUT_OF_MEMORY : TUTTI_SUCCESS;
                            if (rank.rank() == 1) rank.expect(result, wanted, "the peer");
                            bench.destroy(TUTTI_SUCCESS);
                          }
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
