// Abort beside another thread that is inside the communicator, wherever in a call that thread is.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "api/handle.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

const tutti_stream_t kNow = TUTTI_BLOCKING;

/// The call was inside when the communicator was aborted, or came just after it.
void expect_ended(Rank& rank, tutti_result_t result, const std::string& what) {
  if (result != TUTTI_INVALID_USAGE) rank.expect(result, TUTTI_ABORTED, what);
}

/// On rank 0 an operation that waits for rank 1, which makes none, in a stream; then `body`. Rank 1 learns of
/// the abort.
std::string with_a_stream_that_waits(const std::function<void(Rank&, std::vector<float>&)>& body) {
  ClusterOptions options;
  options.layout = processes(2);
  return run_cluster(options, [&](Rank& rank) {
    if (rank.rank() == 1) {
      rank.wait_value(0, 1);
      rank.expect(tutti_barrier(rank.comm, kNow), TUTTI_ABORTED, "the peer");
      return;
    }
    tutti_host_stream_t* stream = nullptr;
    rank.expect_ok(tutti_host_stream_create(&stream), "stream");
    std::vector<float> data(50'000, 1.0f);
    rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_SUM,
                                    rank.comm, tutti_stream_host(stream)),
                   "all_reduce");
    body(rank, data);
    rank.comm = nullptr;
    rank.add(0);
    rank.expect(tutti_host_stream_destroy(stream), TUTTI_ABORTED, "destroy the stream");
  });
}

// Goal: a blocking call that waits for the communicator's streams is inside it: abort ends the call and frees
// nothing before. It once took such a call for none.
TEST(AbortTest, WaitsForACallThatWaitsForTheStreams) {
  EXPECT_EQ(with_a_stream_that_waits([](Rank& rank, std::vector<float>& data) {
              tutti_comm_t* const comm = rank.comm;
              std::thread caller([&] {
                expect_ended(
                    rank,
                    tutti_all_reduce(data.data(), data.data(), 10, TUTTI_FLOAT32, TUTTI_SUM, comm, kNow),
                    "the blocking call");
              });
              while (comm->busy.load() == 0) std::this_thread::yield();
              rank.expect_ok(tutti_comm_abort(comm), "abort");
              caller.join();
              rank.expect(tutti_comm_abort(comm), TUTTI_INVALID_USAGE, "a second abort");
            }),
            "");
}

// Goal: the same of a destroy that waits for the streams: the abort ends it, and frees.
TEST(AbortTest, EndsADestroyThatWaitsForTheStreams) {
  EXPECT_EQ(with_a_stream_that_waits([](Rank& rank, std::vector<float>& /*data*/) {
              tutti_comm_t* const comm = rank.comm;
              std::thread destroyer([&] { expect_ended(rank, tutti_comm_destroy(comm), "destroy"); });
              while (comm->holds.load() == 0) std::this_thread::yield();
              rank.expect_ok(tutti_comm_abort(comm), "abort");
              destroyer.join();
            }),
            "");
}

// Goal: an abort waits for calls of the short path too, so no call works on a communicator that is gone.
// Method: one rank sums up as fast as it can while another thread aborts; sanitizers see what is used after
// its free.
TEST(AbortTest, AnAbortWaitsForCallsOfTheShortPath) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              for (int turn = 0; turn < 100; ++turn) {
                tutti_comm_t* comm = nullptr;
                if (tutti_comm_create_all(&comm, 1, nullptr) != TUTTI_SUCCESS) return failures + "create";
                std::atomic<int> calls{0};
                tutti_result_t last = TUTTI_SUCCESS;
                std::thread caller([&] {
                  float value = 1;
                  for (; last == TUTTI_SUCCESS; ++calls)
                    last = tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, kNow);
                });
                while (calls.load() < 100) std::this_thread::yield();
                if (tutti_comm_abort(comm) != TUTTI_SUCCESS) failures += "abort; ";
                caller.join();
                if (last != TUTTI_ABORTED && last != TUTTI_INVALID_USAGE)
                  failures += std::string(tutti_error_string(last)) + "; ";
              }
              return failures;
            }),
            "");
}

// Goal: the abort of one communicator of a group waits for its own call, not for those of the others. Method:
// rank 0 drives two communicators in a group, in which nobody meets it; one is aborted, then the other.
TEST(AbortTest, OfOneCommunicatorOfAGroupDoesNotWaitForTheOthers) {
  ClusterOptions options;
  options.layout = processes(2);
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          tutti_comm_t* const first = rank.comm;
                          if (!rank.renew()) return;
                          tutti_comm_t* const second = std::exchange(rank.comm, nullptr);
                          if (rank.rank() == 1) {
                            for (tutti_comm_t* comm : {first, second}) {
                              rank.wait_value(0, comm == first ? 1 : 2);
                              rank.expect(tutti_barrier(comm, kNow), TUTTI_ABORTED, "the peer");
                              rank.expect_ok(tutti_comm_destroy(comm), "destroy");
                            }
                            return;
                          }
                          std::thread caller([&] {
                            rank.expect_ok(tutti_group_start(), "start");
                            rank.expect_ok(tutti_barrier(first, kNow), "inside");
                            rank.expect_ok(tutti_barrier(second, kNow), "inside");
                            expect_ended(rank, tutti_group_end(), "end");
                          });
                          while (first->holds.load() == 0 || second->holds.load() == 0)
                            std::this_thread::yield();
                          for (tutti_comm_t* comm : {first, second}) {
                            rank.expect_ok(tutti_comm_abort(comm), "abort");
                            rank.add(0);
                          }
                          caller.join();
                        }),
            "");
}

// Goal: an abort does not wait for operations of other communicators that stand before its own in a stream.
// Method: rank 0 queues an operation that waits for rank 1 in a stream, and behind it one of another
// communicator, which is aborted first: rank 1 makes the first one possible only after that.
TEST(AbortTest, DoesNotWaitForWhatStandsBeforeInAStream) {
  ClusterOptions options;
  options.layout = processes(2);
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          tutti_comm_t* const first = rank.comm;
                          if (!rank.renew()) return;
                          tutti_comm_t* const second = std::exchange(rank.comm, first);
                          if (rank.rank() == 1) {
                            rank.wait_value(0, 1);
                            rank.expect_ok(tutti_barrier(first, kNow), "barrier");
                            rank.expect(tutti_barrier(second, kNow), TUTTI_ABORTED, "the peer");
                            rank.expect_ok(tutti_comm_destroy(second), "destroy");
                            return;
                          }
                          tutti_host_stream_t* stream = nullptr;
                          rank.expect_ok(tutti_host_stream_create(&stream), "stream");
                          rank.expect_ok(tutti_barrier(first, tutti_stream_host(stream)), "before");
                          rank.expect_ok(tutti_barrier(second, tutti_stream_host(stream)), "behind");
                          rank.expect_ok(tutti_comm_abort(second), "abort");
                          rank.add(0);
                          rank.expect(tutti_host_stream_destroy(stream), TUTTI_ABORTED, "the stream");
                        }),
            "");
}

// Goal: tickets may be completed out of turn; the stream keeps their order all the same, and their errors.
TEST(HostStreamTest, CompletesOutOfTurn) {
  HostStream stream;
  const uint64_t first = stream.take_handle();
  const uint64_t second = stream.take_handle();
  const uint64_t third = stream.take_handle();
  stream.complete(second, {Code::kAborted, "the second"});
  EXPECT_EQ(stream.query().code(), Code::kInProgress);
  EXPECT_TRUE(stream.wait_turn(first));
  EXPECT_FALSE(stream.wait_turn(third));
  stream.complete(first, {});
  EXPECT_TRUE(stream.wait_turn(third));
  stream.complete(third, {});
  EXPECT_EQ(stream.synchronize().code(), Code::kAborted);
  EXPECT_TRUE(stream.synchronize().is_ok());
}

// Goal: a group that ends after one of its communicators was aborted is refused.
TEST(AbortTest, BeforeTheEndOfAGroup) {
  EXPECT_EQ(run_child([]() -> std::string {
              tutti_comm_t* comms[2] = {};
              for (tutti_comm_t*& comm : comms) {
                if (tutti_comm_create_all(&comm, 1, nullptr) != TUTTI_SUCCESS) return tutti_last_error();
              }
              std::string failures;
              if (tutti_group_start() != TUTTI_SUCCESS) failures += "start; ";
              for (tutti_comm_t* comm : comms) {
                if (tutti_barrier(comm, kNow) != TUTTI_SUCCESS) failures += "inside; ";
              }
              if (tutti_comm_abort(comms[1]) != TUTTI_SUCCESS) failures += "abort; ";
              if (tutti_group_end() != TUTTI_INVALID_USAGE) failures += "end; ";
              if (tutti_comm_abort(comms[0]) != TUTTI_SUCCESS) failures += "abort of the other; ";
              return failures;
            }),
            "");
}

// Goal: abort ends a set-up that waits for a peer, and frees after the thread that runs it has left.
TEST(AbortTest, EndsASetUp) {
  EXPECT_EQ(run_child([]() -> std::string {
              tutti_unique_id_t id;
              if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) return tutti_last_error();
              tutti_config_t config = TUTTI_CONFIG_INIT;
              config.nonblocking = 1;
              tutti_comm_t* comm = nullptr;
              if (tutti_comm_create(&comm, 2, id, 0, &config) != TUTTI_IN_PROGRESS) return tutti_last_error();
              if (tutti_comm_abort(comm) != TUTTI_SUCCESS) return tutti_last_error();
              return tutti_comm_abort(comm) == TUTTI_INVALID_USAGE ? "" : "a second abort";
            }),
            "");
}

// Goal: an abort and a destroy may both end a set-up. Each joined its thread, and one of them failed.
TEST(AbortTest, EndsASetUpBesideADestroy) {
  EXPECT_EQ(run_child([]() -> std::string {
              constexpr int kTurns = 50;
              const auto is_late = [](tutti_result_t result) {
                return result == TUTTI_INVALID_USAGE || result == TUTTI_ABORTED;
              };
              std::string failures;
              for (int turn = 0; turn < kTurns; ++turn) {
                tutti_unique_id_t id;
                if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) return tutti_last_error();
                tutti_config_t config = TUTTI_CONFIG_INIT;
                config.nonblocking = 1;
                tutti_comm_t* comm = nullptr;
                if (tutti_comm_create(&comm, 2, id, 0, &config) != TUTTI_IN_PROGRESS)
                  return tutti_last_error();
                std::latch together(2);
                tutti_result_t destroyed = TUTTI_SUCCESS;
                std::thread destroyer([&] {
                  together.arrive_and_wait();
                  destroyed = tutti_comm_destroy(comm);
                });
                together.arrive_and_wait();
                const tutti_result_t aborted = tutti_comm_abort(comm);
                destroyer.join();
                for (const tutti_result_t result : {destroyed, aborted}) {
                  if (result != TUTTI_SUCCESS && !is_late(result))
                    failures += std::string(tutti_error_string(result)) + "; ";
                }
                if (is_late(destroyed) && is_late(aborted)) failures += "nobody has ended it; ";
              }
              return failures;
            }),
            "");
}

// Goal: abort ends the set-up of a communicator that another thread is making from this one: a grow once went
// on to its deadline. Method: the rank that is to join does not come.
TEST(AbortTest, EndsTheSetUpOfACommunicatorThatIsMadeFromIt) {
  ClusterOptions options;
  options.layout = processes(1);
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    tutti_unique_id_t id;
                    rank.expect_ok(tutti_get_unique_id(&id), "id");
                    tutti_config_t config = rank.config();
                    config.setup_timeout_ms = 600'000;
                    tutti_comm_t* const comm = std::exchange(rank.comm, nullptr);
                    tutti_comm_t* grown = nullptr;
                    tutti_result_t result = TUTTI_SUCCESS;
                    std::thread grower([&] { result = tutti_comm_grow(comm, 2, &id, -1, &grown, &config); });
                    rank.wait_until_joined();
                    rank.expect_ok(tutti_comm_abort(comm), "abort");
                    grower.join();
                    rank.expect(result, TUTTI_ABORTED, "grow");
                    rank.expect_true(grown == nullptr, "an aborted grow left a communicator");
                  }),
      "");
}

}  // namespace
}  // namespace tutti::test
