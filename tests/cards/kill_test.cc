// Goal: a rank that dies while cards write into its memory and out of it is told to its peer in time; nothing
// hangs, and no registration stays. Method: the fake network stops as it does for a process that ends, and
// all sockets between the two ranks are shut down before a thread of either rank can look.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <tuple>

#include "core/clock.h"
#include "tests/cards/hosts.h"
#include "tests/cards/moves.h"
#include "tests/rdma/provider/control.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr int kVictim = 1;
constexpr uint64_t kBytes = 3 << 18;
constexpr uint64_t kPromisedNs = 2'000'000'000;  // docs/reliability.md: a process that ended

/// All TCP connections of this process, which join its two ranks.
void cut_sockets() {
  constexpr int kDescriptors = 1024;
  for (int fd = 0; fd < kDescriptors; ++fd) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) shutdown(fd, SHUT_RDWR);
  }
}

/// Waits for traffic of the current calls, not for time.
void die_in_a_call(bool is_silent, uint64_t more_bytes) {
  const uint64_t written = fake_verbs::seen().dmabuf_written;
  while (fake_verbs::seen().dmabuf_written < written + more_bytes) std::this_thread::yield();
  fake_verbs::die(is_silent, cut_sockets);
}

/// Makes calls until one reports the fault, on both ranks.
tutti_result_t call_until_told(HostRank& rank, const Move& move, bool on_stream) {
  const Move::Buffers buffers = move.prepare(rank, kBytes, 1);
  rank.meet();
  tutti_result_t result = TUTTI_SUCCESS;
  while (result == TUTTI_SUCCESS) {
    result = move.make(rank, buffers, kBytes, on_stream ? rank.stream() : TUTTI_BLOCKING);
    if (on_stream) rank.synchronize();
  }
  return result;
}

/// Whether requests to the dead rank get no answer, else they fail; whether calls are on a stream; the move.
using Death = std::tuple<bool, bool, size_t>;
class KilledRankTest : public testing::TestWithParam<Death> {};

TEST_P(KilledRankTest, IsToldInTime) {
  const bool is_silent = std::get<0>(GetParam());
  const bool on_stream = std::get<1>(GetParam());
  const Move& move = moves()[std::get<2>(GetParam())];
  const auto limit_ns = kPromisedNs * static_cast<uint64_t>(patience_s(1));
  std::atomic<uint64_t> died_ns = UINT64_MAX;
  EXPECT_EQ(run_world({.ranks = 2, .environment = {{"FAKE_CUDA_HIDDEN", "1"}}},
                      [&](HostRank& rank) {
                        std::thread deed;
                        if (rank.rank() == kVictim) {
                          deed = std::thread([&] {
                            die_in_a_call(is_silent, 5 * kBytes / 2);
                            died_ns = now_ns();
                          });
                        }
                        const tutti_result_t told = call_until_told(rank, move, on_stream);
                        const std::string text = rank.api.last_error();
                        const uint64_t told_ns = now_ns();
                        rank.expect_ok(rank.api.comm_abort(rank.comm), "abort");
                        rank.comm = nullptr;
                        const uint64_t aborted_ns = now_ns();
                        if (deed.joinable()) deed.join();
                        rank.meet();
                        if (rank.rank() == kVictim) return;
                        rank.expect(told == TUTTI_PEER_LOST && text.find("rank 1") != std::string::npos,
                                    "told " + text);
                        rank.expect(told_ns < died_ns + limit_ns, "told late");
                        rank.expect(aborted_ns < told_ns + limit_ns, "an abort that takes long");
                      }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Deaths, KilledRankTest,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Values(0, 1, 4, 7)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param) ? "Silent" : "Failing") +
                                  (std::get<1>(one.param) ? "OnStream" : "Blocking") +
                                  std::to_string(std::get<2>(one.param));
                         });

}  // namespace
}  // namespace tutti::test
