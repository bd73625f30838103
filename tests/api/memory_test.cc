// Memory that runs out in the middle of a call: an error of that call alone while no peer can know of it,
// else of all ranks.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/failing_allocations.h"

namespace tutti::test {
namespace {

const tutti_stream_t kNow = TUTTI_BLOCKING;

tutti_result_t sum(Rank& rank, std::vector<float>& data, tutti_stream_t stream = kNow) {
  return tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_SUM, rank.comm, stream);
}

/// A call that allocates in the middle: its deadline passes, and there is no memory to say for whom it waits.
tutti_result_t sum_that_fails(Rank& rank, std::vector<float>& data, uint64_t failures) {
  const FailingAllocations shortage(0, failures);
  return sum(rank, data);
}

// Goal: an exception in the middle of a collective is an error of the communicator: a peer that waits in it
// learns of it long before its own deadline. It once learned nothing. Method: rank 2 does not come; rank 0,
// of a short deadline, finds no memory for one allocation, or for any.
TEST(MemoryTest, AnExceptionInTheMiddleOfACallReachesAllRanks) {
  for (const int hosts : {1, 2}) {
    for (const uint64_t failures : {uint64_t{1}, UINT64_MAX}) {
      ClusterOptions options = Arrangement{processes(3), 1, hosts}.options();
      options.config.timeout_ms = 600'000;
      EXPECT_EQ(run_cluster(options,
                            [&](Rank& rank) {
                              std::vector<float> data(1000, 1.0f);
                              rank.expect_ok(sum(rank, data), "before");
                              if (!rank.meet()) return;
                              if (rank.rank() == 2) {
                                rank.wait_value(0, 2);
                              } else if (rank.rank() == 0) {
                                rank.expect_ok(tutti_comm_set_timeout(rank.comm, 100), "set_timeout");
                                rank.expect(sum_that_fails(rank, data, failures), TUTTI_OUT_OF_MEMORY,
                                            "inside");
                                rank.add(0);
                              }
                              if (rank.rank() == 1) {
                                rank.expect(sum(rank, data), TUTTI_OUT_OF_MEMORY, "the peer");
                                if (failures == 1) rank.expect_text({"rank 0", "out of memory"}, "the peer");
                                rank.add(0);
                              }
                              // Between hosts a rank without any memory closes its connections, which a rank
                              // of
                              // another host may see before others tell it why.
                              tutti_result_t next = sum(rank, data);
                              // The others' parts of the sum may have come before the report.
                              if (rank.rank() == 2 && next == TUTTI_SUCCESS) next = sum(rank, data);
                              const bool may_be_lost = failures > 1 && hosts > 1 && rank.rank() == 2;
                              if (next != TUTTI_PEER_LOST || !may_be_lost)
                                rank.expect(next, TUTTI_OUT_OF_MEMORY, "the next call");
                              rank.meet();
                            }),
                "")
          << hosts << " hosts, failures: " << failures;
    }
  }
}

/// A call that no earlier one has prepared: `turn` is in its shape. After `turn` allocations of the call so
/// many fail.
using FreshCall = std::function<tutti_result_t(Rank&, size_t turn, uint64_t failures)>;

/// On rank 0 one allocation of a call fails, in each turn a later one, until none does. Where the
/// communicator has no error after that the call is made again, and must do what it does. Rank 1 makes the
/// call once.
std::string with_each_allocation_failing(const FreshCall& call) {
  ClusterOptions options;
  options.layout = processes(2);
  options.config.timeout_ms = static_cast<uint64_t>(patience_s(20)) * 1000;
  return run_cluster(options, [&](Rank& rank) {
    uint64_t errors = 0;
    for (size_t turn = 0; rank.value(1) == 0; ++turn) {
      rank.at("turn " + std::to_string(turn));
      const tutti_result_t result = call(rank, turn, rank.rank() == 0 ? 1 : 0);
      if (rank.rank() == 0) {
        const bool has_failed = FailingAllocations::have_failed();
        rank.expect(result, has_failed ? TUTTI_OUT_OF_MEMORY : TUTTI_SUCCESS, "without memory");
        tutti_result_t health = TUTTI_SUCCESS;
        rank.expect_ok(tutti_comm_async_error(rank.comm, &health), "async_error");
        if (health != TUTTI_SUCCESS) rank.add(0);
        if (has_failed && health == TUTTI_SUCCESS) rank.expect_ok(call(rank, turn, 0), "again");
        if (!has_failed) rank.add(1);
      }
      if (!rank.meet()) return;
      const bool is_error = rank.value(0) != std::exchange(errors, rank.value(0));
      if (rank.rank() == 1) rank.expect(result, is_error ? TUTTI_OUT_OF_MEMORY : TUTTI_SUCCESS, "the peer");
      if (!rank.meet()) return;
      if (!is_error) continue;
      static_cast<void>(tutti_comm_destroy(rank.comm));
      if (!rank.renew()) return;
    }
  });
}

// Goal: wherever a call runs out of memory before its first message, nothing has changed: the same call made
// again succeeds, in step with the peer's.
TEST(MemoryTest, ACallThatHasNotBegunCanBeMadeAgain) {
  EXPECT_EQ(with_each_allocation_failing([](Rank& rank, size_t turn, uint64_t failures) {
              std::vector<float> data(100 + turn, 1.0f);
              const FailingAllocations shortage(turn, failures);
              return sum(rank, data);
            }),
            "");
}
TEST(MemoryTest, AnExchangeThatHasNotBegunCanBeMadeAgain) {
  EXPECT_EQ(with_each_allocation_failing([](Rank& rank, size_t turn, uint64_t failures) {
              const std::vector<size_t> counts(2, 10 + turn);
              const std::vector<size_t> places = {0, 10 + turn};
              const std::vector<float> sent(2 * (10 + turn), 1.0f);
              std::vector<float> got(sent.size());
              const FailingAllocations shortage(turn, failures);
              return tutti_all_to_all_v(sent.data(), counts.data(), places.data(), got.data(), counts.data(),
                                        places.data(), TUTTI_FLOAT32, rank.comm, kNow);
            }),
            "");
}

// Goal: of a group, whose calls peers have begun to answer, every rank gets the error, or none.
TEST(MemoryTest, AGroupFailsOnAllRanksOrCanBeMadeAgain) {
  EXPECT_EQ(with_each_allocation_failing([](Rank& rank, size_t turn, uint64_t failures) {
              std::vector<float> first(100 + turn, 1.0f);
              std::vector<float> second(300 + turn, 1.0f);
              const FailingAllocations shortage(turn, failures);
              tutti_result_t result = tutti_group_start();
              for (auto* data : {&first, &second}) {
                const tutti_result_t added = sum(rank, *data);
                if (result == TUTTI_SUCCESS) result = added;
              }
              const tutti_result_t ended = tutti_group_end();
              return result == TUTTI_SUCCESS ? ended : result;
            }),
            "");
}

// Goal: the same on a host stream, which may have the first call already: the peer once waited for the second
// one until its deadline.
TEST(MemoryTest, AGroupOnAHostStreamFailsOnAllRanksOrCanBeMadeAgain) {
  EXPECT_EQ(with_each_allocation_failing([](Rank& rank, size_t turn, uint64_t failures) {
              std::vector<float> first(100 + turn, 1.0f);
              std::vector<float> second(300 + turn, 1.0f);
              tutti_host_stream_t* stream = nullptr;
              rank.expect_ok(tutti_host_stream_create(&stream), "stream");
              tutti_result_t result = TUTTI_SUCCESS;
              {
                const FailingAllocations shortage(turn, failures);
                result = tutti_group_start();
                for (auto* data : {&first, &second}) {
                  const tutti_result_t added = sum(rank, *data, tutti_stream_host(stream));
                  if (result == TUTTI_SUCCESS) result = added;
                }
                const tutti_result_t ended = tutti_group_end();
                if (result == TUTTI_SUCCESS) result = ended;
              }
              const tutti_result_t run = tutti_host_stream_destroy(stream);
              return result == TUTTI_SUCCESS ? run : result;
            }),
            "");
}

// Goal: a split ends on all ranks, wherever memory is short between its exchanges: the peer once waited for
// the second one until its deadline. Method: no rank is of a color, so nothing follows the exchanges.
TEST(MemoryTest, ASplitFailsOnAllRanksOrCanBeMadeAgain) {
  EXPECT_EQ(with_each_allocation_failing([](Rank& rank, size_t turn, uint64_t failures) {
              tutti_comm_t* next = nullptr;
              const FailingAllocations shortage(turn, failures);
              return tutti_comm_split(rank.comm, TUTTI_NO_COLOR, 0, &next, nullptr);
            }),
            "");
}

/// On rank 0 one allocation of the end of its communicator fails, in each turn a later one, until none does.
/// Rank 1 then sees what that has left. Each turn has a new communicator.
std::string with_each_end_failing(int hosts, const std::function<void(Rank&)>& survivor,
                                  const std::function<void(Rank&, uint64_t turn)>& leaver) {
  // Long calls have two threads.
  ClusterOptions options = Arrangement{processes(2), 2, hosts}.options();
  options.config.timeout_ms = static_cast<uint64_t>(patience_s(20)) * 1000;
  return run_cluster(options, [&](Rank& rank) {
    for (uint64_t turn = 0; rank.value(0) == 0; ++turn) {
      rank.at("turn " + std::to_string(turn));
      rank.expect_ok(tutti_barrier(rank.comm, kNow), "before");
      if (!rank.meet()) return;
      if (rank.rank() == 0) leaver(rank, turn);
      if (rank.rank() == 0 && !FailingAllocations::have_failed()) rank.add(0);
      if (rank.rank() == 1) {
        survivor(rank);
        static_cast<void>(tutti_comm_destroy(rank.comm));
      }
      if (!rank.renew()) return;
    }
  });
}

// Goal: an abort ends every wait, wherever it runs out of memory. The handle was dead and nobody was told:
// the peer waited until its deadline.
TEST(MemoryTest, AnAbortNeedsNoMemory) {
  for (const int hosts : {1, 2}) {
    const auto waits = [hosts](Rank& rank) {
      rank.add(1);
      const tutti_result_t result = tutti_barrier(rank.comm, kNow);
      // Without memory for a message to another host, the abort closes the connection.
      if (result == TUTTI_PEER_LOST && hosts == 2) return;
      if (rank.expect(result, TUTTI_ABORTED, "the peer")) rank.expect_text({"tutti_comm_abort"}, "the peer");
    };
    const auto aborts = [](Rank& rank, uint64_t turn) {
      rank.wait_value(1, turn + 1);
      tutti_result_t result = TUTTI_SUCCESS;
      {
        const FailingAllocations shortage(turn);
        result = tutti_comm_abort(rank.comm);
      }
      rank.expect_ok(result, "abort");
      rank.expect(tutti_barrier(rank.comm, kNow), TUTTI_INVALID_USAGE, "the aborted handle");
    };
    EXPECT_EQ(with_each_end_failing(hosts, waits, aborts), "") << hosts << " hosts";
  }
}

/// On rank 0, after the end. Rank 1 makes its call only then: an earlier message would be one that rank 0 has
/// not received.
void expect_has_left(Rank& rank, uint64_t turn, tutti_result_t result) {
  if (result != TUTTI_OUT_OF_MEMORY || !FailingAllocations::have_failed()) rank.expect_ok(result, "the end");
  std::vector<float> data(1000, 1.0f);
  rank.expect(sum(rank, data), TUTTI_INVALID_USAGE, "a call after the end");
  rank.add(1);
  rank.wait_value(2, turn + 1);
}
void expect_peer_lost(Rank& rank) {
  rank.wait_value(1, rank.value(2) + 1);
  rank.expect(tutti_barrier(rank.comm, kNow), TUTTI_PEER_LOST, "the peer");
  rank.add(2);
}

/// Ends the rank's communicator by `end`. Of the allocations on the way, number `turn` fails.
tutti_result_t end_in_shortage(Rank& rank, uint64_t turn, tutti_result_t (*end)(tutti_comm_t*)) {
  const FailingAllocations shortage(turn);
  return end(rank.comm);
}

// Goal: a communicator is finalized also where finalize runs out of memory. It was not, and its peers were
// not told: they waited until their deadline, and the next long call found no threads.
TEST(MemoryTest, AFinalizeThatRunsOutOfMemoryFinalizesAllTheSame) {
  for (const int hosts : {1, 2}) {
    const auto finalizes = [](Rank& rank, uint64_t turn) {
      expect_has_left(rank, turn, end_in_shortage(rank, turn, tutti_comm_finalize));
      rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
    };
    EXPECT_EQ(with_each_end_failing(hosts, expect_peer_lost, finalizes), "") << hosts << " hosts";
  }
}

// Goal: the same of destroy, which frees all the same.
TEST(MemoryTest, ADestroyThatRunsOutOfMemoryFreesAllTheSame) {
  for (const int hosts : {1, 2}) {
    const auto destroys = [](Rank& rank, uint64_t turn) {
      expect_has_left(rank, turn, end_in_shortage(rank, turn, tutti_comm_destroy));
      rank.expect(tutti_comm_destroy(rank.comm), TUTTI_INVALID_USAGE, "a second destroy");
    };
    EXPECT_EQ(with_each_end_failing(hosts, expect_peer_lost, destroys), "") << hosts << " hosts";
  }
}

}  // namespace
}  // namespace tutti::test
