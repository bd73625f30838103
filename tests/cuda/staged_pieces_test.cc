// Long calls that pass through host memory run in pieces (engine/pieces.h): same results, and copies that
// overlap with operations. The machine is the fake driver's. Even ranks are on device 0, odd ones in host
// memory.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "api/handle.h"
#include "engine/pieces.h"
#include "tests/conformance/trial.h"
#include "tests/cuda/staged_bench.h"
#include "tests/support/values.h"

namespace tutti::test {
namespace {

constexpr size_t kPieces = 3;
constexpr size_t kCount = (size_t{kPieces * 2} << 20) / sizeof(float) + 17;

ClusterOptions options_of(std::vector<int> layout) {
  return staged_options(std::move(layout), 240);
}

/// With known numbers in its buffers.
struct Bench : StagedBench {
  explicit Bench(Rank& of, Order order = Order::kBlocking) : StagedBench(of, kCount, order) {
    if (!*this) return;
    fill(send, 0, kCount, static_cast<float>(rank.rank() + 1));
    fill(recv, 0, kCount, 0);
  }

  void fill(float* at, size_t first, size_t count, float value) const {
    const std::vector<float> values(count, value);
    if (place == nullptr) {
      std::copy(values.begin(), values.end(), at + first);
    } else {
      rank.expect_true(place->copy(at + first, values.data(), count * sizeof(float)), "fill");
    }
  }
  /// Whether elements [first, first + count) of the result have the value.
  bool has(size_t first, size_t count, float value) const {
    std::vector<float> values(count);
    if (place == nullptr) {
      std::copy_n(recv + first, count, values.begin());
    } else if (!place->copy(values.data(), recv + first, count * sizeof(float))) {
      return false;
    }
    return std::all_of(values.begin(), values.end(), [value](float one) { return one == value; });
  }
  std::vector<Call> pieces() const {
    Call call{.shape = {.collective = Collective::kAllReduce,
                        .type = DataType::kFloat32,
                        .op = ReduceOp::kSum,
                        .count = kCount},
              .send = send,
              .recv = recv,
              .blocks = nullptr};
    return cut_into_pieces(call);
  }
  Status run(const Call& piece) const { return rank.comm->comm->run(piece); }
  StagingDevice& device() const { return rank.comm->comm->staged()->device(); }
};

std::string run_bench(const ClusterOptions& options, const std::function<void(Bench&)>& body) {
  return run_benches<Bench>(options, body);
}

std::vector<Trial> long_trials(uint64_t seed, bool in_place) {
  std::vector<Trial> trials;
  for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kBroadcast}) {
    trials.push_back({.kind = kind, .type = TUTTI_FLOAT32, .root = 1, .in_place = in_place, .count = kCount});
    trials.push_back({.kind = kind,
                      .type = TUTTI_FLOAT16,
                      .op = kPremulOp,
                      .root = 0,
                      .in_place = !in_place,
                      .count = (size_t{5} << 20) / 2 + 1});
  }
  for (size_t i = 0; i < trials.size(); ++i) trials[i].seed = seed + i;
  return trials;
}

TEST(StagedPiecesTest, LongCallsGiveTheirResultInEveryOrder) {
  const std::vector<int> one_host = {0, 0, 0};
  const std::vector<int> two_hosts = {0, 1, 1};
  bool in_place = false;
  for (const auto& [order, hosts] : {std::pair(Order::kBlocking, one_host),
                                     {Order::kStream, two_hosts},
                                     {Order::kStreams, one_host},
                                     {Order::kGraph, two_hosts}}) {
    ClusterOptions options = options_of({1, 1, 1});
    options.hosts = hosts;
    in_place = !in_place;
    EXPECT_EQ(run_cluster(options,
                          [order = order, in_place](Rank& rank) {
                            const Bench bench(rank, order);
                            if (!bench) return;
                            for (const Trial& trial : long_trials(7, in_place)) {
                              if (bench.place == nullptr) {
                                run_trial(rank, trial);
                              } else {
                                run_trial(rank, trial, *bench.place);
                                bench.place->clear();
                              }
                            }
                          }),
              "")
        << order_name(order);
  }
}

// Goal: calls of a group, and a repeated call, run in pieces too. A rank in host memory once repeated the
// last piece in place of the call.
TEST(StagedPiecesTest, GroupsAndRepeatedCallsRunInPieces) {
  EXPECT_EQ(
      run_bench(options_of({2}),
                [](Bench& bench) {
                  Rank& rank = bench.rank;
                  for (const bool blocks : {true, false}) {
                    const auto stream = blocks || bench.place == nullptr ? TUTTI_BLOCKING : bench.stream();
                    for (int turn = 0; turn < 3; ++turn) {
                      bench.fill(bench.recv, 0, kCount, 0);
                      if (turn == 2) (void)tutti_group_start();
                      rank.expect_ok(bench.sum(stream), "all_reduce");
                      if (turn == 2) rank.expect_ok(tutti_group_end(), "the group");
                      if (bench.place != nullptr) rank.expect_true(bench.stream_goes_on(), "the stream");
                      rank.expect_true(bench.has(0, kCount, 3), "the sum");
                    }
                  }
                  std::array<char, 1024> text{};
                  rank.expect_ok(tutti_comm_explain(rank.comm, text.data(), text.size()), "explain");
                  const std::string whole = "count " + std::to_string(kCount) + "), in pieces of ";
                  rank.expect_true(std::string(text.data()).find(whole) != std::string::npos, text.data());
                }),
      "");
}

// Goal: reproducible mode keeps its promise: the bits of a call do not depend on pieces.
// Method: the same numbers, which round, through host memory in pieces and in host memory at once.
TEST(StagedPiecesTest, PiecesHaveTheBitsOfTheWholeCallInReproducibleMode) {
  ClusterOptions options = options_of({3});
  options.config.reproducible = 1;
  EXPECT_EQ(run_bench(options,
                      [](Bench& bench) {
                        Rank& rank = bench.rank;
                        std::vector<float> numbers(kCount);
                        for (size_t i = 0; i < kCount; ++i) {
                          const uint64_t word = mix(i, static_cast<uint64_t>(rank.rank()));
                          numbers[i] = static_cast<float>(word % 1'000'003) / 1'000.0f;
                        }
                        if (bench.place != nullptr) {
                          (void)bench.place->copy(bench.send, numbers.data(), kCount * sizeof(float));
                        } else {
                          std::copy(numbers.begin(), numbers.end(), bench.send);
                        }
                        rank.expect_ok(bench.sum(TUTTI_BLOCKING), "in pieces");
                        std::vector<float> pieces(kCount);
                        if (bench.place != nullptr) {
                          (void)bench.place->copy(pieces.data(), bench.recv, kCount * sizeof(float));
                        } else {
                          std::copy_n(bench.recv, kCount, pieces.begin());
                        }
                        if (!rank.renew()) return;
                        std::vector<float> whole(kCount);
                        rank.expect_ok(tutti_all_reduce(numbers.data(), whole.data(), kCount, TUTTI_FLOAT32,
                                                        TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                                       "at once");
                        rank.expect_true(
                            std::memcmp(whole.data(), pieces.data(), kCount * sizeof(float)) == 0, "bits");
                      }),
            "");
}

// Goal: copies overlap with operations: the input of the next piece is there before a piece runs, and its
// result is on the device before the piece after the next runs.
// Method: rank 1 runs piece by piece.
TEST(StagedPiecesTest, CopiesOfNeighbouringPiecesOverlapWithTheOperation) {
  EXPECT_EQ(
      run_bench(options_of({1, 1}),
                [](Bench& bench) {
                  Rank& rank = bench.rank;
                  const std::vector<Call> pieces = bench.pieces();
                  rank.expect_true(pieces.size() == kPieces, "three pieces");
                  const uint64_t patience_ms = rank.config().timeout_ms;
                  if (rank.rank() == 1) {
                    for (size_t i = 0; i < pieces.size(); ++i) {
                      (void)rank.wait_value(0, i + 1);
                      const Status ran = bench.run(pieces[i]);
                      rank.expect_true(ran.is_ok(), std::string(ran.text()));
                    }
                    return;
                  }
                  const size_t piece = pieces[0].shape.piece;
                  rank.expect_ok(bench.sum(bench.stream()), "queued");
                  StagingDevice& device = bench.device();
                  rank.expect_true(device.wait_until_reached(2, patience_ms), "two inputs are copied");
                  rank.expect_true(!device.wait_until_reached(3, 0), "the third one waits for its turn");
                  rank.expect_true(bench.has(0, piece, 0), "no result yet");
                  rank.add(0);
                  rank.expect_true(device.wait_until_reached(3, patience_ms), "the third one is copied");
                  rank.expect_true(bench.has(0, piece, 3), "the first result");
                  rank.expect_true(bench.has(piece, kCount - piece, 0), "no other result");
                  // What changes now was copied before.
                  bench.fill(bench.send, 0, kCount, 50);
                  rank.add(0, 2);
                  rank.expect_true(bench.stream_goes_on(), "the stream");
                  rank.expect_true(bench.has(0, kCount, 3), "all results");
                }),
      "");
}

// Goal: a rank that is lost, or aborts, between two pieces is an error on every rank, and streams go on. As
// for whole calls, destroy repeats the error of a call on a stream, and not that of a call which returned it.
TEST(StagedPiecesTest, ARankThatLeavesBetweenTwoPiecesIsReported) {
  for (const bool dies : {true, false}) {
    for (const bool blocks : {true, false}) {
      ClusterOptions options = options_of({1, 1, 1, 1});
      if (dies) options.lost_processes = {3};
      EXPECT_EQ(run_bench(options,
                          [&](Bench& bench) {
                            Rank& rank = bench.rank;
                            const tutti_result_t wanted = dies ? TUTTI_PEER_LOST : TUTTI_ABORTED;
                            if (rank.rank() == 3) {
                              const Status first = bench.run(bench.pieces()[0]);
                              rank.expect_true(first.is_ok(), std::string(first.text()));
                              if (dies) (void)kill(getpid(), SIGKILL);
                              rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
                              rank.comm = nullptr;
                              return;
                            }
                            const bool on_stream = bench.place != nullptr && !blocks;
                            if (on_stream) {
                              rank.expect_ok(bench.sum(bench.stream()), "queued");
                              rank.expect_true(bench.stream_goes_on(), "the stream");
                              rank.expect_true(bench.async_error() == wanted, "async_error");
                            } else {
                              rank.expect(bench.sum(TUTTI_BLOCKING), wanted, "blocking");
                            }
                            rank.expect(bench.sum(TUTTI_BLOCKING), wanted, "the next call");
                            rank.expect(tutti_comm_destroy(rank.comm), on_stream ? wanted : TUTTI_SUCCESS,
                                        "destroy");
                            rank.comm = nullptr;
                          }),
                "")
          << (dies ? "dies" : "aborts") << (blocks ? ", blocking" : ", on streams");
    }
  }
}

// Goal: what the driver refuses in the middle of a call ends the call on every rank. The call returns the
// error, and destroy does not repeat it: none of the pieces has run, not even those that were queued before.
TEST(StagedPiecesTest, WhatTheDriverRefusesBetweenTwoPiecesEndsTheCallOnEveryRank) {
  for (const char* fault : {"cuLaunchHostFunc:2:999", "cuStreamWaitValue32:2:801", "cuEventRecord:2:999"}) {
    for (const bool blocks : {true, false}) {
      ClusterOptions options = options_of({1, 1});
      options.environment.emplace_back("FAKE_CUDA_FAIL", fault);
      EXPECT_EQ(run_bench(options,
                          [&](Bench& bench) {
                            Rank& rank = bench.rank;
                            const bool streams = bench.place != nullptr && !blocks;
                            const tutti_result_t result =
                                bench.sum(streams ? bench.stream() : TUTTI_BLOCKING);
                            rank.expect_true(result == TUTTI_SYSTEM_ERROR || result == TUTTI_UNSUPPORTED,
                                             "the call: " + std::string(tutti_last_error()));
                            rank.expect_text({"cu"}, "the function");
                            if (streams) rank.expect_true(bench.stream_goes_on(), "the stream");
                          }),
                "")
          << fault << (blocks ? ", blocking" : ", on a stream");
    }
  }
}

}  // namespace
}  // namespace tutti::test
