// Host streams: calls return at once, run in order, across streams and communicators.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/support/cluster.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

class StreamsTest : public testing::TestWithParam<Arrangement> {
 protected:
  static ClusterOptions options() { return GetParam().options(); }
};

/// A stream that ends with the scope.
class Stream {
 public:
  explicit Stream(Rank& rank) : rank_(rank) { rank.expect_ok(tutti_host_stream_create(&stream_), "stream"); }
  ~Stream() { rank_.expect_ok(tutti_host_stream_destroy(stream_), "destroy stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  tutti_stream_t tag() const { return tutti_stream_host(stream_); }
  tutti_host_stream_t* get() const { return stream_; }

 private:
  Rank& rank_;
  tutti_host_stream_t* stream_ = nullptr;
};

void expect_destroy(Rank& rank, tutti_result_t wanted) {
  rank.expect(tutti_comm_destroy(rank.comm), wanted, "destroy");
  rank.comm = nullptr;
}

// Goal: operations of one communicator run in issue order across two streams and blocking calls.
// Method: each doubles (a sum of two equal ranks) or takes the maximum of the same memory.
TEST_P(StreamsTest, KeepIssueOrderOnOneCommunicator) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          const Stream one(rank);
                          const Stream two(rank);
                          std::vector<int64_t> data(10'000, 1);
                          const auto sum = [&](tutti_stream_t stream) {
                            rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(),
                                                            TUTTI_INT64, TUTTI_SUM, rank.comm, stream),
                                           "sum");
                          };
                          int64_t wanted = 1;
                          for (int turn = 0; turn < 5; ++turn) {
                            sum(one.tag());
                            sum(two.tag());
                            sum(two.tag());
                            sum(TUTTI_BLOCKING);
                            for (int i = 0; i < 4; ++i) wanted *= rank.count();
                            rank.expect_true(data[9'999] == wanted,
                                             "a blocking call did not wait for the streams");
                          }
                          rank.expect_ok(tutti_host_stream_synchronize(one.get()), "synchronize");
                          rank.expect_ok(tutti_host_stream_query(one.get()), "query");
                        }),
            "");
}

// Goal: a call on a stream returns before its peers have come; query says so; arrays of counts are copied.
TEST_P(StreamsTest, ReturnAtOnceAndCopyCounts) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          const Stream stream(rank);
                          std::vector<float> send(100, 1.0f);
                          std::vector<float> recv(static_cast<size_t>(rank.count()) * 100);
                          if (rank.rank() != 0 || rank.count() == 1)
                            rank.wait_value(0, rank.count() == 1 ? 0 : 1);
                          {
                            std::vector<size_t> counts(static_cast<size_t>(rank.count()), 100);
                            rank.expect_ok(
                                tutti_all_gather_v(send.data(), recv.data(), counts.data(), nullptr,
                                                   TUTTI_FLOAT32, rank.comm, stream.tag()),
                                "all_gather_v");
                            std::fill(counts.begin(), counts.end(), 7);
                          }
                          if (rank.rank() == 0 && rank.count() > 1) {
                            rank.expect(tutti_host_stream_query(stream.get()), TUTTI_IN_PROGRESS, "query");
                            rank.add(0);
                          }
                          rank.expect_ok(tutti_host_stream_synchronize(stream.get()), "synchronize");
                          rank.expect_true(recv.back() == 1.0f, "data");
                        }),
            "");
}

// Goal: several communicators work from several threads of a process at once, each with streams and blocking
// calls.
TEST_P(StreamsTest, SeveralCommunicatorsFromSeveralThreads) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          std::vector<tutti_comm_t*> comms(3);
                          for (tutti_comm_t*& comm : comms) {
                            if (!rank.expect_ok(tutti_comm_split(rank.comm, 0, 0, &comm, nullptr), "split"))
                              return;
                          }
                          std::vector<std::thread> workers;
                          for (tutti_comm_t* comm : comms) {
                            workers.emplace_back([&rank, comm] {
                              const Stream stream(rank);
                              for (int turn = 0; turn < 20; ++turn) {
                                std::vector<float> data(5'000, 1.0f);
                                rank.expect_ok(
                                    tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32,
                                                     TUTTI_SUM, comm,
                                                     turn % 2 == 0 ? stream.tag() : TUTTI_BLOCKING),
                                    "all_reduce");
                                rank.expect_ok(tutti_host_stream_synchronize(stream.get()), "synchronize");
                                rank.expect_true(data[4'999] == static_cast<float>(rank.count()), "data");
                              }
                            });
                          }
                          for (std::thread& worker : workers) worker.join();
                          for (tutti_comm_t* comm : comms)
                            rank.expect_ok(tutti_comm_destroy(comm), "destroy");
                        }),
            "");
}

// Goal: one stream orders operations of several communicators; a group may be issued on a stream.
TEST_P(StreamsTest, OneStreamOrdersSeveralCommunicators) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          tutti_comm_t* other = nullptr;
                          if (!rank.expect_ok(tutti_comm_split(rank.comm, 0, 0, &other, nullptr), "split"))
                            return;
                          const Stream stream(rank);
                          std::vector<int64_t> data(1'000, 1);
                          int64_t wanted = 1;
                          for (int turn = 0; turn < 8; ++turn) {
                            rank.expect_ok(tutti_group_start(), "start");
                            rank.expect_ok(
                                tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_INT64,
                                                 TUTTI_SUM, turn % 2 == 0 ? rank.comm : other, stream.tag()),
                                "all_reduce");
                            rank.expect_ok(tutti_group_end(), "end");
                            wanted *= rank.count();
                          }
                          rank.expect_ok(tutti_host_stream_synchronize(stream.get()), "synchronize");
                          rank.expect_true(data[999] == wanted, "order");
                          rank.expect_ok(tutti_comm_destroy(other), "destroy");
                        }),
            "");
}

// Goal: the calls of a communicator in a group are one operation on whichever host streams they are: messages
// that are larger than the links meet, in either order of the streams. They once were an operation a stream.
TEST_P(StreamsTest, AGroupsMessagesMayNameSeveralStreams) {
  EXPECT_EQ(
      run_cluster(options(),
                  [](Rank& rank) {
                    constexpr size_t kMany = 2'000'000;
                    const Stream one(rank);
                    const Stream two(rank);
                    const int next = (rank.rank() + 1) % rank.count();
                    const int previous = (rank.rank() + rank.count() - 1) % rank.count();
                    const std::vector<float> sent(kMany, static_cast<float>(rank.rank()));
                    std::vector<float> got(kMany, -1.0f);
                    rank.expect_ok(tutti_group_start(), "start");
                    rank.expect_ok(
                        tutti_send(sent.data(), kMany, TUTTI_FLOAT32, next, 0, rank.comm, one.tag()), "send");
                    rank.expect_ok(
                        tutti_recv(got.data(), kMany, TUTTI_FLOAT32, previous, 0, rank.comm, two.tag()),
                        "recv");
                    rank.expect_ok(tutti_group_end(), "end");
                    rank.expect_ok(tutti_host_stream_synchronize(two.get()), "synchronize");
                    rank.expect_true(got == std::vector<float>(kMany, static_cast<float>(previous)), "data");
                  }),
      "");
}

// Goal: collectives of a group keep their order across streams, come after what all of these hold, and before
// what they are given later. Method: each sum works on what the one before has left.
TEST_P(StreamsTest, AGroupsCollectivesKeepTheirOrderAcrossStreams) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          tutti_comm_t* other = nullptr;
                          if (!rank.expect_ok(tutti_comm_split(rank.comm, 0, 0, &other, nullptr), "split"))
                            return;
                          {
                            const Stream one(rank);
                            const Stream two(rank);
                            std::vector<int64_t> data(20'000, 1);
                            const auto sum = [&](tutti_comm_t* comm, const Stream& stream) {
                              rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(),
                                                              TUTTI_INT64, TUTTI_SUM, comm, stream.tag()),
                                             "sum");
                            };
                            sum(other, two);
                            rank.expect_ok(tutti_group_start(), "start");
                            sum(rank.comm, one);
                            sum(rank.comm, two);
                            rank.expect_ok(tutti_group_end(), "end");
                            sum(other, two);
                            rank.expect_ok(tutti_host_stream_synchronize(two.get()), "synchronize");
                            int64_t wanted = 1;
                            for (int i = 0; i < 4; ++i) wanted *= rank.count();
                            rank.expect_true(data == std::vector<int64_t>(20'000, wanted), "data");
                          }
                          rank.expect_ok(tutti_comm_destroy(other), "destroy");
                        }),
            "");
}

// Goal: a group that mixes blocking calls and streams of one communicator is refused before anything happens.
TEST_P(StreamsTest, AGroupDoesNotMixStreamsAndBlockingCalls) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          const Stream stream(rank);
                          float value = 1;
                          rank.expect_ok(tutti_group_start(), "start");
                          for (const tutti_stream_t one : {TUTTI_BLOCKING, stream.tag()}) {
                            rank.expect_ok(
                                tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, one),
                                "inside");
                          }
                          rank.expect(tutti_group_end(), TUTTI_INVALID_USAGE, "end");
                          rank.expect_text({"mixes", "TUTTI_BLOCKING"}, "end");
                          rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                          rank.expect_true(value == 1.0f, "something was issued");
                        }),
            "");
}

// Goal: an error of an operation on a stream is reported by synchronize, once, and by the next call.
TEST_P(StreamsTest, ReportErrorsAtSynchronize) {
  if (GetParam().layout == threads(1)) GTEST_SKIP() << "one rank cannot mismatch";
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          const Stream stream(rank);
                          std::vector<float> data(100, 1.0f);
                          const size_t count = rank.rank() == 0 ? 10 : 11;
                          rank.expect_ok(tutti_all_reduce(data.data(), data.data(), count, TUTTI_FLOAT32,
                                                          TUTTI_SUM, rank.comm, stream.tag()),
                                         "issue");
                          tutti_result_t result = tutti_host_stream_synchronize(stream.get());
                          const bool failed = result != TUTTI_SUCCESS;
                          if (!failed) result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
                          rank.expect(result, TUTTI_MISMATCH, "synchronize");
                          rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_MISMATCH, "next call");
                          rank.expect_ok(tutti_host_stream_synchronize(stream.get()), "a second synchronize");
                          expect_destroy(rank, failed ? TUTTI_MISMATCH : TUTTI_SUCCESS);
                        }),
            "");
}

/// What a notification was told.
struct Told {
  const int64_t* data = nullptr;
  int64_t value = 0;  ///< of *data then
  int calls = 0;
  tutti_result_t result = TUTTI_IN_PROGRESS;
  std::string text;

  static void tell(void* context, tutti_result_t result, const char* text) {
    auto* told = static_cast<Told*>(context);
    if (told->data != nullptr) told->value = *told->data;
    ++told->calls;
    told->result = result;
    told->text = text;
  }
};

// Goal: a notification comes once, after the operations before it and before those after it; synchronize
// waits for it. On an idle stream it comes at once.
// Method: sums of equal ranks multiply the data; each notification looks at the data.
TEST_P(StreamsTest, NotifyOfEachOperation) {
  EXPECT_EQ(
      run_cluster(options(),
                  [](Rank& rank) {
                    const Stream stream(rank);
                    std::vector<int64_t> data(1'000, 1);
                    std::array<Told, 4> told;
                    for (Told& one : told) {
                      one.data = data.data();
                      rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_INT64,
                                                      TUTTI_SUM, rank.comm, stream.tag()),
                                     "sum");
                      rank.expect_ok(tutti_host_stream_notify(stream.get(), Told::tell, &one), "notify");
                    }
                    rank.expect_ok(tutti_host_stream_synchronize(stream.get()), "synchronize");
                    int64_t least = 1;
                    for (const Told& one : told) {
                      least *= rank.count();
                      rank.expect_true(one.calls == 1 && one.result == TUTTI_SUCCESS && one.text.empty(),
                                       "a notification did not come once, with success");
                      rank.expect_true(one.value >= least, "a notification came before its operation");
                    }
                    Told idle;
                    rank.expect_ok(tutti_host_stream_notify(stream.get(), Told::tell, &idle), "idle");
                    rank.expect_true(idle.calls == 1 && idle.result == TUTTI_SUCCESS,
                                     "no notification from an idle stream");
                    rank.expect(tutti_host_stream_notify(stream.get(), nullptr, &idle),
                                TUTTI_INVALID_ARGUMENT, "no function");
                  }),
      "");
}

// Goal: each notification gets the result of its own operation, with the sentence.
TEST_P(StreamsTest, NotifyOfTheOwnResult) {
  if (GetParam().layout == threads(1)) GTEST_SKIP() << "one rank cannot mismatch";
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          const Stream stream(rank);
                          std::vector<int64_t> data(100'000, 1);
                          std::array<Told, 3> told;
                          tutti_result_t result = TUTTI_SUCCESS;
                          size_t calls = 0;
                          // All ranks end the first call before one raises the alert of the second. A rank
                          // that gets through the second fails in the third.
                          for (; calls < told.size() && result == TUTTI_SUCCESS; ++calls) {
                            const size_t count = calls > 0 && rank.rank() == 0 ? 99'999 : 100'000;
                            rank.expect_ok(tutti_all_reduce(data.data(), data.data(), count, TUTTI_INT64,
                                                            TUTTI_SUM, rank.comm, stream.tag()),
                                           "issue");
                            rank.expect_ok(tutti_host_stream_notify(stream.get(), Told::tell, &told[calls]),
                                           "notify");
                            result = tutti_host_stream_synchronize(stream.get());
                            if (calls == 0) rank.meet();
                          }
                          rank.expect(result, TUTTI_MISMATCH, "synchronize");
                          rank.expect_true(told[0].result == TUTTI_SUCCESS, "the first result");
                          const Told& last = told[calls - 1];
                          rank.expect_true(calls > 1 && last.result == TUTTI_MISMATCH &&
                                               last.text.find("count") != std::string::npos,
                                           "the last result: " + last.text);
                          expect_destroy(rank, TUTTI_MISMATCH);
                        }),
            "");
}

// Goal: an operation on a stream that failed is reported by destroy, even if nobody has looked at the stream;
// by finalize, if that came first, and then not again.
// Method: rank 0 reduces another count than the rest, twice: who gets through the first fails in the second.
TEST_P(StreamsTest, ReportErrorsAtDestroy) {
  if (GetParam().layout == threads(1)) GTEST_SKIP() << "one rank cannot mismatch";
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          const Stream stream(rank);
                          std::vector<float> data(100'000, 1.0f);
                          const size_t count = rank.rank() == 0 ? 100'000 : 99'999;
                          for (int call = 0; call < 2; ++call) {
                            rank.expect_ok(tutti_all_reduce(data.data(), data.data(), count, TUTTI_FLOAT32,
                                                            TUTTI_SUM, rank.comm, stream.tag()),
                                           "issue");
                          }
                          // Nobody leaves before all know.
                          for (tutti_result_t state = TUTTI_SUCCESS; state == TUTTI_SUCCESS;
                               std::this_thread::yield())
                            rank.expect_ok(tutti_comm_async_error(rank.comm, &state), "async_error");
                          rank.meet();
                          if (rank.rank() == 0) {
                            rank.expect(tutti_comm_finalize(rank.comm), TUTTI_MISMATCH, "finalize");
                            rank.expect_text({"rank ", "count"}, "finalize");
                            expect_destroy(rank, TUTTI_SUCCESS);
                          } else {
                            expect_destroy(rank, TUTTI_MISMATCH);
                            rank.expect_text({"rank ", "count"}, "destroy");
                          }
                          rank.expect(tutti_host_stream_synchronize(stream.get()), TUTTI_MISMATCH, "stream");
                        }),
            "");
}

// Goal: destroying a communicator waits for what its streams hold; aborting does not.
TEST_P(StreamsTest, DestroyWaitsAndAbortDoesNot) {
  EXPECT_EQ(run_cluster(
                options(),
                [](Rank& rank) {
                  const Stream stream(rank);
                  std::vector<float> data(50'000, 1.0f);
                  tutti_comm_t* other = nullptr;
                  if (!rank.expect_ok(tutti_comm_split(rank.comm, 0, 0, &other, nullptr), "split")) return;
                  rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32,
                                                  TUTTI_SUM, other, stream.tag()),
                                 "all_reduce");
                  rank.expect_ok(tutti_comm_destroy(other), "destroy");
                  rank.expect_true(data[49'999] == static_cast<float>(rank.count()), "destroy did not wait");
                  if (rank.count() == 1) return;
                  if (rank.rank() == 0) {
                    // The peers never come.
                    rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32,
                                                    TUTTI_SUM, rank.comm, stream.tag()),
                                   "all_reduce");
                    rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
                    rank.comm = nullptr;
                    rank.expect(tutti_host_stream_synchronize(stream.get()), TUTTI_ABORTED, "synchronize");
                    rank.add(0);
                  } else {
                    rank.wait_value(0, 1);
                    rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_ABORTED, "the peers");
                  }
                }),
            "");
}

// Goal: an explanation is of what has been issued, on streams too. It once read what the progress thread was
// just writing, and told of an earlier call.
TEST(ExplainTest, WaitsForTheStreams) {
  EXPECT_EQ(run_cluster({.layout = processes(2)},
                        [](Rank& rank) {
                          const Stream stream(rank);
                          for (size_t count = 1; count < 200; ++count) {
                            std::vector<float> data(count, 1.0f);
                            rank.expect_ok(tutti_all_reduce(data.data(), data.data(), count, TUTTI_FLOAT32,
                                                            TUTTI_SUM, rank.comm, stream.tag()),
                                           "all_reduce");
                            char text[512];
                            rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof(text)), "explain");
                            const std::string wanted = "count " + std::to_string(count) + ")";
                            rank.expect_true(std::string(text).find(wanted) != std::string::npos,
                                             wanted + " is not in: " + text);
                          }
                        }),
            "");
}

// Goal: a stream that was destroyed is refused by every call, also at the end of a group whose call named it
// while it lived. Its memory was once read after it had been freed.
TEST(StreamHandleTest, IsRefusedOnceDestroyed) {
  EXPECT_EQ(
      run_cluster({.layout = processes(1)},
                  [](Rank& rank) {
                    tutti_host_stream_t* stream = nullptr;
                    rank.expect_ok(tutti_host_stream_create(&stream), "create");
                    float value = 1;
                    const auto sum = [&] {
                      return tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                              tutti_stream_host(stream));
                    };
                    rank.expect_ok(tutti_group_start(), "start");
                    rank.expect_ok(sum(), "inside");
                    rank.expect_ok(tutti_host_stream_destroy(stream), "destroy");
                    rank.expect(tutti_group_end(), TUTTI_INVALID_USAGE, "end");
                    rank.expect_text({"stream", "destroyed"}, "end");
                    rank.expect(sum(), TUTTI_INVALID_USAGE, "a call");
                    rank.expect(tutti_host_stream_query(stream), TUTTI_INVALID_USAGE, "query");
                    rank.expect(tutti_host_stream_synchronize(stream), TUTTI_INVALID_USAGE, "synchronize");
                    rank.expect(tutti_host_stream_destroy(stream), TUTTI_INVALID_USAGE, "a second destroy");
                  }),
      "");
}

// Goal: a forked child is told so by its streams, and does not wait for the parent's threads. Method: the
// stream holds an operation that waits for rank 1.
TEST(StreamHandleTest, IsRefusedInAForkedChild) {
  if (thread_sanitized()) GTEST_SKIP() << "its locks may be another thread's at the fork, for good";
  EXPECT_EQ(run_cluster({.layout = processes(2)},
                        [](Rank& rank) {
                          if (rank.rank() == 1) {
                            rank.wait_value(0, 1);
                            rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                            return;
                          }
                          const Stream stream(rank);
                          rank.expect_ok(tutti_barrier(rank.comm, stream.tag()), "barrier");
                          const pid_t child = fork();
                          if (child == 0) {
                            prctl(PR_SET_PDEATHSIG, SIGKILL);
                            skip_leak_check();
                            tutti_host_stream_t* other = nullptr;
                            const bool refused =
                                tutti_host_stream_query(stream.get()) == TUTTI_INVALID_USAGE &&
                                std::string(tutti_last_error()).find("fork") != std::string::npos &&
                                tutti_host_stream_synchronize(stream.get()) == TUTTI_INVALID_USAGE &&
                                tutti_host_stream_create(&other) == TUTTI_INVALID_USAGE &&
                                tutti_host_stream_destroy(stream.get()) == TUTTI_INVALID_USAGE;
                            _exit(refused ? 0 : 1);
                          }
                          int status = -1;
                          rank.expect_true(waitpid(child, &status, 0) == child && status == 0, "the child");
                          rank.add(0);
                          rank.expect_ok(tutti_host_stream_synchronize(stream.get()), "the parent");
                        }),
            "");
}

// Goal: a stream alone is no use of the library: who has made one may still fork the ranks.
TEST(StreamHandleTest, MayBeMadeBeforeRanksAreForked) {
  EXPECT_EQ(run_child([] {
              tutti_host_stream_t* stream = nullptr;
              if (tutti_host_stream_create(&stream) != TUTTI_SUCCESS) return std::string("create");
              const pid_t child = fork();
              if (child == 0) {
                skip_leak_check();
                tutti_comm_t* comm = nullptr;
                const bool good = tutti_comm_create_all(&comm, 1, nullptr) == TUTTI_SUCCESS &&
                                  tutti_comm_destroy(comm) == TUTTI_SUCCESS;
                _exit(good ? 0 : 1);
              }
              int status = -1;
              if (waitpid(child, &status, 0) != child || status != 0) return std::string("the child");
              return std::string(tutti_host_stream_destroy(stream) == TUTTI_SUCCESS ? "" : "destroy");
            }),
            "");
}

/// The kernel's sched_attr of 48 bytes; its runtime is the time slice of an ordinary thread, since
/// Linux 6.12.
using Scheduling = std::array<uint64_t, 6>;
constexpr size_t kRuntime = 3;

uint64_t time_slice_ns(long thread) {
  Scheduling scheduling{};
  return ::syscall(SYS_sched_getattr, thread, scheduling.data(), sizeof(scheduling), 0) == 0
             ? scheduling[kRuntime]
             : 0;
}

bool time_slices_can_be_set() {
  bool can = false;
  std::thread([&can] {
    Scheduling scheduling{};
    if (::syscall(SYS_sched_getattr, 0, scheduling.data(), sizeof(scheduling), 0) != 0) return;
    scheduling[kRuntime] = 100'000;
    can = ::syscall(SYS_sched_setattr, 0, scheduling.data(), 0) == 0 && time_slice_ns(0) == 100'000;
  }).join();
  return can;
}

std::set<long> own_threads() {
  std::set<long> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    threads.insert(std::stol(entry.path().filename()));
  return threads;
}

// Goal: a progress thread that gives its core away beside computing threads gets it back soon: its time
// slices are the shortest there are, and nobody else's change. Method: the kernel is asked about all threads.
TEST(ProgressThreadTest, HasShortTimeSlices) {
  if (!time_slices_can_be_set())
    GTEST_SKIP() << "this kernel has one time slice for all (Linux 6.12 changed that)";
  const auto body = [](Rank& rank) {
    const uint64_t usual_ns = time_slice_ns(0);
    const std::set<long> before = own_threads();
    const Stream stream(rank);
    float value = 1;
    rank.expect_ok(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, stream.tag()),
                   "sum");
    rank.expect_ok(tutti_host_stream_synchronize(stream.get()), "synchronize");
    int found = 0;
    for (const long thread : own_threads()) {
      const bool progresses = !before.contains(thread);
      found += progresses ? 1 : 0;
      rank.expect_true(
          time_slice_ns(thread) == (progresses ? 100'000 : usual_ns),
          "thread " + std::to_string(thread) + ": " + std::to_string(time_slice_ns(thread)) + " ns");
    }
    rank.expect_true(found == 1, std::to_string(found) + " progress threads");
  };
  EXPECT_EQ(run_cluster({.layout = processes(1)}, body), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, StreamsTest,
                         testing::Values(Arrangement{threads(1)}, Arrangement{threads(3)},
                                         Arrangement{threads(3), 2}, Arrangement{processes(2)},
                                         Arrangement{mixed(3)}, Arrangement{mixed(3), 3},
                                         Arrangement{processes(3), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace tutti::test
