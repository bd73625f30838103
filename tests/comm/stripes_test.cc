// Operations that several threads of a rank work on, as a user meets them: settings, failures, leaving.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr size_t kCount = 100'000;
// A deadline that is waited for, yet long enough for the calls before it on a loaded machine.
const auto kShortTimeoutMs = static_cast<uint64_t>(patience_s(1)) * 1000;

tutti_result_t sum(Rank& rank, float* data, size_t count) {
  return tutti_all_reduce(data, data, count, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING);
}

std::string explain(Rank& rank) {
  char text[512] = "";
  rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof(text)), "explain");
  return text;
}

// Goal: so many threads work on a call as its bytes ask for, at most those of the setting; users are told.
TEST(StripesTest, LongCallsUseThreadsAndShortOnesDoNot) {
  for (const auto& layout : {threads(1), threads(2), processes(2)}) {
    ClusterOptions options;
    options.layout = layout;
    options.config.threads = 3;
    options.environment = {{"TUTTI_STRIPE_BYTES", "4000"}};
    EXPECT_EQ(
        run_cluster(
            options,
            [](Rank& rank) {
              std::vector<float> data(kCount, 1.0f);
              for (int turn = 0; turn < 2; ++turn) {
                rank.expect_ok(sum(rank, data.data(), 1999), "short");
                rank.expect_true(explain(rank).find("threads a rank") == std::string::npos, explain(rank));
                rank.expect_ok(sum(rank, data.data(), 2000), "of two");
                rank.expect_true(explain(rank).find("2 threads a rank") != std::string::npos, explain(rank));
                rank.expect_ok(sum(rank, data.data(), kCount), "of three");
                rank.expect_true(explain(rank).find("3 threads a rank") != std::string::npos, explain(rank));
              }
            }),
        "")
        << layout_name(layout);
  }
}

// Goal: the environment sets the number for every communicator, and parts of one inherit it.
TEST(StripesTest, TheSettingComesFromTheEnvironmentAndIsInherited) {
  ClusterOptions options;
  options.environment = {{"TUTTI_STRIPE_BYTES", "64"}, {"TUTTI_THREADS", "2"}};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          tutti_comm_t* const whole = rank.comm;
                          std::vector<float> data(kCount, 1.0f);
                          if (!rank.expect_ok(tutti_comm_split(whole, 0, 0, &rank.comm, nullptr), "split"))
                            return;
                          rank.expect_ok(sum(rank, data.data(), kCount), "all_reduce");
                          rank.expect_true(explain(rank).find("2 threads a rank") != std::string::npos,
                                           explain(rank));
                          rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                          rank.comm = whole;
                        }),
            "");
}

/// Pages that are gone when it ends: whoever touches them later crashes.
class Pages {
 public:
  Pages()
      : memory_(mmap(nullptr, kCount * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0)) {}
  ~Pages() { munmap(memory_, kCount * sizeof(float)); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  float* data() const { return static_cast<float*>(memory_); }

 private:
  void* memory_;
};

/// A way to fail while the workers of rank 0 and 1 are in their stripes; rank 2 has not come.
struct Failure {
  const char* name;
  tutti_result_t result;
  std::function<void(Rank&)> rank_2;
  std::vector<std::string> texts;
};

std::vector<Failure> all_failures() {
  return {{"deadline",
           TUTTI_TIMEOUT,
           [](Rank& rank) { rank.wait_value(0, 2); },
           {"rank 2", "all_reduce(float32, sum, count 100000)", "no progress"}},
          {"mismatch",
           TUTTI_MISMATCH,
           [](Rank& rank) {
             std::vector<float> data(kCount, 1.0f);
             rank.expect(sum(rank, data.data(), kCount - 1), TUTTI_MISMATCH, "the odd one");
           },
           {"count 99999", "count 100000"}},
          {"small odd call",
           TUTTI_MISMATCH,
           [](Rank& rank) {
             float data = 1;
             rank.expect(sum(rank, &data, 1), TUTTI_MISMATCH, "the odd one");
           },
           {"count 1)"}},
          {"abort",
           TUTTI_ABORTED,
           [](Rank& rank) {
             rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
             rank.comm = nullptr;
           },
           {"rank 2"}},
          {"leaving",
           TUTTI_PEER_LOST,
           [](Rank& rank) {
             // TUTTI_MISMATCH if messages of the others have come by then.
             static_cast<void>(tutti_comm_destroy(rank.comm));
             rank.comm = nullptr;
           },
           {"rank 2", "left"}}};
}

// Goal: a call that fails returns when no thread touches its buffers any more, with the diagnosis that one
// thread would have given. Method: the buffers are unmapped as soon as the call is back.
TEST(StripesTest, AFailedCallLeavesItsBuffersAlone) {
  for (const Failure& failure : all_failures()) {
    for (const Arrangement& arrangement :
         {Arrangement{threads(3), 2}, Arrangement{processes(3), 2}, Arrangement{processes(3), 4}}) {
      ClusterOptions options = arrangement.options();
      options.config.timeout_ms = failure.result == TUTTI_TIMEOUT ? kShortTimeoutMs : 100'000;
      EXPECT_EQ(run_cluster(options,
                            [&failure](Rank& rank) {
                              std::vector<float> warm(kCount, 1.0f);
                              rank.expect_ok(sum(rank, warm.data(), kCount), "before");
                              rank.meet();
                              if (rank.rank() == 2) return failure.rank_2(rank);
                              {
                                const Pages pages;
                                rank.expect(sum(rank, pages.data(), kCount), failure.result, failure.name);
                                rank.expect_text(failure.texts, failure.name);
                              }
                              rank.add(0);
                              rank.expect(sum(rank, warm.data(), kCount), failure.result, "afterwards");
                            }),
                "")
          << failure.name << ", " << arrangement.name();
    }
  }
}

/// The threads of this process.
std::set<pid_t> tasks() {
  std::set<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    result.insert(std::stoi(entry.path().filename()));
  }
  return result;
}

constexpr const char* kCannotTrace = "holding a thread of another process needs the right to trace it";

/// Holds a thread of another process still; by a thread of its own, as a tracer must be one.
class Hold {
 public:
  explicit Hold(pid_t task) : tracer_([this, task] { hold(task); }) { state_.wait(kBegun); }
  ~Hold() {
    release();
    tracer_.join();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  bool holds() const { return state_ == kHolds; }
  void release() {
    state_ = kReleased;
    state_.notify_one();
  }

 private:
  enum State { kBegun, kHolds, kFailed, kReleased };

  void hold(pid_t task) {
    const bool held = ptrace(PTRACE_SEIZE, task, nullptr, nullptr) == 0 &&
                      ptrace(PTRACE_INTERRUPT, task, nullptr, nullptr) == 0 &&
                      waitpid(task, nullptr, __WALL) == task;
    state_ = held ? kHolds : kFailed;
    state_.notify_one();
    state_.wait(kHolds);
    if (held) ptrace(PTRACE_DETACH, task, nullptr, nullptr);
  }

  std::atomic<State> state_{kBegun};
  std::thread tracer_;
};

/// Gives rank 1 a communicator whose worker rank 0 holds, and runs a call of both ranks in `body`.
std::string run_with_a_held_worker(const tutti_config_t& config,
                                   const std::function<void(Rank&, Hold*)>& body) {
  ClusterOptions options = Arrangement{processes(2), 2}.options();
  options.create = false;
  return run_cluster(options, [&](Rank& rank) {
    // Threads that every process has exist after the first communicator.
    if (!rank.renew()) return;
    rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
    const std::set<pid_t> before = tasks();
    if (!rank.renew(config)) return;
    std::vector<pid_t> workers;
    std::ranges::set_difference(tasks(), before, std::back_inserter(workers));
    auto* task = static_cast<std::atomic<pid_t>*>(rank.shared_bytes());
    if (rank.rank() == 1 && rank.expect_true(workers.size() == 1, "not one worker")) *task = workers[0];
    rank.meet();
    std::optional<Hold> hold;
    if (rank.rank() == 0) {
      hold.emplace(*task);
      if (!hold->holds()) {
        rank.fail(kCannotTrace);
        rank.add(1);
      }
    }
    rank.meet();
    if (rank.value(1) == 0) body(rank, hold ? &*hold : nullptr);
    if (hold) hold->release();
    rank.meet();
  });
}

// Goal: what only a worker waits for ends by the deadline as well, with a text that says for whom.
TEST(StripesTest, AStripeThatDoesNotComeIsNamedAtTheDeadline) {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.threads = 2;
  config.timeout_ms = kShortTimeoutMs;
  const std::string failures = run_with_a_held_worker(config, [](Rank& rank, Hold* hold) {
    // So long that the ranks exchange twice: rank 1 needs a sum of rank 0, which has given up.
    std::vector<float> data(2 * kCount, 1.0f);
    rank.expect(sum(rank, data.data(), 2 * kCount), TUTTI_TIMEOUT, "all_reduce");
    if (hold != nullptr) rank.expect_text({"rank 0 waits", "from rank 1", "count 200000"}, "rank 0");
  });
  if (failures.find(kCannotTrace) != std::string::npos) GTEST_SKIP() << kCannotTrace;
  EXPECT_EQ(failures, "");
}

// Goal: a stripe that is late is no error, and the call that waited is complete.
TEST(StripesTest, AStripeThatIsLateIsNoError) {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.threads = 2;
  const std::string failures = run_with_a_held_worker(config, [](Rank& rank, Hold* hold) {
    std::thread late;
    if (hold != nullptr) {
      late = std::thread([hold] {
        usleep(150'000);  // the fault itself: far longer than ranks wait before they look at each other
        hold->release();
      });
    }
    std::vector<float> data(kCount, 1.0f);
    rank.expect_ok(sum(rank, data.data(), kCount), "the late call");
    rank.expect_ok(sum(rank, data.data(), 1), "a short call after it");
    rank.expect_true(data[0] == 4.0f, "wrong data of the short call");
    rank.expect_ok(sum(rank, &data[1], kCount - 1), "a long call after it");
    rank.expect_true(std::all_of(data.begin(), data.end(), [](float value) { return value == 4.0f; }),
                     "wrong data");
    if (late.joinable()) late.join();
  });
  if (failures.find(kCannotTrace) != std::string::npos) GTEST_SKIP() << kCannotTrace;
  EXPECT_EQ(failures, "");
}

// Goal: one thread that drives two communicators does not wait for the workers of the one while the other's
// peers wait for it. Method: a group of two broadcasts, whose roots are done early; ranks name them in
// different orders.
TEST(StripesTest, AGroupDrivesSeveralCommunicators) {
  for (const Arrangement& arrangement : {Arrangement{threads(2), 2}, Arrangement{processes(2), 3}}) {
    EXPECT_EQ(run_cluster(arrangement.options(),
                          [](Rank& rank) {
                            tutti_comm_t* other = nullptr;
                            if (!rank.expect_ok(tutti_comm_split(rank.comm, 0, 0, &other, nullptr), "split"))
                              return;
                            std::array<tutti_comm_t*, 2> comms = {rank.comm, other};
                            std::array<std::vector<float>, 2> data;
                            for (int turn = 0; turn < 20; ++turn) {
                              for (auto& one : data)
                                one.assign(kCount, static_cast<float>(rank.rank() + turn));
                              (void)tutti_group_start();
                              for (const int i : {rank.rank(), 1 - rank.rank()}) {
                                const auto at = static_cast<size_t>(i);
                                (void)tutti_broadcast(data[at].data(), data[at].data(), kCount, TUTTI_FLOAT32,
                                                      i, comms[at], TUTTI_BLOCKING);
                              }
                              rank.expect_ok(tutti_group_end(), "group");
                              for (const size_t i : {0u, 1u}) {
                                rank.expect_true(
                                    data[i][kCount - 1] == static_cast<float>(i) + static_cast<float>(turn),
                                    "wrong data");
                              }
                            }
                            rank.expect_ok(tutti_comm_destroy(other), "destroy");
                          }),
              "")
        << arrangement.name();
  }
}

// Goal: the threads of a communicator end when it is finalized.
TEST(StripesTest, FinalizeEndsTheThreads) {
  ClusterOptions options = Arrangement{processes(2), 4}.options();
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          std::vector<float> data(kCount, 1.0f);
                          rank.expect_ok(sum(rank, data.data(), kCount), "all_reduce");
                          Holdings fewer = holdings();
                          fewer.threads -= 3;
                          rank.expect_ok(tutti_comm_finalize(rank.comm), "finalize");
                          rank.expect_true(settled_holdings(fewer).threads <= fewer.threads,
                                           "fewer than three threads have ended");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
