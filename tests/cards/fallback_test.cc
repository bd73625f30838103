// Goal: where a card cannot reach a GPU's memory, calls pass through host memory and the rank says why; where
// a path fails in the middle, nothing is lost and nothing hangs. Method: as cards_test.cc, with refusals and
// faults of the fake driver and of the fake RDMA devices.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "core/clock.h"
#include "tests/cards/hosts.h"
#include "tests/cards/moves.h"
#include "tests/cuda/driver/control.h"
#include "tests/rdma/provider/control.h"

namespace tutti::test {
namespace {

constexpr uint64_t kBytes = 1 << 18;
const Variables kHidden = {{"FAKE_CUDA_HIDDEN", "1"}};

Variables hidden_and(Variables more) {
  more.insert(more.end(), kHidden.begin(), kHidden.end());
  return more;
}

/// Makes every move, and a reduction for explain().
void check_all(HostRank& rank) {
  int call = 0;
  for (const Move& move : moves()) {
    ++call;
    check_move(rank, move, kBytes, call, call % 2 == 0);
  }
  auto* const buffer = rank.allocate(kBytes);
  rank.expect_ok(
      rank.api.all_reduce(buffer, buffer, kBytes, TUTTI_UINT8, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
      "all_reduce");
}

struct Refusal {
  const char* name;
  Variables environment;
  int dmabuf_error;
  const char* reason;  ///< part of what explain() says
};

class RefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, CallsPassThroughHostMemoryAndSayWhy) {
  const Refusal& refusal = GetParam();
  WorldOptions options{.environment = hidden_and(refusal.environment)};
  options.dmabuf_error = refusal.dmabuf_error;
  EXPECT_EQ(run_world(options,
                      [&refusal](HostRank& rank) {
                        check_all(rank);
                        const std::string text = rank.explain();
                        rank.expect(text.find(refusal.reason) != std::string::npos, text);
                        rank.expect(fake_verbs::seen().dmabuf_written == 0, "a card has written");
                      }),
            "");
}

const Refusal kRefusals[] = {
    {"no dma-buf", {{"FAKE_CUDA_DMA_BUF", "0"}}, 0, "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0"},
    {"no export",
     {{"FAKE_CUDA_FAIL", "cuMemGetHandleForAddressRange:1:801"}},
     0,
     "rank 0: cuMemGetHandleForAddressRange"},
    {"card cannot", {}, EOPNOTSUPP, "of the GPU's memory on fake0: the card's driver cannot"},
    {"no room", {}, ENOMEM, "no room in the GPU's window"},
    {"no rights", {}, EPERM, "ibv_reg_dmabuf_mr of 2097152 bytes"},
    {"off", {{"TUTTI_GPU_DIRECT", "0"}}, 0, "TUTTI_GPU_DIRECT"},
    {"off for NCCL", {{"NCCL_NET_GDR_LEVEL", "LOC"}}, 0, "NCCL_NET_GDR_LEVEL"},
    {"off for NCCL by file", {{"NCCL_DMABUF_ENABLE", "0"}}, 0, "NCCL_DMABUF_ENABLE"},
    {"one queue", {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}, 0, "CUDA_DEVICE_MAX_CONNECTIONS is 1"},
    {"TCP", {{"TUTTI_TRANSPORT", "tcp"}}, 0, "only RDMA reaches the memory of GPUs"},
};
INSTANTIATE_TEST_SUITE_P(All, RefusalTest, testing::ValuesIn(kRefusals),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

TEST(FallbackTest, OneRankThatCannotStopsAll) {
  WorldOptions options{.ranks = 3, .environment = kHidden, .odd_host = 1};
  options.odd_environment = {{"TUTTI_GPU_DIRECT", "0"}};
  EXPECT_EQ(run_world(options,
                      [](HostRank& rank) {
                        check_all(rank);
                        rank.expect(rank.explain().find("no GPUDirect (rank 1: TUTTI_GPU_DIRECT") !=
                                        std::string::npos,
                                    rank.explain());
                        rank.expect(fake_verbs::seen().dmabuf_written == 0, "a card has written");
                      }),
            "");
}

TEST(FallbackTest, ARankInHostMemoryStopsAll) {
  WorldOptions options{.ranks = 2, .environment = kHidden};
  options.host_rank = 1;
  EXPECT_EQ(run_world(options,
                      [](HostRank& rank) {
                        check_all(rank);
                        rank.expect(
                            !rank.is_on_device() ||
                                rank.explain().find("rank 1: it is in host memory") != std::string::npos,
                            rank.explain());
                      }),
            "");
}

// Goal: a buffer that cannot be registered is each rank's own affair. Method: the cards refuse after the
// communicator has come to be: new buffers, and not those that are known. In host memory, cards take slots
// and the heap, or slots only, or nothing: then the receiver tells "into slots".
class RefusedBufferTest : public testing::TestWithParam<const char*> {};

TEST_P(RefusedBufferTest, PassesThroughHostMemory) {
  EXPECT_EQ(
      run_world(
          {.ranks = 2, .environment = hidden_and({{"TUTTI_IB_PINNED_BYTES", GetParam()}})},
          [](HostRank& rank) {
            const Library& api = rank.api;
            auto* const known = rank.allocate(kBytes);
            const auto exchange = [&](std::byte* send, std::byte* recv, int call) {
              rank.write(send, bytes_of(call, rank.rank(), 0, kBytes));
              rank.expect_ok(api.group_start(), "start");
              rank.expect_ok(
                  api.send(send, kBytes, TUTTI_UINT8, 1 - rank.rank(), 0, rank.comm, rank.stream()), "send");
              rank.expect_ok(
                  api.recv(recv, kBytes, TUTTI_UINT8, 1 - rank.rank(), 0, rank.comm, rank.stream()), "recv");
              rank.expect_ok(api.group_end(), "end");
              rank.synchronize();
              rank.expect(rank.read(recv, kBytes) == bytes_of(call, 1 - rank.rank(), 0, kBytes),
                          "call " + std::to_string(call));
            };
            auto* const also_known = rank.allocate(kBytes);
            exchange(known, also_known, 0);
            rank.meet();
            fake_verbs::set_dmabuf_error(ENOMEM);
            rank.meet();
            auto* const fresh = rank.allocate(kBytes);
            // Refused to known, known to refused, and refused to refused.
            exchange(rank.rank() == 0 ? fresh : known, also_known, 1);
            exchange(known, rank.rank() == 0 ? fresh : also_known, 2);
            exchange(fresh, rank.allocate(kBytes), 3);
          }),
      "");
}

INSTANTIATE_TEST_SUITE_P(PinnedBytes, RefusedBufferTest, testing::Values("1073741824", "8388608", "0"));

/// Takes a port down and up while calls are made.
class Disturbance {
 public:
  explicit Disturbance(uint64_t seed) : thread_([this, seed] { run(seed); }) {}
  ~Disturbance() {
    ends_ = true;
    thread_.join();
    for (const uint32_t device : {0u, 1u}) fake_verbs::set_port(device, true);
  }

 private:
  /// Waits for traffic, not for time.
  void run(uint64_t seed) {
    uint64_t turn = seed;
    while (!ends_) {
      const uint64_t written = fake_verbs::seen().writes;
      while (!ends_ && fake_verbs::seen().writes < written + 5 + turn % 20) std::this_thread::yield();
      fake_verbs::set_port(static_cast<uint32_t>(turn % 2), turn / 2 % 2 == 0);
      if (turn % 3 == 0) fake_verbs::set_port(static_cast<uint32_t>(1 - turn % 2), turn / 2 % 2 == 0);
      turn = turn * 6364136223846793005ull % 1'000'003;
    }
  }

  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

class FailoverTest : public testing::TestWithParam<uint64_t> {};

// Ports go down and up in the middle of messages, one or both: what is under way comes as bytes, over another
// rail or over TCP, copied by the driver.
TEST_P(FailoverTest, APortThatComesAndGoesLosesNothing) {
  const uint64_t seed = GetParam();
  WorldOptions options{.ranks = 2, .environment = kHidden, .seed = seed};
  EXPECT_EQ(run_world(options,
                      [seed](HostRank& rank) {
                        std::unique_ptr<Disturbance> disturbance;
                        if (rank.rank() == 0) disturbance = std::make_unique<Disturbance>(seed);
                        for (int call = 0; call < 12; ++call) {
                          const Move& move = moves()[(static_cast<size_t>(call) + seed) % moves().size()];
                          check_move(rank, move, 3 * kBytes + 777, call, call % 2 == 0);
                        }
                        rank.meet();
                      }),
            "");
}

TEST_P(FailoverTest, RequestsThatFailLoseNothing) {
  WorldOptions options{.ranks = 2, .environment = kHidden, .seed = GetParam()};
  EXPECT_EQ(run_world(options,
                      [](HostRank& rank) {
                        rank.meet();
                        for (const uint32_t device : {0u, 1u})
                          fake_verbs::fail_sometimes(device, 60, IBV_WC_RETRY_EXC_ERR);
                        for (int call = 0; call < 6; ++call)
                          check_move(rank, moves()[static_cast<size_t>(call)], 2 * kBytes, call,
                                     call % 2 == 0);
                        rank.meet();
                        for (const uint32_t device : {0u, 1u}) fake_verbs::fail_sometimes(device, 0, 0);
                      }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, FailoverTest, testing::Range(uint64_t{1}, uint64_t{7}));

// Goal: after both ports have come back, messages go by card again.
TEST(FallbackTest, CardsAreUsedAgainAfterAFailure) {
  EXPECT_EQ(run_world({.ranks = 2, .environment = kHidden},
                      [](HostRank& rank) {
                        rank.meet();
                        if (rank.rank() == 0) {
                          for (const uint32_t device : {0u, 1u}) fake_verbs::set_port(device, false);
                        }
                        rank.meet();
                        check_move(rank, moves()[0], kBytes, 1, true);
                        rank.meet();
                        rank.expect(fake_verbs::seen().dmabuf_written == 0, "a card has written");
                        if (rank.rank() == 0) {
                          for (const uint32_t device : {0u, 1u}) fake_verbs::set_port(device, true);
                        }
                        rank.meet();
                        // The traffic returns while calls are made.
                        const uint64_t deadline_ns = deadline_after_ms(60'000);
                        bool is_back = false;
                        for (int call = 2; !is_back; ++call) {
                          check_move(rank, moves()[0], kBytes, call, true);
                          rank.meet();
                          is_back = fake_verbs::seen().dmabuf_written > 0;
                          if (!rank.expect(now_ns() < deadline_ns, "the traffic has not returned")) break;
                          rank.meet();
                        }
                      }),
            "");
}

// Goal: a copy that stands behind the stream that waits for it ends the call, and the stream goes on. Method:
// no port is up, so the driver copies; a device of two queues, over which the driver deals the streams, and
// calls on two streams of the user's: one shares the queue of the copies.
TEST(FallbackTest, ACopyBehindItsOwnStreamEndsTheCall) {
  std::mutex making_streams;
  EXPECT_EQ(run_world({.ranks = 2, .environment = hidden_and({{"CUDA_DEVICE_MAX_CONNECTIONS", "2"}})},
                      [&](HostRank& rank) {
                        rank.meet();
                        if (rank.rank() == 0) {
                          for (const uint32_t device : {0u, 1u}) fake_verbs::set_port(device, false);
                        }
                        rank.meet();
                        auto* const buffer = rank.allocate(kBytes);
                        // One after the other, so that they have different queues: a stream of the peer
                        // between them would put both on one, and the copies could have the other one.
                        std::unique_lock lock(making_streams);
                        auto one = cuda::Stream::create(rank.context());
                        auto other = cuda::Stream::create(rank.context());
                        lock.unlock();
                        rank.meet();
                        if (!rank.expect(one.is_ok() && other.is_ok(), "stream")) return;
                        const int peer = 1 - rank.rank();
                        for (const CUstream handle : {one->handle(), other->handle()}) {
                          const tutti_stream_t stream = tutti_stream_cuda(handle);
                          if (rank.rank() == 0) {
                            (void)rank.api.send(buffer, kBytes, TUTTI_UINT8, peer, 0, rank.comm, stream);
                          } else {
                            (void)rank.api.recv(buffer, kBytes, TUTTI_UINT8, peer, 0, rank.comm, stream);
                          }
                          rank.expect(rank.context().driver().stream_synchronize(
                                          static_cast<CUstream>(stream.handle)) == CUDA_SUCCESS,
                                      "the stream has failed");
                        }
                        const tutti_result_t later = rank.api.all_reduce(
                            buffer, buffer, 1, TUTTI_UINT8, TUTTI_SUM, rank.comm, TUTTI_BLOCKING);
                        rank.expect(later == TUTTI_TIMEOUT, "no error");
                        const std::string text = rank.api.last_error();
                        rank.expect(
                            text.find("the device has fewer queues than streams") != std::string::npos, text);
                        rank.meet();
                        rank.expect_ok(rank.api.comm_abort(rank.comm), "abort");
                        rank.comm = nullptr;
                      }),
            "");
}

/// Runs a call of rank 0 that rank 1 never answers; what failed.
template <class Call>
std::string run_unanswered(const Call& call) {
  WorldOptions options{.ranks = 2, .environment = kHidden};
  options.timeout_ms = 1000;
  return run_world(options, [&](HostRank& rank) {
    auto* const buffer = rank.allocate(kBytes);
    if (rank.rank() == 0) call(rank, buffer);
    rank.meet();
    rank.expect_ok(rank.api.comm_abort(rank.comm), "abort");
    rank.comm = nullptr;
  });
}

// Goal: a message without its other end ends at the deadline, and the device memory is free again.
TEST(FallbackTest, ASendWithoutItsReceiveEndsAtTheDeadline) {
  EXPECT_EQ(run_unanswered([](HostRank& rank, auto* buffer) {
              const auto sent = rank.api.send(buffer, kBytes, TUTTI_UINT8, 1, 0, rank.comm, TUTTI_BLOCKING);
              rank.expect(sent == TUTTI_TIMEOUT, rank.api.last_error());
            }),
            "");
}

TEST(FallbackTest, AReceiveWithoutItsSendEndsAtTheDeadline) {
  EXPECT_EQ(run_unanswered([](HostRank& rank, auto* buffer) {
              rank.expect_ok(rank.api.recv(buffer, kBytes, TUTTI_UINT8, 1, 0, rank.comm, rank.stream()),
                             "recv");
              rank.synchronize();
            }),
            "");
}

}  // namespace
}  // namespace tutti::test
