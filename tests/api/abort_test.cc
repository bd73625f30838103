// Abort beside another thread that is inside the communicator, wherever in a call that thread is.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "api/handle.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

const tutti_stream_t kNow = TUTTI_BLOCKING;

/// On rank 0 an operation that waits for rank 1, which makes none, in a stream; then `body`. Rank 1 learns of
/// the abort.
std::string with_a_stream_that_waits(
    const std::function<void(Rank&, tutti_host_stream_t*, std::vector<float>&)>& body) {
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
    body(rank, stream, data);
    rank.comm = nullptr;
    rank.add(0);
    rank.expect(tutti_host_stream_destroy(stream), TUTTI_ABORTED, "destroy the stream");
  });
}

// Goal: a blocking call that waits for the communicator's streams is inside it: abort ends the call and frees
// nothing before. It once took such a call for none.
TEST(AbortTest, WaitsForACallThatWaitsForTheStreams) {
  EXPECT_EQ(
      with_a_stream_that_waits([](Rank& rank, tutti_host_stream_t* /*stream*/, std::vector<float>& data) {
        tutti_comm_t* const comm = rank.comm;
        std::thread caller([&] {
          rank.expect(tutti_all_reduce(data.data(), data.data(), 10, TUTTI_FLOAT32, TUTTI_SUM, comm, kNow),
                      TUTTI_ABORTED, "the blocking call");
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
  EXPECT_EQ(
      with_a_stream_that_waits([](Rank& rank, tutti_host_stream_t* /*stream*/, std::vector<float>& /*data*/) {
        tutti_comm_t* const comm = rank.comm;
        std::thread destroyer([&] { rank.expect(tutti_comm_destroy(comm), TUTTI_ABORTED, "destroy"); });
        while (comm->holds.load() == 0) std::this_thread::yield();
        rank.expect_ok(tutti_comm_abort(comm), "abort");
        destroyer.join();
      }),
      "");
}

// Goal: calls of the short path, too, are inside: none works on a communicator that is gone. Method: one rank
// sums up as fast as it can while another thread aborts; sanitizers see what is used after it is freed.
TEST(AbortTest, BesideTheShortPath) {
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
                            rank.expect(tutti_group_end(), TUTTI_ABORTED, "end");
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

}  // namespace
}  // namespace tutti::test
