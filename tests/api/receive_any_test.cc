// tutti_recv_any: messages of several senders over every way between ranks, and what goes wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr int kTag = 7;

tutti_result_t send_to(Rank& rank, int peer, const std::vector<float>& data, int tag = kTag) {
  return tutti_send(data.data(), data.size(), TUTTI_FLOAT32, peer, tag, rank.comm, TUTTI_BLOCKING);
}

tutti_result_t receive(Rank& rank, std::vector<float>& data, int& source, int tag = kTag) {
  return tutti_recv_any(data.data(), data.size(), TUTTI_FLOAT32, tag, &source, rank.comm);
}

/// Ranks without a communicator, which a body makes with renew() and ends with end().
ClusterOptions bare(const Arrangement& arrangement) {
  ClusterOptions options = arrangement.options();
  options.create = false;
  return options;
}

void end(Rank& rank) {
  (void)tutti_comm_destroy(rank.comm);
  rank.comm = nullptr;
}

class ReceiveAnyTest : public testing::TestWithParam<Arrangement> {};

// Goal: every message comes once, whole, with its sender, in the order of that sender.
// Method: all other ranks send to rank 0 at once, messages without elements, short ones, and long ones.
TEST_P(ReceiveAnyTest, MessagesOfSeveralSendersComeInTheirOrder) {
  const auto body = [](Rank& rank) {
    constexpr int kMessages = 5;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3'000}, size_t{300'000}}) {
      std::vector<float> data(count);
      if (rank.rank() != 0) {
        for (int message = 0; message < kMessages; ++message) {
          data.assign(count, static_cast<float>(100 * rank.rank() + message));
          rank.expect_ok(send_to(rank, 0, data), "send");
        }
      } else {
        std::vector<int> seen(static_cast<size_t>(rank.count()), 0);
        for (int message = 0; message < kMessages * (rank.count() - 1); ++message) {
          int source = -1;
          if (!rank.expect_ok(receive(rank, data, source), "recv_any")) return;
          const bool is_rank = source > 0 && source < rank.count();
          if (!rank.expect_true(is_rank, "a sender")) return;
          const auto expected = static_cast<float>(100 * source + seen[static_cast<size_t>(source)]++);
          rank.expect_true(data == std::vector<float>(count, expected), "the sender's next message");
        }
        for (int source = 1; source < rank.count(); ++source)
          rank.expect_true(seen[static_cast<size_t>(source)] == kMessages, "all messages");
      }
      rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "a collective follows");
    }
  };
  EXPECT_EQ(run_cluster(GetParam().options(), body), "");
}

// Goal: a rank that sends nothing may be in a later collective before the message of another rank has come.
// Method: rank 1 exchanges blocks at once; the last rank first sends a message, once rank 0 is about to wait.
// Many rounds. Blocks of an all_to_all_v were taken for the message.
TEST_P(ReceiveAnyTest, BlocksOfALaterCollectiveAreNoMessage) {
  const auto body = [](Rank& rank) {
    const auto ranks = static_cast<size_t>(rank.count());
    if (ranks < 3) return;
    constexpr size_t kCount = 50;
    const int last = rank.count() - 1;
    const std::vector<size_t> counts(ranks, kCount);
    std::vector<float> blocks(ranks * kCount, static_cast<float>(rank.rank()));
    std::vector<float> got(ranks * kCount);
    std::vector<float> data(4, 1.0f);
    for (uint64_t round = 1; round <= 20; ++round) {
      if (rank.rank() == 0) {
        int source = -1;
        rank.add(0);
        rank.expect_ok(receive(rank, data, source), "recv_any");
        rank.expect_true(source == last, "the sender");
      } else if (rank.rank() == last) {
        rank.wait_value(0, round);
        rank.expect_ok(send_to(rank, 0, data), "send");
      }
      const auto exchanged =
          tutti_all_to_all_v(blocks.data(), counts.data(), nullptr, got.data(), counts.data(), nullptr,
                             TUTTI_FLOAT32, rank.comm, TUTTI_BLOCKING);
      if (!rank.expect_ok(exchanged, "all_to_all_v")) return;
      for (size_t from = 0; from < ranks; ++from)
        rank.expect_true(got[from * kCount] == static_cast<float>(from), "the block of a rank");
    }
  };
  EXPECT_EQ(run_cluster(GetParam().options(), body), "");
}

// Goal: a mismatched message is an error on both sides that names them.
// Method: the last rank sends with another tag.
TEST_P(ReceiveAnyTest, AnotherMessageIsAMismatch) {
  const auto body = [](Rank& rank) {
    if (!rank.renew()) return;
    std::vector<float> data(4, 1.0f);
    if (rank.rank() == 0) {
      int source = -1;
      rank.expect(receive(rank, data, source), TUTTI_MISMATCH, "recv_any");
      rank.expect_text({"rank 0", "rank " + std::to_string(rank.count() - 1), "tag"}, "recv_any");
      rank.expect_true(source == -1, "source is unchanged");
    } else {
      if (rank.rank() == rank.count() - 1) rank.expect_ok(send_to(rank, 0, data, kTag + 1), "send");
      rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_MISMATCH, "the other ranks hear of it");
    }
    end(rank);
  };
  EXPECT_EQ(run_cluster(bare(GetParam()), body), "");
}

// Goal: without a message the deadline ends the call on all ranks.
TEST_P(ReceiveAnyTest, DeadlineEndsTheWait) {
  const auto body = [](Rank& rank) {
    if (!rank.renew()) return;
    std::vector<float> data(4);
    if (rank.rank() == 0) {
      int source = -1;
      rank.expect_ok(tutti_comm_set_timeout(rank.comm, 100), "set_timeout");
      rank.expect(receive(rank, data, source), TUTTI_TIMEOUT, "recv_any");
      rank.expect_text({"no rank has sent rank 0 a message"}, "recv_any");
    } else {
      rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_TIMEOUT, "the other ranks hear of it");
    }
    end(rank);
  };
  EXPECT_EQ(run_cluster(bare(GetParam()), body), "");
}

// Goal: what ranks have sent before they left still comes; afterwards the call tells that nobody is left.
TEST_P(ReceiveAnyTest, RanksThatHaveLeftSendNoMore) {
  const auto body = [](Rank& rank) {
    if (!rank.renew()) return;
    std::vector<float> data(4, 1.0f);
    if (rank.rank() == 0) {
      int source = -1;
      for (int message = 1; message < rank.count(); ++message)
        rank.expect_ok(receive(rank, data, source), "recv_any");
      rank.expect(receive(rank, data, source), TUTTI_PEER_LOST, "recv_any of nobody");
      rank.expect_text({"all other ranks have left"}, "recv_any of nobody");
    } else {
      rank.expect_ok(send_to(rank, 0, data), "send");
    }
    end(rank);
  };
  EXPECT_EQ(run_cluster(bare(GetParam()), body), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, ReceiveAnyTest,
                         testing::Values(Arrangement{threads(2)}, Arrangement{processes(3)},
                                         Arrangement{mixed(4), 3}, Arrangement{processes(3), 1, 3},
                                         Arrangement{mixed(4), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

// Goal: ranks that have all sent take turns, so that none waits for ever.
// Method: messages of two ranks are there before the first receive.
TEST(ReceiveAnyTurnsTest, SendersTakeTurns) {
  const auto body = [](Rank& rank) {
    constexpr int kMessages = 3;
    std::vector<float> data(1);
    if (rank.rank() != 0) {
      for (int message = 0; message < kMessages; ++message) rank.expect_ok(send_to(rank, 0, data), "send");
    }
    rank.meet();
    if (rank.rank() != 0) return;
    for (int message = 0; message < 2 * kMessages; ++message) {
      int source = -1;
      rank.expect_ok(receive(rank, data, source), "recv_any");
      rank.expect_true(source == 1 + message % 2, "in turn");
    }
  };
  EXPECT_EQ(run_cluster(Arrangement{processes(3)}.options(), body), "");
}

// Goal: a sender's death ends the wait on the other ranks, and is named.
// Method: rank 1 is killed after its first message has come, while rank 0 waits for any rank.
TEST(ReceiveAnyDeathTest, KilledSenderIsNamed) {
  for (const int hosts : {1, 3}) {
    ClusterOptions options = bare(Arrangement{processes(3), 1, hosts});
    options.lost_processes = {1};
    const auto body = [](Rank& rank) {
      if (!rank.renew()) return;
      std::vector<float> data(4, 1.0f);
      int source = -1;
      if (rank.rank() == 1) rank.expect_ok(send_to(rank, 0, data), "send");
      if (rank.rank() == 0) rank.expect_ok(receive(rank, data, source), "recv_any");
      rank.meet();
      if (rank.rank() == 1) kill(getpid(), SIGKILL);
      const tutti_result_t result =
          rank.rank() == 0 ? receive(rank, data, source) : tutti_barrier(rank.comm, TUTTI_BLOCKING);
      rank.expect(result, TUTTI_PEER_LOST, "after the death");
      rank.expect_text({"rank 1"}, "after the death");
      end(rank);
    };
    EXPECT_EQ(run_cluster(options, body), "") << hosts << " hosts";
  }
}

// Goal: an abort ends the wait: another rank's, and one by another thread of the waiting rank.
TEST(ReceiveAnyAbortTest, AbortEndsTheWait) {
  for (const int aborter : {0, 1}) {
    const auto body = [aborter](Rank& rank) {
      if (!rank.renew()) return;
      std::thread abort;
      if (rank.rank() == aborter) abort = std::thread([comm = rank.comm] { (void)tutti_comm_abort(comm); });
      if (rank.rank() == 0) {
        std::vector<float> data(4);
        int source = -1;
        const tutti_result_t result = receive(rank, data, source);
        // The abort may come first, and the handle is then dead.
        rank.expect_true(result == TUTTI_ABORTED || (aborter == 0 && result == TUTTI_INVALID_USAGE), "ended");
      }
      if (abort.joinable()) abort.join();
      rank.meet();  // a rank that leaves earlier would end the wait too
      if (rank.rank() != aborter) end(rank);
      rank.comm = nullptr;
    };
    EXPECT_EQ(run_cluster(bare(Arrangement{processes(2)}), body), "") << "rank " << aborter << " aborts";
  }
}

// Goal: calls that cannot be are refused with a sentence, and the communicator goes on.
TEST(ReceiveAnyArgumentsTest, RefusedCallsChangeNothing) {
  const auto body = [](Rank& rank) {
    std::vector<float> data(4, 1.0f);
    int source = -1;
    const auto call = [&](size_t count, tutti_type_t type, int tag, int* where) {
      return tutti_recv_any(data.data(), count, type, tag, where, rank.comm);
    };
    rank.expect(call(4, TUTTI_FLOAT32, kTag, nullptr), TUTTI_INVALID_ARGUMENT, "no source");
    rank.expect_text({"source"}, "no source");
    rank.expect(call(4, TUTTI_TYPE_COUNT, kTag, &source), TUTTI_INVALID_ARGUMENT, "type");
    rank.expect(call(4, TUTTI_FLOAT32, 65536, &source), TUTTI_INVALID_ARGUMENT, "tag");
    rank.expect(call(SIZE_MAX / 2, TUTTI_FLOAT32, kTag, &source), TUTTI_INVALID_ARGUMENT, "count");
    rank.expect_ok(tutti_group_start(), "start");
    rank.expect(call(4, TUTTI_FLOAT32, kTag, &source), TUTTI_INVALID_USAGE, "in a group");
    rank.expect_text({"inside a group"}, "in a group");
    rank.expect_ok(tutti_group_end(), "the group is not spoiled");
    if (rank.count() == 1) {
      rank.expect(call(4, TUTTI_FLOAT32, kTag, &source), TUTTI_INVALID_USAGE, "alone");
      rank.expect_text({"one rank"}, "alone");
    }
    rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "the communicator goes on");
  };
  for (const int ranks : {1, 2}) EXPECT_EQ(run_cluster(Arrangement{threads(ranks)}.options(), body), "");
}

}  // namespace
}  // namespace tutti::test
