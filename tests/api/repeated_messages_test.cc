// Short messages that repeat their direction's last operation, among messages that do not.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr int kTag = 3;

/// Sends `data` to the peer and expects it back.
void exchange(Rank& rank, int peer, const std::vector<uint8_t>& data) {
  std::vector<uint8_t> got(data.size());
  rank.expect_ok(tutti_send(data.data(), data.size(), TUTTI_UINT8, peer, kTag, rank.comm, TUTTI_BLOCKING),
                 "send");
  rank.expect_ok(tutti_recv(got.data(), got.size(), TUTTI_UINT8, peer, kTag, rank.comm, TUTTI_BLOCKING),
                 "recv");
  rank.expect_true(got == data, std::to_string(data.size()) + " bytes come back");
}

void echo(Rank& rank, int peer, size_t bytes, bool from_any) {
  std::vector<uint8_t> data(bytes);
  int source = peer;
  rank.expect_ok(from_any
                     ? tutti_recv_any(data.data(), bytes, TUTTI_UINT8, kTag, &source, rank.comm)
                     : tutti_recv(data.data(), bytes, TUTTI_UINT8, peer, kTag, rank.comm, TUTTI_BLOCKING),
                 "recv");
  rank.expect_true(source == peer, "the sender");
  rank.expect_ok(tutti_send(data.data(), bytes, TUTTI_UINT8, peer, kTag, rank.comm, TUTTI_BLOCKING), "send");
}

/// All ranks to their neighbours, in a group, once no rank receives from any.
void pass_around(Rank& rank) {
  rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
  const int next = (rank.rank() + 1) % rank.count();
  const int previous = (rank.rank() + rank.count() - 1) % rank.count();
  const auto own = static_cast<uint8_t>(rank.rank());
  uint8_t got = 255;
  rank.expect_ok(tutti_group_start(), "group_start");
  rank.expect_ok(tutti_send(&own, 1, TUTTI_UINT8, next, kTag, rank.comm, TUTTI_BLOCKING), "send");
  rank.expect_ok(tutti_recv(&got, 1, TUTTI_UINT8, previous, kTag, rank.comm, TUTTI_BLOCKING), "recv");
  rank.expect_ok(tutti_group_end(), "group_end");
  rank.expect_true(got == previous, "the neighbour's number");
}

class RepeatedMessagesTest : public testing::TestWithParam<Arrangement> {};

// Goal: whatever came before, a short message arrives whole, in its order.
// Method: rank 0 exchanges messages with each other rank in turn, short ones, long ones, empty ones; with
// more peers than a rank keeps operations for; a group and a receive from any rank in between.
TEST_P(RepeatedMessagesTest, ComeAmongOthers) {
  const auto body = [](Rank& rank) {
    for (int round = 0; round < 3; ++round) {
      for (int peer = 1; peer < rank.count(); ++peer) {
        for (const size_t bytes : {8, 8, 60, 0, 1000, 8, 4096, 100'000, 8}) {
          if (rank.rank() == 0) {
            std::vector<uint8_t> data(bytes);
            for (size_t i = 0; i < bytes; ++i)
              data[i] = static_cast<uint8_t>(i + bytes + 31 * static_cast<size_t>(peer));
            exchange(rank, peer, data);
          } else if (rank.rank() == peer) {
            echo(rank, 0, bytes, round == 1);
          }
        }
      }
      pass_around(rank);
    }
  };
  EXPECT_EQ(run_cluster(GetParam().options(), body), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, RepeatedMessagesTest,
                         testing::Values(Arrangement{threads(12)}, Arrangement{processes(2)},
                                         Arrangement{mixed(4), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

// Goal: repeated sends wait for a full ring, and repeated receives find each message in its buffer. Method:
// more messages than a ring has cells, each from and to another place.
TEST(RepeatedSendTest, AFullRingIsWaitedFor) {
  const auto body = [](Rank& rank) {
    std::vector<uint64_t> words(1000, 0);
    for (size_t i = 0; i < words.size(); ++i) {
      if (rank.rank() == 0) {
        words[i] = i + 1;
        rank.expect_ok(tutti_send(&words[i], 1, TUTTI_UINT64, 1, kTag, rank.comm, TUTTI_BLOCKING), "send");
      } else {
        rank.expect_ok(tutti_recv(&words[i], 1, TUTTI_UINT64, 0, kTag, rank.comm, TUTTI_BLOCKING), "recv");
        rank.expect_true(words[i] == i + 1, "message " + std::to_string(i));
      }
    }
  };
  for (const auto& layout : {threads(2), processes(2)})
    EXPECT_EQ(run_cluster(Arrangement{layout}.options(), body), "");
}

// Goal: a repeated receive whose message has another tag, count or type is an error, not a wrong result.
TEST(RepeatedReceiveTest, AnotherMessageIsNoticed) {
  for (const int wrong : {0, 1, 2}) {
    ClusterOptions options;
    options.create = false;
    const auto body = [wrong](Rank& rank) {
      if (!rank.renew()) return;
      double words[2] = {};
      for (int i = 0; i < 4; ++i) {
        const bool differs = i == 3 && rank.rank() == 0;
        const int tag = differs && wrong == 0 ? kTag + 1 : kTag;
        const size_t count = differs && wrong == 1 ? 2 : 1;
        const tutti_type_t type = differs && wrong == 2 ? TUTTI_UINT64 : TUTTI_FLOAT64;
        const tutti_result_t result = rank.rank() == 0
                                          ? tutti_send(words, count, type, 1, tag, rank.comm, TUTTI_BLOCKING)
                                          : tutti_recv(words, count, type, 0, tag, rank.comm, TUTTI_BLOCKING);
        if (i < 3) rank.expect_ok(result, "a message like the last one");
        if (i == 3 && rank.rank() == 1) rank.expect(result, TUTTI_MISMATCH, "another message");
      }
      // The sender did not wait for its reader.
      rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_MISMATCH, "barrier");
      rank.meet();
      (void)tutti_comm_destroy(rank.comm);
      rank.comm = nullptr;
    };
    EXPECT_EQ(run_cluster(options, body), "") << wrong;
  }
}

// Goal: a repeated receive whose message does not come ends at its deadline, and names what it waits for.
TEST(RepeatedReceiveTest, ADeadlineEndsTheWait) {
  ClusterOptions options;
  options.create = false;
  const auto body = [](Rank& rank) {
    if (!rank.renew()) return;
    uint64_t word = 1;
    const auto receive = [&] {
      return tutti_recv(&word, 1, TUTTI_UINT64, 1, kTag, rank.comm, TUTTI_BLOCKING);
    };
    if (rank.rank() == 0) {
      for (int i = 0; i < 2; ++i) rank.expect_ok(receive(), "recv");
      rank.expect_ok(tutti_comm_set_timeout(rank.comm, 100), "set_timeout");
      rank.expect(receive(), TUTTI_TIMEOUT, "a message that nobody sends");
      rank.expect_text({"rank 0", "rank 1"}, "recv");
    } else {
      for (int i = 0; i < 2; ++i)
        rank.expect_ok(tutti_send(&word, 1, TUTTI_UINT64, 0, kTag, rank.comm, TUTTI_BLOCKING), "send");
      rank.expect(tutti_recv(&word, 1, TUTTI_UINT64, 0, kTag, rank.comm, TUTTI_BLOCKING), TUTTI_TIMEOUT,
                  "the other rank hears of it");
    }
    (void)tutti_comm_destroy(rank.comm);
    rank.comm = nullptr;
  };
  EXPECT_EQ(run_cluster(options, body), "");
}

}  // namespace
}  // namespace tutti::test
