// Goal: calls that only move bytes go from GPU to network card to GPU, without host memory. Method: ranks on
// devices of several emulated hosts; the fake driver counts the bytes that its copies take across the bus,
// the fake RDMA devices those that they write into exported memory. The process dies if a processor touches
// memory of a device (FAKE_CUDA_HIDDEN).
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "tests/cards/hosts.h"
#include "tests/cards/moves.h"
#include "tests/cuda/driver/control.h"
#include "tests/rdma/provider/control.h"

namespace tutti::test {
namespace {

constexpr uint64_t kBytes = 1 << 18;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kAddressesComeAgain = false;  // with a sanitizer's layout of memory
#else
constexpr bool kAddressesComeAgain = true;
#endif
const Variables kHidden = {{"FAKE_CUDA_HIDDEN", "1"}};

WorldOptions hidden(int ranks) {
  return {.ranks = ranks, .environment = kHidden};
}

/// What has happened on the bus and in the network.
struct Traffic {
  uint64_t crossed = fake_cuda::crossed_bytes();
  uint64_t written = fake_verbs::seen().dmabuf_written;
  uint64_t flushes = fake_cuda::card_flushes();
};

/// Bytes that come from other ranks in a call, on all ranks together.
uint64_t bytes_between(const std::string& name, uint64_t ranks, uint64_t bytes) {
  if (name == "send and recv") return ranks * bytes;
  const bool has_root = name == "broadcast" || name == "scatter" || name == "gather";
  return (ranks - 1) * bytes * (has_root ? 1 : ranks);
}

/// Makes a call without looking at its result, and returns what it has cost.
Traffic cost_of(HostRank& rank, const Move& move, uint64_t bytes, int call, tutti_stream_t stream) {
  const Move::Buffers buffers = move.prepare(rank, bytes, call);
  rank.meet();
  const Traffic before;
  rank.meet();
  rank.expect_ok(move.make(rank, buffers, bytes, stream), move.name);
  rank.synchronize();
  rank.meet();
  Traffic cost;
  cost.crossed -= before.crossed;
  cost.written -= before.written;
  cost.flushes -= before.flushes;
  rank.meet();  // the next call's input is a copy too
  return cost;
}

class CardsTest : public testing::TestWithParam<int> {};

TEST_P(CardsTest, EveryMoveBringsItsBytes) {
  EXPECT_EQ(run_world(hidden(GetParam()),
                      [](HostRank& rank) {
                        int call = 0;
                        for (const Move& move : moves()) {
                          for (const bool on_stream : {false, true})
                            check_move(rank, move, kBytes, ++call, on_stream);
                        }
                      }),
            "");
}

TEST_P(CardsTest, NoByteOfALongMoveCrossesTheBusTwice) {
  const auto ranks = static_cast<uint64_t>(GetParam());
  EXPECT_EQ(
      run_world(hidden(GetParam()),
                [ranks](HostRank& rank) {
                  int call = 0;
                  for (const Move& move : moves()) {
                    for (const bool on_stream : {false, true}) {
                      const Traffic cost =
                          cost_of(rank, move, kBytes, ++call, on_stream ? rank.stream() : TUTTI_BLOCKING);
                      const std::string name = move.name;
                      rank.expect(cost.crossed == 0, name + ": copied " + std::to_string(cost.crossed));
                      rank.expect(cost.written == bytes_between(name, ranks, kBytes),
                                  name + ": written " + std::to_string(cost.written));
                      rank.expect(cost.flushes > 0, name + ": nobody has flushed");
                    }
                  }
                  rank.expect(rank.explain().find("between GPUs and network cards") != std::string::npos,
                              rank.explain());
                }),
      "");
}

// The last bytes of a message may be too few for a card of their own: they are copied with the stream.
TEST_P(CardsTest, AnyLengthArrives) {
  EXPECT_EQ(
      run_world(
          hidden(GetParam()),
          [](HostRank& rank) {
            int call = 0;
            for (const uint64_t bytes : {65'535u, 65'536u, 65'537u, 65'592u, 66'560u, 66'561u, 1'048'579u}) {
              for (const Move& move : moves()) {
                ++call;
                check_move(rank, move, bytes, call, call % 2 == 0);
              }
            }
            const Traffic cost = cost_of(rank, moves()[0], kBytes + 1000, ++call, rank.stream());
            const auto ranks = static_cast<uint64_t>(rank.count());
            rank.expect(cost.crossed == 2 * ranks * 1000, std::to_string(cost.crossed));
          }),
      "");
}

// Reductions pass through host memory, beside the calls that do not.
TEST_P(CardsTest, ReductionsStayRight) {
  EXPECT_EQ(run_world(hidden(GetParam()),
                      [](HostRank& rank) {
                        for (int call = 0; call < 6; ++call) {
                          auto* const buffer = rank.allocate(kBytes, 1);
                          rank.expect_ok(rank.api.all_reduce(buffer, buffer, kBytes, TUTTI_UINT8, TUTTI_SUM,
                                                             rank.comm, rank.stream()),
                                         "all_reduce");
                          rank.synchronize();
                          const auto sum = rank.read(buffer, kBytes);
                          rank.expect(std::ranges::all_of(
                                          sum, [&](unsigned char one) { return one == rank.count(); }),
                                      "the sum");
                          check_move(rank, moves()[static_cast<size_t>(call)], kBytes, call, true);
                        }
                      }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, CardsTest, testing::Values(2, 3));

// Goal: ranks of one host go on through its memory, beside the cards that join them to other hosts.
TEST(CardsOfHostsTest, RanksShareHosts) {
  WorldOptions options = hidden(4);
  options.ranks_per_host = 2;
  EXPECT_EQ(run_world(options,
                      [](HostRank& rank) {
                        int call = 0;
                        for (const Move& move : moves()) {
                          for (const bool on_stream : {false, true})
                            check_move(rank, move, kBytes, ++call, on_stream);
                        }
                        rank.meet();
                        rank.expect(fake_verbs::seen().dmabuf_written > 0, "nothing came by card");
                      }),
            "");
}

TEST(CardBuffersTest, AnAllToAllInPlaceSendsWhatWasThereBefore) {
  EXPECT_EQ(run_world(hidden(2),
                      [](HostRank& rank) {
                        auto* const buffer = rank.allocate(2 * kBytes);
                        for (int to = 0; to < 2; ++to)
                          rank.write(buffer + static_cast<uint64_t>(to) * kBytes,
                                     bytes_of(1, rank.rank(), to, kBytes));
                        rank.expect_ok(rank.api.all_to_all(buffer, buffer, kBytes, TUTTI_UINT8, rank.comm,
                                                           rank.stream()),
                                       "all_to_all");
                        rank.synchronize();
                        for (int from = 0; from < 2; ++from)
                          rank.expect(rank.read(buffer + static_cast<uint64_t>(from) * kBytes, kBytes) ==
                                          bytes_of(1, from, rank.rank(), kBytes),
                                      "block " + std::to_string(from));
                      }),
            "");
}

// Goal: memory that is freed and taken again is not reached through the old registration. Method: buffers
// that are freed and allocated, at the same address where the driver gives it again.
TEST(CardBuffersTest, MemoryThatIsTakenAgainIsRegisteredAgain) {
  EXPECT_EQ(
      run_world(
          hidden(2),
          [](HostRank& rank) {
            bool came_again = false;
            std::byte* last = nullptr;
            for (int turn = 0; turn < 20; ++turn) {
              auto* const buffer = rank.allocate(kBytes);
              came_again = came_again || buffer == last;
              if (rank.rank() == 0) {
                rank.write(buffer, bytes_of(turn, 0, 1, kBytes));
                rank.expect_ok(rank.api.send(buffer, kBytes, TUTTI_UINT8, 1, 0, rank.comm, TUTTI_BLOCKING),
                               "send");
              } else {
                rank.expect_ok(rank.api.recv(buffer, kBytes, TUTTI_UINT8, 0, 0, rank.comm, TUTTI_BLOCKING),
                               "recv");
                rank.expect(rank.read(buffer, kBytes) == bytes_of(turn, 0, 1, kBytes),
                            "turn " + std::to_string(turn));
              }
              last = buffer;
              rank.free(buffer);
            }
            rank.expect(came_again || !kAddressesComeAgain, "no address came again: the test shows nothing");
          }),
      "");
}

TEST(CardBuffersTest, RegistrationsAreBounded) {
  EXPECT_EQ(run_world(hidden(2),
                      [](HostRank& rank) {
                        constexpr int kTurns = 100;
                        constexpr uint64_t kMostOfBoth = 2 * 2 * 65;  // ranks, devices
                        for (int turn = 0; turn < kTurns; ++turn)
                          check_move(rank, moves()[0], 1 << 16, turn, turn % 2 == 0);
                        const fake_verbs::Seen seen = fake_verbs::seen();
                        rank.expect(seen.dmabuf_registrations > kMostOfBoth, "the test shows nothing");
                        rank.expect(seen.dmabuf_regions <= kMostOfBoth, std::to_string(seen.dmabuf_regions));
                      }),
            "");
}

TEST(CardGraphTest, ACapturedMoveRunsAtEachLaunch) {
  EXPECT_EQ(
      run_world(
          hidden(2),
          [](HostRank& rank) {
            const cuda::Driver& driver = rank.context().driver();
            auto* const send = rank.allocate(kBytes);
            auto* const recv = rank.allocate(2 * kBytes);
            const auto stream = static_cast<CUstream>(rank.stream().handle);
            CUgraph graph = nullptr;
            CUgraphExec launchable = nullptr;
            const cuda::CurrentContext current(rank.context());
            rank.expect(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS,
                        "begin");
            rank.expect_ok(rank.api.all_gather(send, recv, kBytes, TUTTI_UINT8, rank.comm, rank.stream()),
                           "all_gather");
            rank.expect(driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS, "end");
            rank.expect(driver.graph_instantiate(&launchable, graph, 0) == CUDA_SUCCESS, "instantiate");
            for (int turn = 0; turn < 5; ++turn) {
              rank.write(send, bytes_of(turn, rank.rank(), 0, kBytes));
              rank.expect(driver.graph_launch(launchable, stream) == CUDA_SUCCESS, "launch");
              rank.synchronize();
              for (int from = 0; from < 2; ++from)
                rank.expect(rank.read(recv + static_cast<uint64_t>(from) * kBytes, kBytes) ==
                                bytes_of(turn, from, 0, kBytes),
                            "turn " + std::to_string(turn));
            }
            rank.expect(fake_verbs::seen().dmabuf_written > 0, "nothing came by card");
            (void)driver.graph_exec_destroy(launchable);
            (void)driver.graph_destroy(graph);
          }),
      "");
}

}  // namespace
}  // namespace tutti::test
