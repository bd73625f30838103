// Ranks that make different calls: every rank gets an error that says what each did, none hangs, destroy
// works.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr size_t kElements = 70'000;
// A wait must last 20 ms before pages are compared; the rest is for a loaded machine.
constexpr double kPatienceS = 10;

/// What calls work on.
struct Memory {
  std::vector<float> send = std::vector<float>(8 * kElements, 1.0f);
  std::vector<float> recv = std::vector<float>(8 * kElements, 0.0f);
};

using Call = std::function<tutti_result_t(const Rank&, Memory&)>;

struct Mismatch {
  std::string name;
  Call most;
  Call odd;
  /// One of them must be in the text: which calls meet depends on who has gone on already.
  std::vector<std::string> texts;
};

Call all_reduce(size_t count, tutti_type_t type = TUTTI_FLOAT32, tutti_op_t op = TUTTI_SUM) {
  return [=](const Rank& r, Memory& m) {
    return tutti_all_reduce(m.send.data(), m.recv.data(), count, type, op, r.comm, TUTTI_BLOCKING);
  };
}
Call all_gather(size_t count) {
  return [=](const Rank& r, Memory& m) {
    return tutti_all_gather(m.send.data(), m.recv.data(), count, TUTTI_FLOAT32, r.comm, TUTTI_BLOCKING);
  };
}
Call all_to_all(size_t count) {
  return [=](const Rank& r, Memory& m) {
    return tutti_all_to_all(m.send.data(), m.recv.data(), count, TUTTI_FLOAT32, r.comm, TUTTI_BLOCKING);
  };
}
Call broadcast(size_t count, int root) {
  return [=](const Rank& r, Memory& m) {
    return tutti_broadcast(m.send.data(), m.recv.data(), count, TUTTI_FLOAT32, root, r.comm, TUTTI_BLOCKING);
  };
}
Call reduce(size_t count, int root) {
  return [=](const Rank& r, Memory& m) {
    return tutti_reduce(m.send.data(), m.recv.data(), count, TUTTI_FLOAT32, TUTTI_SUM, root, r.comm,
                        TUTTI_BLOCKING);
  };
}
Call barrier() {
  return [](const Rank& r, Memory&) { return tutti_barrier(r.comm, TUTTI_BLOCKING); };
}
/// Rank r contributes first + r * step elements.
Call all_gather_v(size_t first, size_t step) {
  return [=](const Rank& r, Memory& m) {
    std::vector<size_t> counts;
    for (int rank = 0; rank < r.count(); ++rank) counts.push_back(first + static_cast<size_t>(rank) * step);
    return tutti_all_gather_v(m.send.data(), m.recv.data(), counts.data(), nullptr, TUTTI_FLOAT32, r.comm,
                              TUTTI_BLOCKING);
  };
}
/// Rank `big` contributes one element more than the others: the sum says nothing about who it is.
Call one_more(size_t big) {
  return [=](const Rank& r, Memory& m) {
    std::vector<size_t> counts(static_cast<size_t>(r.count()), 3000);
    ++counts[big];
    return tutti_all_gather_v(m.send.data(), m.recv.data(), counts.data(), nullptr, TUTTI_FLOAT32, r.comm,
                              TUTTI_BLOCKING);
  };
}
/// Sends and expects `count` elements everywhere, but `self` to itself.
Call all_to_all_v(size_t count) {
  return [=](const Rank& r, Memory& m) {
    const std::vector<size_t> counts(static_cast<size_t>(r.count()), count);
    return tutti_all_to_all_v(m.send.data(), counts.data(), nullptr, m.recv.data(), counts.data(), nullptr,
                              TUTTI_FLOAT32, r.comm, TUTTI_BLOCKING);
  };
}
Call split() {
  return [](const Rank& r, Memory&) {
    tutti_comm_t* part = nullptr;
    return tutti_comm_split(r.comm, 0, 0, &part, nullptr);
  };
}
Call both(const Call& first, const Call& second) {
  return [=](const Rank& r, Memory& m) {
    const tutti_result_t result = first(r, m);
    return result != TUTTI_SUCCESS ? result : second(r, m);
  };
}

std::vector<Mismatch> mismatches() {
  return {
      {"count", all_reduce(1000), all_reduce(1001), {"all_reduce(float32, sum, count 1000)", "count 1001"}},
      {"count_of_one", all_reduce(1), all_reduce(2), {"count 1)", "count 2)"}},
      {"count_of_none", all_reduce(0), all_reduce(5), {"rank"}},
      {"large_count", all_reduce(kElements), all_reduce(kElements - 1), {"rank"}},
      {"type", all_reduce(64), all_reduce(64, TUTTI_INT32), {"float32", "int32"}},
      {"op", all_reduce(64), all_reduce(64, TUTTI_FLOAT32, TUTTI_MAX), {"sum", "max"}},
      {"root_of_broadcast", broadcast(100, 0), broadcast(100, 1), {"root 0", "root 1"}},
      {"root_of_reduce", reduce(100, 0), reduce(100, 1), {"root 0", "root 1"}},
      {"collective", all_reduce(64), all_gather(64), {"all_reduce", "all_gather"}},
      {"barrier", all_reduce(64), barrier(), {"all_reduce", "barrier"}},
      {"order", both(all_reduce(64), barrier()), both(barrier(), all_reduce(64)), {"all_reduce", "barrier"}},
      {"order_of_counts",
       both(all_reduce(9), all_reduce(8)),
       both(all_reduce(8), all_reduce(9)),
       {"count 8"}},
      {"variable", all_gather(20), all_gather_v(20, 0), {"all_gather"}},
      {"order_of_counts_of_all_gather_v", one_more(0), one_more(1), {"array of counts"}},
      {"counts_of_all_gather_v", all_gather_v(100, 1), all_gather_v(103, 1), {"all_gather_v"}},
      {"all_to_all_v_with_broadcast", all_to_all_v(10), broadcast(10, 1), {"rank"}},
      {"counts_of_all_to_all_v", all_to_all_v(9000), all_to_all_v(9001), {"rank"}},
      {"split", all_reduce(64), split(), {"comm_split()"}},
      {"split_with_what_carries_it",
       [](const Rank& r, Memory& m) {
         // As many bytes of the same type as a color and a key.
         return tutti_all_gather(m.send.data(), m.recv.data(), 8, TUTTI_UINT8, r.comm, TUTTI_BLOCKING);
       },
       split(),
       {"comm_split()"}},
      // Where ranks share cores, the longer call takes other rings.
      {"short_and_long", all_reduce(2000), all_reduce(16'000), {"count 2000", "count 16000"}},
      {"short_and_long_all_to_all", all_to_all(500), all_to_all(8000), {"count 500", "count 8000"}},
      {"slices_of_all_to_all_v", all_to_all_v(8192), all_to_all_v(16384), {"rank"}},
  };
}

/// The call that failed, or one after it, reports the mismatch; the communicator then refuses everything but
/// destroy.
void expect_mismatch(Rank& rank, const Mismatch& mismatch, bool is_odd) {
  Memory memory;
  const double start = seconds_now();
  rank.at(mismatch.name);
  tutti_result_t result = (is_odd ? mismatch.odd : mismatch.most)(rank, memory);
  if (result == TUTTI_SUCCESS) {
    rank.at(mismatch.name + ", next call");
    result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
  }
  const double took = seconds_now() - start;
  if (!rank.expect(result, TUTTI_MISMATCH, mismatch.name)) return;
  rank.expect_text({"rank "}, mismatch.name);
  const std::string text = tutti_last_error();
  rank.expect_true(std::any_of(mismatch.texts.begin(), mismatch.texts.end(),
                               [&](const std::string& part) { return text.find(part) != std::string::npos; }),
                   mismatch.name + ": neither call is in \"" + text + "\"");
  rank.expect_true(took < kPatienceS, mismatch.name + " took " + std::to_string(took) + " s");
  rank.expect(tutti_all_reduce(memory.send.data(), memory.recv.data(), 4, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                               TUTTI_BLOCKING),
              TUTTI_MISMATCH, mismatch.name + ", a call afterwards");
  tutti_result_t asynchronous = TUTTI_SUCCESS;
  rank.expect_ok(tutti_comm_async_error(rank.comm, &asynchronous), "async_error");
  rank.expect_true(asynchronous == TUTTI_MISMATCH, mismatch.name + ": async_error does not know");
}

class MismatchTest : public testing::TestWithParam<Arrangement> {};

// Goal: a call that does not match the peers' is an error on every rank, with both calls in the text.
// Method: after a correct call one rank, each in turn, makes another call than the rest.
TEST_P(MismatchTest, IsAnErrorOnEveryRank) {
  ClusterOptions options = GetParam().options();
  options.create = false;
  options.seconds = 120;
  const std::vector<Mismatch> cases = mismatches();
  EXPECT_EQ(run_cluster(options,
                        [&](Rank& rank) {
                          int turn = 0;
                          for (const Mismatch& mismatch : cases) {
                            if (!rank.renew()) return;
                            Memory memory;
                            rank.expect_ok(all_reduce(100)(rank, memory), "a correct call");
                            rank.meet();
                            expect_mismatch(rank, mismatch, rank.rank() == turn++ % rank.count());
                            rank.meet();
                            rank.expect_ok(
                                turn % 2 == 0 ? tutti_comm_abort(rank.comm) : tutti_comm_destroy(rank.comm),
                                "destroy or abort");
                            rank.comm = nullptr;
                          }
                        }),
            "");
}

/// One message from rank 0 to rank 1 that the two see differently.
struct Message {
  std::string name;
  size_t send_count;
  size_t recv_count;
  tutti_type_t recv_type;
  int recv_tag;
  std::string text;  ///< what the receiver says of the difference
};

/// Rank 0 sends, rank 1 receives; then all meet in a barrier, so that neither waits.
void expect_mismatches(ClusterOptions options, const std::vector<Message>& cases) {
  options.create = false;
  EXPECT_EQ(
      run_cluster(
          options,
          [&](Rank& rank) {
            for (const Message& message : cases) {
              if (!rank.renew()) return;
              rank.at(message.name);
              Memory memory;
              tutti_result_t result = TUTTI_SUCCESS;
              if (rank.rank() == 0) {
                result = tutti_send(memory.send.data(), message.send_count, TUTTI_FLOAT32, 1, 3, rank.comm,
                                    TUTTI_BLOCKING);
              } else if (rank.rank() == 1) {
                result = tutti_recv(memory.recv.data(), message.recv_count, message.recv_type, 0,
                                    message.recv_tag, rank.comm, TUTTI_BLOCKING);
                rank.expect(result, TUTTI_MISMATCH, "recv, " + message.name);
                rank.expect_text({"rank 0", "rank 1", message.text, "count, type and tag"}, message.name);
              }
              if (result == TUTTI_SUCCESS) result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
              rank.expect(result, TUTTI_MISMATCH, message.name);
              rank.meet();
              rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
              rank.comm = nullptr;
            }
          }),
      "");
}

// Goal: a receive that differs from its send in count, type or tag is an error on both ranks.
// Method: counts that differ in the first slice, in a later one, and by whole slices.
TEST_P(MismatchTest, OfMessagesIsAnErrorOnBothRanks) {
  expect_mismatches(
      GetParam().options(),
      {{"count", 10, 11, TUTTI_FLOAT32, 3, "its first part has 40 bytes, 44 were expected"},
       {"none", 0, 1, TUTTI_FLOAT32, 3, "its first part has 0 bytes, 4 were expected"},
       {"slices", 16384, 4096, TUTTI_FLOAT32, 3, "were expected (16384 bytes of float32 with tag 3)"},
       {"as long as a slice", 4096, 2048, TUTTI_FLOAT32, 3, "(8192 bytes of float32 with tag 3)"},
       {"as long as a slot", 32768, 16384, TUTTI_FLOAT32, 3, "(65536 bytes of float32 with tag 3)"},
       {"later slice", 16385, 16386, TUTTI_FLOAT32, 3,
        "its count is not the expected one (65544 bytes of float32 with tag 3)"},
       {"type", 10, 10, TUTTI_INT32, 3, "its type is float32, int32 was expected"},
       {"tag", 10, 10, TUTTI_FLOAT32, 4, "its tag is 3, tag 4 was expected"},
       {"large tag", 10, 10, TUTTI_FLOAT32, 65535, "its tag is 3, tag 65535 was expected"},
       {"tag of a long one", 70'000, 70'000, TUTTI_FLOAT32, 2, "its tag is 3, tag 2 was expected"}});
}

// Goal: where a slot is shorter than the least slice, what fills it may be of a longer message.
TEST(MismatchTextTest, OfMessagesInShortSlotsNamesNoTagForACount) {
  expect_mismatches(
      {.environment = {{"TUTTI_SLOT_BYTES", "4096"}}},
      {{"as long as a slot", 2048, 1024, TUTTI_FLOAT32, 3, "(4096 bytes of float32 with tag 3)"}});
}

// Goal: a send or receive on one rank against a collective on the other is an error on both, long before the
// deadline.
TEST_P(MismatchTest, OfAMessageAndACollectiveIsAnErrorOnEveryRank) {
  ClusterOptions options = GetParam().options();
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    Memory memory;
                    rank.expect_ok(barrier()(rank, memory), "a correct call");
                    rank.meet();
                    const double start = seconds_now();
                    const tutti_result_t result = rank.rank() == 0
                                                      ? tutti_recv(memory.recv.data(), 5, TUTTI_FLOAT32, 1, 0,
                                                                   rank.comm, TUTTI_BLOCKING)
                                                      : barrier()(rank, memory);
                    rank.expect(result, TUTTI_MISMATCH, "the crossed calls");
                    rank.expect_text({"barrier", "send or recv", "different orders"}, "the crossed calls");
                    rank.expect_true(seconds_now() - start < kPatienceS, "too late");
                  }),
      "");
}

// Goal: ranks that exchange messages while others already wait in the next collective are no error, however
// long.
TEST_P(MismatchTest, MessagesBeforeACollectiveAreNoError) {
  ClusterOptions options = GetParam().options();
  EXPECT_EQ(
      run_cluster(
          options,
          [](Rank& rank) {
            Memory memory;
            if (rank.rank() == 0) {
              rank.expect_ok(
                  tutti_recv(memory.recv.data(), 5, TUTTI_FLOAT32, 1, 0, rank.comm, TUTTI_BLOCKING), "recv");
            } else if (rank.rank() == 1) {
              usleep(200'000);
              rank.expect_ok(
                  tutti_send(memory.send.data(), 5, TUTTI_FLOAT32, 0, 0, rank.comm, TUTTI_BLOCKING), "send");
            }
            rank.expect_ok(all_reduce(kElements)(rank, memory), "all_reduce");
          }),
      "");
}

// Goal: waiting for a rank that has left is an error that names it, for collectives and messages, on all
// ranks.
TEST_P(MismatchTest, ARankThatLeavesIsNamed) {
  ClusterOptions options = GetParam().options();
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          Memory memory;
                          rank.expect_ok(barrier()(rank, memory), "a correct call");
                          const int leaver = rank.count() - 1;
                          if (rank.rank() == leaver) {
                            // TUTTI_MISMATCH if messages of the others have come by then.
                            static_cast<void>(tutti_comm_destroy(rank.comm));
                            rank.comm = nullptr;
                            return;
                          }
                          rank.expect(all_reduce(kElements)(rank, memory), TUTTI_PEER_LOST, "all_reduce");
                          rank.expect_text({"rank " + std::to_string(leaver), "left"}, "all_reduce");
                        }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, MismatchTest,
                         testing::Values(Arrangement{threads(2)}, Arrangement{threads(2), 2},
                                         Arrangement{processes(2)}, Arrangement{processes(3)},
                                         Arrangement{processes(3), 3}, Arrangement{mixed(4)},
                                         Arrangement{processes(2), 1, 2}, Arrangement{processes(4), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace tutti::test
