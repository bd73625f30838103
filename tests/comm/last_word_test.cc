// Goal: when a rank dies while it sends or passes on a bootstrap's last message, so that only some ranks get
// it, all ranks still come to one result or learn of the loss.
//
// All messages of this executable pass through sendmsg() below, which can end the process instead, and
// through recv(), which can fail.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/blobs.h"
#include "net/frame.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

/// How many last words this process still sends, before the next one kills it; negative: all.
std::atomic<int> last_words_left{-1};

/// Whether this process fails, for want of memory, at the next last word of a server that it is sent.
std::atomic<bool> fails_at_last_word{false};

/// What this thread has received last: the header of a frame comes before its body.
thread_local std::vector<std::byte> received;

std::vector<std::byte> bytes_of(const msghdr& message) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* start = static_cast<const std::byte*>(message.msg_iov[i].iov_base);
    bytes.insert(bytes.end(), start, start + message.msg_iov[i].iov_len);
  }
  return bytes;
}

/// Whether it tells a rank, in the star or down the tree, that all are ready: the exchange in which all ranks
/// say the same digest.
bool is_last_word(std::span<const std::byte> bytes) {
  constexpr size_t kMostBytes = 4096;
  std::vector<Frame> frames;
  const Status cut = FrameReader(kMostBytes).feed(bytes, frames);
  if (!cut || frames.size() != 1 || frames[0].header.kind != FrameKind::kDown) return false;
  const auto blobs = unpack_blobs(frames[0].body, frames[0].header.count);
  return blobs && !blobs->empty() && std::ranges::all_of(*blobs, [&](const auto& blob) {
           return blob.size() == sizeof(uint64_t) && blob == blobs->front();
         });
}

}  // namespace
}  // namespace tutti::test

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  using namespace tutti::test;
  if (last_words_left.load() >= 0 && is_last_word(bytes_of(*message)) && last_words_left.fetch_sub(1) == 0) {
    kill(getpid(), SIGKILL);
  }
  // Under a sanitizer the next one is the sanitizer's.
  static const auto kNext =
      reinterpret_cast<ssize_t (*)(int, const msghdr*, int)>(dlsym(RTLD_NEXT, "sendmsg"));
  return kNext(fd, message, flags);
}

extern "C" ssize_t recv(int fd, void* buffer, size_t size, int flags) {
  using namespace tutti::test;
  static const auto kNext = reinterpret_cast<ssize_t (*)(int, void*, size_t, int)>(dlsym(RTLD_NEXT, "recv"));
  const ssize_t got = kNext(fd, buffer, size, flags);
  if (got <= 0 || !fails_at_last_word.load()) return got;
  const auto* start = static_cast<const std::byte*>(buffer);
  std::vector<std::byte> frame = std::exchange(received, {start, start + got});
  frame.insert(frame.end(), start, start + got);
  if (!is_last_word(frame) || !fails_at_last_word.exchange(false)) return got;
  errno = ENOMEM;
  return -1;
}

namespace tutti::test {
namespace {

/// Sums 1 + the rank's number in the cluster.
tutti_result_t sum_of(Rank& rank, double& sum) {
  sum = 1.0 + rank.rank();
  return tutti_all_reduce(&sum, &sum, 1, TUTTI_FLOAT64, TUTTI_SUM, rank.comm, TUTTI_BLOCKING);
}

struct LastWordCase {
  const char* name;
  std::vector<int> hosts;  ///< of four ranks
  int victim;              ///< 0 serves the bootstrap; of several hosts, 2 hands on to 3
  int words;               ///< that it sends before it dies
};
void PrintTo(const LastWordCase& test, std::ostream* out) {
  *out << test.name;
}

class LastWordTest : public testing::TestWithParam<LastWordCase> {};

// Goal: survivors of a shrink end in one communicator, and soon, though some had the last word of the
// bootstrap that was broken off and others not. Method: each gives the old one up as soon as it has a new
// one. Where all had it, the new one has a dead member, and they shrink once more.
TEST_P(LastWordTest, SurvivorsEndInOneCommunicator) {
  const int victim = GetParam().victim;
  ClusterOptions options;
  options.layout = processes(4);
  options.hosts = GetParam().hosts;
  options.lost_processes = {victim};
  EXPECT_EQ(run_cluster(options,
                        [&](Rank& rank) {
                          double sum = 0;
                          rank.expect_ok(sum_of(rank, sum), "before");
                          rank.meet();
                          if (rank.rank() == victim) last_words_left = GetParam().words;
                          const double start = seconds_now();
                          tutti_result_t result = TUTTI_PEER_LOST;
                          for (int round = 0; round < 2 && result == TUTTI_PEER_LOST; ++round) {
                            tutti_comm_t* next = nullptr;
                            result = tutti_comm_shrink(rank.comm, nullptr, 0, 0, &next, nullptr);
                            if (!rank.expect_ok(result, "shrink")) return;
                            rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy of the old one");
                            rank.comm = next;
                            result = sum_of(rank, sum);
                          }
                          rank.expect_ok(result, "a sum in the new one");
                          rank.expect_true(sum == 10.0 - (1 + victim), "the sum is " + std::to_string(sum));
                          rank.expect_true(seconds_now() - start < patience_s(5), "that took long");
                        }),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LastWordTest,
    testing::Values(LastWordCase{"hub_tells_nobody", {}, 0, 0}, LastWordCase{"hub_tells_itself", {}, 0, 1},
                    LastWordCase{"hub_tells_rank_1", {}, 0, 2}, LastWordCase{"hub_tells_all_but_3", {}, 0, 3},
                    LastWordCase{"root_tells_nobody", {0, 0, 1, 1}, 0, 0},
                    LastWordCase{"root_tells_rank_1", {0, 0, 1, 1}, 0, 1},
                    LastWordCase{"root_tells_rank_1_of_4_hosts", {0, 1, 2, 3}, 0, 1},
                    LastWordCase{"rank_2_does_not_hand_on", {0, 0, 1, 1}, 2, 0},
                    LastWordCase{"rank_2_of_4_hosts_does_not_hand_on", {0, 1, 2, 3}, 2, 0}),
    [](const auto& test) { return std::string(test.param.name); });

// Goal: ranks that have a communicator which one that lives could not set up do not wait for it in the
// shrink, and can shrink again. Method: memory is short where that rank hears the last word, which all others
// have.
TEST(LastWordTest, ARankThatLivesAndFailsIsNotWaitedFor) {
  ClusterOptions options;
  options.layout = processes(4);
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const double start = seconds_now();
                          fails_at_last_word = rank.rank() == 2;
                          tutti_comm_t* next = nullptr;
                          rank.expect(tutti_comm_shrink(rank.comm, nullptr, 0, 0, &next, nullptr),
                                      rank.rank() == 2 ? TUTTI_OUT_OF_MEMORY : TUTTI_SYSTEM_ERROR, "shrink");
                          rank.expect_true(next == nullptr, "a failed shrink left a communicator");
                          if (rank.rank() != 2) rank.expect_text({"rank", "has given up"}, "shrink");
                          rank.meet();
                          if (!rank.expect_ok(tutti_comm_shrink(rank.comm, nullptr, 0, 0, &next, nullptr),
                                              "shrink once more"))
                            return;
                          rank.expect_ok(tutti_barrier(next, TUTTI_BLOCKING), "in the new one");
                          rank.expect_true(seconds_now() - start < patience_s(10), "that took long");
                          rank.expect_ok(tutti_comm_destroy(next), "destroy of the new one");
                        }),
            "");
}

/// Four processes, of which the last one is no rank of what the others make: it makes the id, serves the
/// meeting and dies when it has told rank 0 alone.
ClusterOptions cluster_with_a_host() {
  ClusterOptions options;
  options.layout = processes(4);
  options.create = false;
  options.lost_processes = {3};
  return options;
}

/// The id; does not return in the process that serves.
tutti_unique_id_t id_of_the_host(Rank& rank) {
  tutti_unique_id_t id{};
  if (rank.rank() == 3) {
    rank.expect_ok(tutti_get_unique_id(&id), "id");
    std::memcpy(rank.shared_bytes(), &id, sizeof(id));
    last_words_left = 1;
  }
  rank.meet();
  if (rank.rank() == 3) {
    for (;;) pause();
  }
  std::memcpy(&id, rank.shared_bytes(), sizeof(id));
  return id;
}

// Goal: where one rank has a communicator and the others have none, its first call reports the loss. The
// call does not wait for its deadline.
TEST(LastWordTest, ARankThatAloneHasACommunicatorLearnsOfTheLoss) {
  EXPECT_EQ(run_cluster(cluster_with_a_host(),
                        [](Rank& rank) {
                          const tutti_unique_id_t id = id_of_the_host(rank);
                          const double start = seconds_now();
                          tutti_result_t result = tutti_comm_create(&rank.comm, 3, id, rank.rank(), nullptr);
                          rank.expect_true((result == TUTTI_SUCCESS) == (rank.rank() == 0), "who has it");
                          if (result == TUTTI_SUCCESS) result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
                          rank.expect(result, TUTTI_PEER_LOST, "set-up or first call");
                          rank.expect_true(seconds_now() - start < patience_s(5), "that took long");
                          // That another has left would be report, too.
                          rank.add(0);
                          rank.wait_value(0, 3);
                        }),
            "");
}

/// A grow to 3 ranks fails, soon, for want of a rank.
void expect_no_growth(Rank& rank, const tutti_unique_id_t& id, int number) {
  const double start = seconds_now();
  tutti_comm_t* next = nullptr;
  rank.expect(tutti_comm_grow(rank.comm, 3, &id, number, &next, nullptr), TUTTI_PEER_LOST, "grow");
  rank.expect_true(next == nullptr, "a failed grow left a communicator");
  rank.expect_true(seconds_now() - start < patience_s(5), "that took long");
}

// Goal: either all ranks that were there have grown, or none; and then the one who joins is told. Method: of
// two that are there, rank 0 alone has the last word.
TEST(LastWordTest, RanksGrowTogetherOrNotAtAll) {
  EXPECT_EQ(run_cluster(cluster_with_a_host(),
                        [](Rank& rank) {
                          const bool is_old = rank.rank() < 2;
                          // The bootstrap of these has a last word, too, but process 3 does not serve it.
                          if (is_old) {
                            rank.expect_ok(tutti_comm_create(&rank.comm, 2, rank.id(), rank.rank(), nullptr),
                                           "old");
                          }
                          const tutti_unique_id_t id = id_of_the_host(rank);
                          expect_no_growth(rank, id, is_old ? -1 : 2);
                          if (is_old) rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "the old one");
                        }),
            "");
}

// Goal: the same when the one that serves the bootstrap is among those that grow. Method: rank 0 has told
// itself and rank 1, but not the one who joins, when it dies.
TEST(LastWordTest, NobodyGrowsWithoutTheRankThatDies) {
  ClusterOptions options;
  options.layout = processes(3);
  options.create = false;
  options.lost_processes = {0};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          tutti_unique_id_t id{};
                          const bool is_old = rank.rank() < 2;
                          if (is_old) {
                            rank.expect_ok(tutti_comm_create(&rank.comm, 2, rank.id(), rank.rank(), nullptr),
                                           "old");
                          }
                          if (rank.rank() == 0) {
                            rank.expect_ok(tutti_get_unique_id(&id), "id");
                            std::memcpy(rank.shared_bytes(), &id, sizeof(id));
                          }
                          rank.meet();
                          if (rank.rank() == 0) last_words_left = 2;
                          std::memcpy(&id, rank.shared_bytes(), sizeof(id));
                          expect_no_growth(rank, id, is_old ? -1 : 2);
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
