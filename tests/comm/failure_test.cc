// What goes wrong at run time: killed ranks, ranks that exit, deadlines, abort, forks, signals.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "comm/process.h"
#include "core/clock.h"
#include "health/inspector.h"
#include "tests/support/cluster.h"
#include "tests/support/control_shortage.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

tutti_result_t sum(Rank& rank, std::vector<float>& data) {
  return tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                          TUTTI_BLOCKING);
}

/// What rank 1 is doing when it is killed, and what the others wait in.
struct Death {
  const char* name;
  size_t count;  ///< elements of the collective that is never finished; 0: survivors only poll async_error
  bool in_the_call;  ///< the victim dies inside its call, at a time that varies
  int threads_a_rank = 1;
  int hosts = 1;
};

void PrintTo(const Death& death, std::ostream* out) {
  *out << death.name;
}

class DeathTest : public testing::TestWithParam<Death> {};

// Goal: a killed process is an error naming its rank on every survivor within 2 s, and nothing of it stays.
// Method: four processes; descriptors and shared mappings of a survivor are counted before and after.
TEST_P(DeathTest, GivesEverySurvivorAnErrorNamingTheRank) {
  const Death death = GetParam();
  ClusterOptions options = Arrangement{processes(4), death.threads_a_rank, death.hosts}.options();
  options.create = false;
  options.lost_processes = {1};
  const std::string failures = run_cluster(options, [death](Rank& rank) {
    if (!rank.renew()) return;
    std::vector<float> data(std::max<size_t>(death.count, 1), 1.0f);
    rank.expect_ok(sum(rank, data), "before");
    rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
    const Holdings before = holdings();
    if (!rank.renew()) return;
    rank.expect_ok(sum(rank, data), "before");
    rank.meet();
    if (rank.rank() == 1) {
      if (death.in_the_call) {
        std::thread([] { kill(getpid(), SIGKILL); }).detach();
        while (sum(rank, data) == TUTTI_SUCCESS) {
        }
      }
      kill(getpid(), SIGKILL);
    }
    tutti_result_t result = TUTTI_SUCCESS;
    while (result == TUTTI_SUCCESS) {
      if (death.count == 0) {
        rank.expect_ok(tutti_comm_async_error(rank.comm, &result), "async_error");
      } else {
        result = sum(rank, data);
      }
      if (rank.is_dead(1) && result == TUTTI_SUCCESS) {
        // From here on the 2 s count.
        const double start = seconds_now();
        while (result == TUTTI_SUCCESS && seconds_now() < start + 2 * patience_s(1)) {
          rank.expect_ok(tutti_comm_async_error(rank.comm, &result), "async_error");
        }
        break;
      }
    }
    rank.expect(result, TUTTI_PEER_LOST, "after the death");
    rank.expect(sum(rank, data), TUTTI_PEER_LOST, "another call");
    rank.expect_text({"rank 1"}, "another call");
    rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
    rank.comm = nullptr;
    const Holdings after = settled_holdings(before);
    rank.expect_true(after.descriptors <= before.descriptors,
                     "descriptors: " + std::to_string(before.descriptors) + " before, " +
                         std::to_string(after.descriptors) + " after");
    rank.expect_true(after.threads <= before.threads, "threads have leaked");
    rank.expect_true(after.shared_mappings <= before.shared_mappings,
                     "shared mappings: " + std::to_string(before.shared_mappings) + " before, " +
                         std::to_string(after.shared_mappings) + " after");
  });
  EXPECT_EQ(failures, "");
}

INSTANTIATE_TEST_SUITE_P(
    Deaths, DeathTest,
    testing::Values(Death{"WhileOthersWait", 1000, false}, Death{"WhileOthersCompute", 0, false},
                    Death{"WhileThreadsWait", 1000, false, 3}, Death{"InsideALongCall", 1 << 20, true},
                    Death{"InsideALongCallOfThreads", 1 << 20, true, 2}, Death{"InsideAShortCall", 1, true},
                    Death{"OnHostsWhileOthersWait", 1000, false, 1, 2},
                    Death{"OnHostsWhileOthersCompute", 0, false, 1, 2},
                    Death{"OnHostsInsideALongCall", 1 << 20, true, 1, 2},
                    Death{"OnHostsInsideAShortCall", 1, true, 1, 4}),
    [](const auto& test) { return test.param.name; });

// Goal: a death is told without memory, on one host and between two. The control thread, which tells it, once
// ended the survivor's process.
TEST(DeathWithoutMemoryTest, IsTold) {
  for (const int hosts : {1, 2}) {
    ClusterOptions options = Arrangement{processes(2), 1, hosts}.options();
    options.lost_processes = {1};
    const std::string failures = run_cluster(options, [](Rank& rank) {
      rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "before");
      std::optional<ControlShortage> shortage;
      if (rank.rank() == 0) shortage.emplace((*Process::instance())->control(), 0, UINT64_MAX);
      if (!rank.meet()) return;
      if (rank.rank() == 1) kill(getpid(), SIGKILL);
      rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_PEER_LOST, "barrier");
      rank.expect_text({"has ended"}, "barrier");
    });
    EXPECT_EQ(failures, "") << hosts << " hosts";
  }
}

// Goal: a process that is stopped is lost within the heartbeat time, on its own host and on others, for ranks
// that wait and for ranks that compute, who go on without it; once it runs again it learns so too.
TEST(HeartbeatTest, AStoppedProcessIsLost) {
  for (const int hosts : {1, 2, 3}) {
    ClusterOptions options = Arrangement{processes(3), 1, hosts}.options();
    options.environment.emplace_back("TUTTI_HEARTBEAT_MS", std::to_string(1000 * patience_s(1)));
    const std::string failures = run_cluster(options, [](Rank& rank) {
      std::vector<float> data(1000, 1.0f);
      rank.expect_ok(sum(rank, data), "before");
      rank.meet();
      tutti_result_t result = TUTTI_SUCCESS;
      if (rank.rank() == 1) {
        // Rank 2 wakes it when both others have seen that it is lost.
        kill(getpid(), SIGSTOP);
        result = sum(rank, data);
      } else if (rank.rank() == 0) {
        result = sum(rank, data);
      }
      const double deadline_s = seconds_now() + patience_s(20);
      while (result == TUTTI_SUCCESS && seconds_now() < deadline_s) {
        rank.expect_ok(tutti_comm_async_error(rank.comm, &result), "async_error");
        std::this_thread::yield();
      }
      rank.expect(result, TUTTI_PEER_LOST, "of the stopped process");
      if (rank.rank() != 1) rank.expect_text({"rank 1", "no sign of life"}, "of the stopped process");
      if (rank.rank() == 0) rank.add(0);
      if (rank.rank() == 2) {
        rank.wait_value(0, 1);
        kill(rank.pid_of_process(1), SIGCONT);
      }
      rank.meet();
      // Across hosts it once was alone in a communicator of its own then.
      tutti_comm_t* rest = nullptr;
      const tutti_result_t shrunk = tutti_comm_shrink(rank.comm, nullptr, 0, 0, &rest, nullptr);
      if (rank.rank() == 1) {
        rank.expect(shrunk, TUTTI_PEER_LOST, "its shrink");
        rank.expect_text({"rank 1 was stopped", "others have given it up"}, "its shrink");
      } else if (rank.expect_ok(shrunk, "shrink")) {
        (void)tutti_comm_destroy(std::exchange(rank.comm, rest));
        std::vector<float> ones(10, 1.0f);
        rank.expect_ok(sum(rank, ones), "after");
        rank.expect_true(ones[0] == 2, "two go on");
      }
    });
    EXPECT_EQ(failures, "") << hosts << " hosts";
  }
}

// Goal: a rank that computes for longer than the heartbeat time is no error.
TEST(HeartbeatTest, AComputingRankLives) {
  for (const int hosts : {1, 2}) {
    ClusterOptions options = Arrangement{processes(2), 1, hosts}.options();
    const int heartbeat_ms = 500 * patience_s(1);
    options.environment.emplace_back("TUTTI_HEARTBEAT_MS", std::to_string(heartbeat_ms));
    const std::string failures = run_cluster(options, [heartbeat_ms](Rank& rank) {
      std::vector<float> data(1000, 1.0f);
      const double until_s = seconds_now() + 2.5e-3 * heartbeat_ms;
      while (rank.rank() == 1 && seconds_now() < until_s) std::this_thread::yield();
      rank.expect_ok(sum(rank, data), "after a long computation");
      rank.meet();
    });
    EXPECT_EQ(failures, "") << hosts << " hosts";
  }
}

// Goal: a process that returns from main without destroying is no lost peer: what it has sent arrives.
// Method: the root of a broadcast exits; only then do the others receive; the next collective names the rank.
TEST(ExitTest, WithoutDestroyingLetsPeersFinish) {
  ClusterOptions options;
  options.layout = processes(3);
  const std::string failures = run_cluster(options, [](Rank& rank) {
    std::vector<float> data(10, static_cast<float>(rank.rank()));
    rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "before");
    if (rank.rank() == 2) {
      rank.expect_ok(
          tutti_broadcast(data.data(), data.data(), 10, TUTTI_FLOAT32, 2, rank.comm, TUTTI_BLOCKING),
          "the root");
      std::exit(0);
    }
    rank.wait_until_dead(2);
    rank.expect_ok(tutti_broadcast(nullptr, data.data(), 10, TUTTI_FLOAT32, 2, rank.comm, TUTTI_BLOCKING),
                   "after the root's exit");
    rank.expect_true(data[9] == 2.0f, "wrong data");
    rank.expect(sum(rank, data), TUTTI_PEER_LOST, "the next collective");
    rank.expect_text({"rank 2"}, "the next collective");
  });
  EXPECT_EQ(failures, "");
}

// Goal: a rank that is late by more than the deadline is an error on both sides, which says who waited for
// whom.
TEST(DeadlineTest, NamesWhoIsNotThere) {
  for (const auto& layout : {threads(3), processes(3)}) {
    ClusterOptions options;
    options.layout = layout;
    const int timeout_s = patience_s(1);
    options.config.timeout_ms = static_cast<uint64_t>(timeout_s) * 1000;
    const std::string failures = run_cluster(options, [timeout_s](Rank& rank) {
      std::vector<float> data(10, 1.0f);
      rank.meet();
      rank.expect_ok(sum(rank, data), "before");
      if (rank.rank() == 2) {
        rank.wait_value(0, 2);
      } else {
        const double start = seconds_now();
        rank.expect(sum(rank, data), TUTTI_TIMEOUT, "while rank 2 is late");
        rank.expect_true(seconds_now() - start > 0.9 * timeout_s, "too early");
        rank.expect_text({"rank 2", "all_reduce(float32, sum, count 10)", "finished collective 1"},
                         "diagnosis");
        rank.add(0);
      }
      rank.expect(sum(rank, data), TUTTI_TIMEOUT, "afterwards");
    });
    EXPECT_EQ(failures, "") << layout_name(layout);
  }
}

// A rank whose wait had ended went on to show whom it had waited for, and verdicts followed it to ranks that
// had nothing to do with them. Method: rank 1 waits long for rank 2, gets its message, and computes; then
// rank 0 waits for rank 1.
TEST(DeadlineTest, DoesNotFollowWaitsThatAreOver) {
  ClusterOptions options;
  options.layout = processes(3);
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          float value = 1;
                          const auto receive = [&](int peer) {
                            return tutti_recv(&value, 1, TUTTI_FLOAT32, peer, 0, rank.comm, TUTTI_BLOCKING);
                          };
                          rank.meet();
                          if (rank.rank() == 1) rank.expect_ok(receive(2), "late message");
                          if (rank.rank() == 2) {
                            std::string report;
                            while (report.find("waiting for rank 2") == report.npos) {
                              const auto answer = inspect(rank.pid_of_process(1), deadline_after_ms(5000));
                              report = answer ? *answer : "";
                            }
                            rank.expect_ok(
                                tutti_send(&value, 1, TUTTI_FLOAT32, 1, 0, rank.comm, TUTTI_BLOCKING),
                                "send");
                          }
                          rank.meet();
                          if (rank.rank() == 0) {
                            rank.expect_ok(tutti_comm_set_timeout(rank.comm, 200), "set_timeout");
                            rank.expect(receive(1), TUTTI_TIMEOUT, "from a rank that computes");
                            rank.expect_text({"rank 1 has made no collective call"}, "diagnosis");
                            const std::string text = tutti_last_error();
                            rank.expect_true(text.find("rank 2") == text.npos, text);
                          }
                          rank.meet();
                        }),
            "");
}

TEST(DeadlineTest, OfAReceiveNamesThePeer) {
  ClusterOptions options;
  options.config.timeout_ms = 300;
  const std::string failures = run_cluster(options, [](Rank& rank) {
    float value = 0;
    if (rank.rank() == 0) {
      rank.expect(tutti_recv(&value, 1, TUTTI_FLOAT32, 1, 0, rank.comm, TUTTI_BLOCKING), TUTTI_TIMEOUT,
                  "recv");
      rank.expect_text({"receive from rank 1", "send/recv"}, "recv");
    }
    rank.meet();
  });
  EXPECT_EQ(failures, "");
}

// Goal: ranks that wait for each other in messages outside a group are told what to do. Method: a circle of
// receives.
TEST(CircleTest, OfMessagesIsToldLongBeforeTheDeadline) {
  ClusterOptions options;
  options.layout = {1, 1, 1};
  const std::string failures = run_cluster(options, [](Rank& rank) {
    float value = 0;
    const int next = (rank.rank() + 1) % 3;
    rank.meet();
    rank.expect(tutti_recv(&value, 1, TUTTI_FLOAT32, next, 0, rank.comm, TUTTI_BLOCKING), TUTTI_MISMATCH,
                "recv");
    rank.expect_text({"wait for each other", "tutti_group_start"}, "recv");
    rank.meet();
  });
  EXPECT_EQ(failures, "");
}

tutti_result_t receive_from_1(Rank& rank, float& value, tutti_stream_t stream = TUTTI_BLOCKING) {
  return tutti_recv(&value, 1, TUTTI_FLOAT32, 1, 0, rank.comm, stream);
}

// Goal: a deadline set for some calls ends these, and no others: with a short one a wait fails that the
// config's ten minutes would allow.
TEST(CallDeadlineTest, EndsABlockingCall) {
  EXPECT_EQ(run_cluster({},
                        [](Rank& rank) {
                          float value = 0;
                          if (rank.rank() == 0) {
                            rank.expect_ok(tutti_comm_set_timeout(rank.comm, 200), "set_timeout");
                            rank.expect(receive_from_1(rank, value), TUTTI_TIMEOUT, "recv");
                            rank.expect_text({"receive from rank 1"}, "recv");
                          }
                          rank.meet();
                          rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_TIMEOUT,
                                      "on all ranks");
                        }),
            "");
}

// Goal: a longer one lets a wait succeed that the config's would end, also on the short path of a repeated
// call; 0 brings the config's back. Method: rank 1 comes late by three times the config's deadline.
TEST(CallDeadlineTest, OutlastsTheConfigsUntilItIsTakenBack) {
  ClusterOptions options;
  options.config.timeout_ms = 200;
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          std::vector<float> data(10, 1.0f);
                          rank.expect_ok(tutti_comm_set_timeout(rank.comm, 60'000), "set_timeout");
                          for (int turn = 0; turn < 3; ++turn) {
                            rank.meet();
                            if (rank.rank() == 1 && turn > 0) usleep(600'000);
                            rank.expect_ok(sum(rank, data), "late");
                          }
                          rank.expect_ok(tutti_comm_set_timeout(rank.comm, 0), "set_timeout");
                          float value = 0;
                          if (rank.rank() == 0)
                            rank.expect(receive_from_1(rank, value), TUTTI_TIMEOUT, "the config's");
                          rank.meet();
                        }),
            "");
}

// Goal: an operation on a stream has the deadline of when it was issued.
// Method: rank 1 sends the first of two messages later than the deadline that is set after it was asked for,
// and never the second.
TEST(CallDeadlineTest, BelongsToTheOperationOnAStream) {
  EXPECT_EQ(run_cluster({},
                        [](Rank& rank) {
                          if (rank.rank() == 1) {
                            const float value = 7;
                            usleep(500'000);
                            rank.expect_ok(
                                tutti_send(&value, 1, TUTTI_FLOAT32, 0, 0, rank.comm, TUTTI_BLOCKING),
                                "send");
                            rank.meet();
                            return;
                          }
                          tutti_host_stream_t* stream = nullptr;
                          rank.expect_ok(tutti_host_stream_create(&stream), "stream");
                          float first = 0;
                          float second = 0;
                          rank.expect_ok(receive_from_1(rank, first, tutti_stream_host(stream)), "first");
                          rank.expect_ok(tutti_comm_set_timeout(rank.comm, 100), "set_timeout");
                          rank.expect_ok(receive_from_1(rank, second, tutti_stream_host(stream)), "second");
                          rank.expect_ok(tutti_comm_set_timeout(rank.comm, 0), "set_timeout");
                          rank.expect(tutti_host_stream_synchronize(stream), TUTTI_TIMEOUT, "synchronize");
                          rank.expect_true(first == 7, "the first message came");
                          tutti_host_stream_destroy(stream);
                          rank.meet();
                          rank.expect(tutti_comm_destroy(rank.comm), TUTTI_TIMEOUT, "destroy tells it, too");
                          rank.comm = nullptr;
                        }),
            "");
}

// Goal: in a group each collective has its own, and the sends and receives together the longest of theirs.
// Method: rank 1's message comes later than the first receive's deadline, within the second's; then one that
// a short deadline covers alone never comes.
TEST(CallDeadlineTest, MessagesOfAGroupHaveTheLongestDeadline) {
  EXPECT_EQ(run_cluster({},
                        [](Rank& rank) {
                          float values[2] = {1, 2};
                          if (rank.rank() == 1) {
                            usleep(500'000);
                            tutti_group_start();
                            for (float& value : values)
                              tutti_send(&value, 1, TUTTI_FLOAT32, 0, 0, rank.comm, TUTTI_BLOCKING);
                            rank.expect_ok(tutti_group_end(), "group of sends");
                            rank.meet();
                            return;
                          }
                          tutti_group_start();
                          tutti_comm_set_timeout(rank.comm, 100);
                          receive_from_1(rank, values[0]);
                          tutti_comm_set_timeout(rank.comm, 60'000);
                          receive_from_1(rank, values[1]);
                          rank.expect_ok(tutti_group_end(), "the longest");
                          tutti_group_start();
                          tutti_comm_set_timeout(rank.comm, 100);
                          receive_from_1(rank, values[0]);
                          tutti_comm_set_timeout(rank.comm, 60'000);
                          rank.expect(tutti_group_end(), TUTTI_TIMEOUT, "the one it was called with");
                          rank.meet();
                        }),
            "");
}

// Goal: a rank that is slow, but within the deadline, is no error: neither a mismatch nor a lost peer.
// Method: the last rank comes 100 ms late to large messages that travel by reference from the heap.
TEST(DeadlineTest, SlowRanksAreNoError) {
  for (const char* algorithm : {"", "direct_one_shot", "direct", "ring"}) {
    for (const Arrangement& arrangement : {Arrangement{threads(4)}, Arrangement{processes(4)},
                                           Arrangement{processes(4), 2}, Arrangement{processes(4), 1, 2}}) {
      ClusterOptions options = arrangement.options();
      options.environment.emplace_back("TUTTI_ALGORITHM", algorithm);
      const std::string failures = run_cluster(options, [](Rank& rank) {
        constexpr size_t kCount = 40'000;
        void* memory = nullptr;
        rank.expect_ok(tutti_mem_alloc(&memory, 8 * kCount * sizeof(float)), "mem_alloc");
        auto* data = static_cast<float*>(memory);
        for (int turn = 0; turn < 3; ++turn) {
          rank.meet();
          if (rank.rank() == (turn == 2 ? 0 : rank.count() - 1)) usleep(100'000);
          rank.expect_ok(tutti_all_reduce(data, data + 4 * kCount, kCount, TUTTI_FLOAT32, TUTTI_SUM,
                                          rank.comm, TUTTI_BLOCKING),
                         "all_reduce");
          rank.expect_ok(
              tutti_all_gather(data, data + 4 * kCount, kCount, TUTTI_FLOAT32, rank.comm, TUTTI_BLOCKING),
              "all_gather");
          rank.expect_ok(tutti_broadcast(data, data, kCount, TUTTI_FLOAT32, 1, rank.comm, TUTTI_BLOCKING),
                         "broadcast");
        }
        rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
        rank.comm = nullptr;
        rank.expect_ok(tutti_mem_free(memory), "mem_free");
      });
      EXPECT_EQ(failures, "") << arrangement.name() << " " << algorithm;
    }
  }
}

/// A call that rank 2 never completes; rank 1 has its part of it only once this rank is inside.
tutti_result_t send_to_1_and_wait_for_2(Rank& rank, std::vector<float>& data) {
  float never = 0;
  tutti_group_start();
  tutti_send(data.data(), data.size(), TUTTI_FLOAT32, 1, 0, rank.comm, TUTTI_BLOCKING);
  tutti_recv(&never, 1, TUTTI_FLOAT32, 2, 0, rank.comm, TUTTI_BLOCKING);
  return tutti_group_end();
}

// Goal: abort from another thread wakes a blocked call, here and on every peer.
// Method: rank 0 is known to be inside its call when rank 1 has received from it.
TEST(AbortTest, WakesEveryWaitOnEveryRank) {
  for (const Arrangement& arrangement :
       {Arrangement{threads(3)}, Arrangement{threads(3), 2}, Arrangement{processes(3)},
        Arrangement{processes(3), 3}, Arrangement{processes(3), 1, 2}, Arrangement{processes(3), 1, 3}}) {
    ClusterOptions options = arrangement.options();
    const std::string failures = run_cluster(options, [](Rank& rank) {
      std::vector<float> data(50'000, 1.0f);
      rank.expect_ok(sum(rank, data), "before");
      rank.meet();  // or the abort reaches a rank inside the call before
      if (rank.rank() == 2) {
        // Never comes: rank 0 aborts meanwhile.
        rank.wait_value(0, 1);
        rank.expect(sum(rank, data), TUTTI_ABORTED, "the late rank");
        rank.expect_text({"rank 0"}, "the late rank");
        return;
      }
      if (rank.rank() == 1) {
        rank.expect_ok(tutti_recv(data.data(), data.size(), TUTTI_FLOAT32, 0, 0, rank.comm, TUTTI_BLOCKING),
                       "recv");
        rank.add(1);
        rank.expect(sum(rank, data), TUTTI_ABORTED, "the blocked peer");
        return;
      }
      std::atomic<int> result{-1};
      std::thread blocked([&] { result = send_to_1_and_wait_for_2(rank, data); });
      rank.wait_value(1, 1);
      rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
      rank.add(0);
      blocked.join();
      rank.expect_true(result == TUTTI_ABORTED, "the blocked call returned " + std::to_string(result));
      rank.expect(sum(rank, data), TUTTI_INVALID_USAGE, "use after abort");
      rank.comm = nullptr;
    });
    EXPECT_EQ(failures, "") << arrangement.name();
  }
}

// Goal: abort beside a thread that splits: the split fails or ends, and nothing is freed under it.
TEST(AbortTest, WaitsForASplitOfAnotherThread) {
  const std::string failures = run_cluster({.layout = processes(2)}, [](Rank& rank) {
    if (rank.rank() == 1) {
      rank.wait_value(0, 1);  // and never splits
      rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_ABORTED, "the peer");
      return;
    }
    tutti_comm_t* part = nullptr;
    tutti_result_t result = TUTTI_SUCCESS;
    std::thread splitter([&] {
      rank.add(1);
      result = tutti_comm_split(rank.comm, 0, 0, &part, nullptr);
    });
    rank.wait_value(1, 1);
    rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
    rank.add(0);
    splitter.join();
    // It may also have come too late.
    rank.expect_true(result == TUTTI_ABORTED || result == TUTTI_INVALID_USAGE, tutti_error_string(result));
    rank.comm = nullptr;
  });
  EXPECT_EQ(failures, "");
}

/// All calls that a forked child may try: the text of the first that is not refused.
std::string child_is_refused(tutti_comm_t* comm) {
  float value = 1;
  tutti_unique_id_t id;
  void* memory = nullptr;
  tutti_comm_t* other = nullptr;
  if (tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, TUTTI_BLOCKING) !=
      TUTTI_INVALID_USAGE) {
    return "all_reduce";
  }
  if (std::string(tutti_last_error()).find("fork") == std::string::npos) return "text";
  if (tutti_send(&value, 1, TUTTI_FLOAT32, 0, 0, comm, TUTTI_BLOCKING) != TUTTI_INVALID_USAGE) return "send";
  if (tutti_get_unique_id(&id) != TUTTI_INVALID_USAGE) return "get_unique_id";
  if (tutti_mem_alloc(&memory, 100) != TUTTI_INVALID_USAGE) return "mem_alloc";
  if (tutti_comm_split(comm, 0, 0, &other, nullptr) != TUTTI_INVALID_USAGE) return "split";
  if (tutti_comm_finalize(comm) != TUTTI_INVALID_USAGE) return "finalize";
  if (tutti_comm_destroy(comm) != TUTTI_INVALID_USAGE) return "destroy";
  if (tutti_comm_abort(comm) != TUTTI_INVALID_USAGE) return "abort";
  return "";
}

// Goal: a forked child is refused with the reason, may exit, and the parent goes on.
TEST(ForkTest, ChildIsRefusedAndTheParentGoesOn) {
  ClusterOptions options;
  options.layout = processes(2);
  const std::string failures = run_cluster(options, [](Rank& rank) {
    std::vector<float> data(10, 1.0f);
    rank.expect_ok(sum(rank, data), "before");
    const pid_t child = fork();
    if (child == 0) {
      const std::string accepted = child_is_refused(rank.comm);
      if (!accepted.empty()) rank.fail("the child was not refused: " + accepted);
      skip_leak_check();
      std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    rank.expect_true(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child died");
    for (int i = 0; i < 3; ++i) rank.expect_ok(sum(rank, data), "after the child's end");
  });
  EXPECT_EQ(failures, "");
}

/// Rank `rank` of two, in a forked child: one sum. The exit status is 0 if the sum is right.
pid_t fork_rank(const tutti_unique_id_t& id, int rank) {
  const pid_t child = fork();
  if (child != 0) return child;
  skip_leak_check();
  float value = 1;
  tutti_comm_t* comm = nullptr;
  const bool good =
      tutti_comm_create(&comm, 2, id, rank, nullptr) == TUTTI_SUCCESS &&
      tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, TUTTI_BLOCKING) == TUTTI_SUCCESS &&
      tutti_comm_destroy(comm) == TUTTI_SUCCESS && value == 2;
  _exit(good ? 0 : 1);
}

bool has_succeeded(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Goal: a process that only makes ids may fork its ranks, or be a rank itself after the fork.
// Regression: the children were refused, and with them Python's multiprocessing.
TEST(ForkTest, AnIdMadeBeforeTheForkServesTheChildren) {
  if (thread_sanitized()) GTEST_SKIP() << "its locks may be another thread's at the fork, for good";
  EXPECT_EQ(run_child([] {
              tutti_unique_id_t id;
              for (int turn = 0; turn < 2; ++turn) {
                if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) return std::string("get_unique_id");
                const pid_t first = fork_rank(id, 0);
                const pid_t second = fork_rank(id, 1);
                if (!has_succeeded(first) || !has_succeeded(second)) return std::string("two children");
              }
              if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) return std::string("get_unique_id again");
              const pid_t child = fork_rank(id, 1);
              float value = 1;
              tutti_comm_t* comm = nullptr;
              if (tutti_comm_create(&comm, 2, id, 0, nullptr) != TUTTI_SUCCESS ||
                  tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, TUTTI_BLOCKING) !=
                      TUTTI_SUCCESS ||
                  tutti_comm_destroy(comm) != TUTTI_SUCCESS) {
                return "the parent: " + std::string(tutti_last_error());
              }
              if (!has_succeeded(child)) return std::string("the child of a rank");
              // The parent has had a communicator.
              const pid_t late = fork();
              if (late == 0) {
                skip_leak_check();
                const bool refused = tutti_get_unique_id(&id) == TUTTI_INVALID_USAGE &&
                                     std::string(tutti_last_error()).find("fork") != std::string::npos;
                _exit(refused ? 0 : 1);
              }
              return std::string(has_succeeded(late) ? "" : "a late child was not refused");
            }),
            "");
}

// Goal: a child that waits for the maker of the id learns of the maker's end at once. Method: two children
// hold copies of all descriptors of the maker, which is killed after one of them has joined.
TEST(ForkTest, ChildrenNoticeTheEndOfTheMakerOfTheId) {
  if (thread_sanitized()) GTEST_SKIP() << "its locks may be another thread's at the fork, for good";
  EXPECT_EQ(run_child([] {
              int ends[2];
              int others[2];
              if (pipe(ends) != 0 || pipe(others) != 0) return std::string("pipe");
              const pid_t maker = fork();
              if (maker == 0) {
                skip_leak_check();
                tutti_unique_id_t id;
                if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) _exit(1);
                if (fork() == 0) {
                  tutti_comm_t* comm = nullptr;
                  const double start = seconds_now();
                  const tutti_result_t result = tutti_comm_create(&comm, 3, id, 1, nullptr);
                  // Which error depends on whether this rank has joined by then.
                  const bool good = result != TUTTI_SUCCESS && seconds_now() - start < 20 * patience_s(1);
                  static_cast<void>(write(ends[1], good ? "y" : "n", 1));
                  _exit(0);
                }
                usleep(200'000);
                if (fork() == 0) {
                  // Lives as long as the others. A pipe of its own: it must not take the answer.
                  char end = 0;
                  close(ends[1]);
                  close(others[1]);
                  static_cast<void>(read(others[0], &end, 1));
                  _exit(0);
                }
                kill(getpid(), SIGKILL);
              }
              close(ends[1]);
              char answer = 0;
              const bool noticed = read(ends[0], &answer, 1) == 1 && answer == 'y';
              close(others[1]);
              if (!noticed) return std::string("not noticed in time");
              waitpid(maker, nullptr, 0);
              return std::string();
            }),
            "");
}

// Goal: a killed rank is noticed although a child that it has forked lives on.
TEST(ForkTest, LivingChildDoesNotHideAKilledParent) {
  for (const int hosts : {1, 2}) {
    ClusterOptions options = Arrangement{processes(2), 1, hosts}.options();
    options.lost_processes = {1};
    const std::string failures = run_cluster(options, [](Rank& rank) {
      std::vector<float> data(10, 1.0f);
      rank.expect_ok(sum(rank, data), "before");
      rank.meet();  // or the death is noticed inside the call before
      if (rank.rank() == 1) {
        if (fork() == 0) {
          rank.wait_value(0, 1);
          _exit(0);
        }
        kill(getpid(), SIGKILL);
      }
      const double start = seconds_now();
      rank.expect(sum(rank, data), TUTTI_PEER_LOST, "after the death");
      rank.expect_true(seconds_now() - start < 2 * patience_s(1), "known by the heartbeat only");
      rank.add(0);
    });
    EXPECT_EQ(failures, "") << hosts << " hosts";
  }
}

std::atomic<int> ticks{0};

// Goal: EINTR is harmless everywhere: set-up, blocking calls, streams, waiting, destroy.
// Method: a timer interrupts each process every 300 us, by a handler that restarts no system call.
TEST(SignalTest, StormsOfInterruptsAreHarmless) {
  ClusterOptions options;
  options.layout = processes(3);
  options.create = false;
  const std::string failures = run_cluster(options, [](Rank& rank) {
    struct sigaction action {};
    action.sa_handler = [](int) { ++ticks; };
    sigaction(SIGALRM, &action, nullptr);
    const itimerval interval{{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &interval, nullptr);
    tutti_host_stream_t* stream = nullptr;
    rank.expect_ok(tutti_host_stream_create(&stream), "stream");
    for (int turn = 0; turn < 5; ++turn) {
      if (!rank.renew()) break;
      std::vector<float> data(30'000, 1.0f);
      for (int i = 0; i < 20; ++i) rank.expect_ok(sum(rank, data), "all_reduce");
      if (rank.rank() == turn % 3) usleep(20'000);
      rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_MAX,
                                      rank.comm, tutti_stream_host(stream)),
                     "stream");
      rank.expect_ok(tutti_host_stream_synchronize(stream), "synchronize");
      rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
      rank.comm = nullptr;
    }
    rank.expect_ok(tutti_host_stream_destroy(stream), "destroy stream");
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    rank.expect_true(ticks > 20, "the timer did not tick");
  });
  EXPECT_EQ(failures, "");
}

}  // namespace
}  // namespace tutti::test
