// BootstrapClient: what goes wrong while a communicator is created is an error on every rank that has come.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "tests/support/cluster.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

ClusterOptions without_comm(std::vector<int> layout, uint64_t setup_timeout_ms = 0) {
  ClusterOptions options;
  options.layout = std::move(layout);
  options.create = false;
  options.config.setup_timeout_ms = setup_timeout_ms;
  return options;
}

/// Three processes do `body`: on one host, and as one on a host and two on another.
void expect_of_three(const std::function<void(Rank&)>& body) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, std::vector<int>{0, 1, 1}}) {
    ClusterOptions options = without_comm(processes(3));
    options.hosts = hosts;
    EXPECT_EQ(run_cluster(options, body), "") << hosts.size();
  }
}

tutti_result_t create(Rank& rank, int rank_count, const tutti_unique_id_t& id, int number) {
  const tutti_config_t config = rank.config();
  const tutti_result_t result = tutti_comm_create(&rank.comm, rank_count, id, number, &config);
  if (result != TUTTI_SUCCESS && result != TUTTI_IN_PROGRESS)
    rank.expect_true(rank.comm == nullptr, "a failed create left a communicator");
  return result;
}

/// After a failure the library still works.
void expect_good_communicator(Rank& rank) {
  tutti_config_t config = rank.config();
  config.setup_timeout_ms = 0;  // the default: what failed may have had little time on purpose
  if (!rank.renew(config)) return;
  rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier after a failed set-up");
}

TEST(BootstrapTest, AbsentRanksAreNamedAtTheDeadline) {
  EXPECT_EQ(run_cluster(without_comm(processes(2), 1000),
                        [](Rank& rank) {
                          rank.meet();
                          rank.expect(create(rank, 4, rank.id(), rank.rank() * 2), TUTTI_TIMEOUT, "create");
                          rank.expect_text({"of 4 ranks", "1, 3"}, "create");
                          expect_good_communicator(rank);
                        }),
            "");
}

TEST(BootstrapTest, ARankThatJoinsTwiceFailsAll) {
  EXPECT_EQ(run_cluster(without_comm(mixed(3)),
                        [](Rank& rank) {
                          const int number = rank.rank() == 2 ? 1 : rank.rank();
                          rank.expect(create(rank, 3, rank.id(), number), TUTTI_INVALID_ARGUMENT, "create");
                          rank.expect_text({"rank 1", "twice"}, "create");
                          expect_good_communicator(rank);
                        }),
            "");
}

TEST(BootstrapTest, DifferentRankCountsFailAll) {
  EXPECT_EQ(run_cluster(without_comm(processes(2)),
                        [](Rank& rank) {
                          rank.expect(create(rank, 2 + rank.rank(), rank.id(), rank.rank()),
                                      TUTTI_INVALID_ARGUMENT, "create");
                          rank.expect_text({"2", "3", "ranks"}, "create");
                          expect_good_communicator(rank);
                        }),
            "");
}

TEST(BootstrapTest, DifferentSettingsFailAll) {
  EXPECT_EQ(run_cluster(without_comm(processes(2)),
                        [](Rank& rank) {
                          tutti_config_t config = rank.config();
                          config.reproducible = rank.rank();
                          const tutti_unique_id_t id = rank.id();
                          rank.expect(tutti_comm_create(&rank.comm, 2, id, rank.rank(), &config),
                                      TUTTI_INVALID_ARGUMENT, "create");
                          rank.expect_text({"reproducible", "rank 1", "rank 0"}, "create");
                          expect_good_communicator(rank);
                        }),
            "");
}

TEST(BootstrapTest, DifferentNumbersOfThreadsFailAll) {
  for (const auto& layout : {processes(2), threads(2)}) {
    EXPECT_EQ(run_cluster(without_comm(layout),
                          [](Rank& rank) {
                            tutti_config_t config = rank.config();
                            config.threads = 2 + rank.rank();
                            const tutti_unique_id_t id = rank.id();
                            rank.expect(tutti_comm_create(&rank.comm, 2, id, rank.rank(), &config),
                                        TUTTI_INVALID_ARGUMENT, "create");
                            rank.expect_text({"threads", "is 3 on rank 1", "2 on rank 0"}, "create");
                            expect_good_communicator(rank);
                          }),
              "");
  }
}

// Goal: ranks that would run different plans, or cut them differently, are told so and do not wait for each
// other.
TEST(BootstrapTest, DifferentEnvironmentsAreRefused) {
  struct Difference {
    const char* name;
    const char* value;  ///< of rank 1; null: not set
    std::vector<std::string> text;
  };
  ClusterOptions options = without_comm(processes(2));
  options.environment = {{"TUTTI_PULL_BYTES", "32768"}};
  for (const Difference& difference :
       {Difference{"TUTTI_ALGORITHM", "ring", {"rank 1", "TUTTI_ALGORITHM", "TUTTI_CHOICE_FILE"}},
        Difference{
            "TUTTI_STRIPE_BYTES", "5000", {"TUTTI_STRIPE_BYTES", "5000 on rank 1", "1048576 on rank 0"}},
        Difference{
            "TUTTI_REFERENCE_BYTES", "5000", {"TUTTI_REFERENCE_BYTES", "5000 on rank 1", "16384 on rank 0"}},
        Difference{"TUTTI_PULL_BYTES", "5000", {"TUTTI_PULL_BYTES", "5000 on rank 1", "32768 on rank 0"}},
        Difference{"TUTTI_PULL_BYTES",
                   nullptr,
                   {"whether TUTTI_PULL_BYTES is set", "0 on rank 1", "1 on rank 0"}}}) {
    EXPECT_EQ(run_cluster(options,
                          [&difference](Rank& rank) {
                            const tutti_config_t config = rank.config();
                            // Rank 1 has not called tutti yet.
                            if (rank.rank() == 1) {
                              difference.value != nullptr ? setenv(difference.name, difference.value, 1)
                                                          : unsetenv(difference.name);
                            }
                            rank.expect(tutti_comm_create(&rank.comm, 2, rank.id(), rank.rank(), &config),
                                        TUTTI_INVALID_ARGUMENT, "create");
                            rank.expect_text(difference.text, "create");
                            rank.meet();  // rank 0 answers until both know
                          }),
              "")
        << difference.name;
  }
}

/// Every rank's create, where rank 1 of 3 has a value of TUTTI_SLOTS that is refused.
void expect_declined_by_rank_1(Rank& rank, const tutti_unique_id_t& id) {
  rank.expect(create(rank, 3, id, rank.rank()), TUTTI_INVALID_ARGUMENT, "create");
  rank.expect_text({"TUTTI_SLOTS", "\"3\""}, "create");
  if (rank.rank() != 1) rank.expect_text({"rank 1 cannot take part"}, "create");
}

// Goal: a rank whose environment is refused does not let the others wait: they get its error, with its rank.
// Method: on one host and between hosts; the set-up's deadline is two minutes, the test's one.
TEST(BootstrapTest, ARankWithABadSettingTellsTheOthers) {
  expect_of_three([](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    if (rank.rank() == 1) setenv("TUTTI_SLOTS", "3", 1);
    expect_declined_by_rank_1(rank, id);
    rank.meet();
  });
}

// Goal: a rank that comes when the bootstrap has failed, and whoever failed has gone, reads why at once.
// Method: rank 2 begins when rank 1 has its error; rank 0, which made the id, is told before, but stays for
// it.
TEST(BootstrapTest, ARankThatComesAfterTheFailureReadsWhy) {
  expect_of_three([](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    if (rank.rank() == 1) setenv("TUTTI_SLOTS", "3", 1);
    if (rank.rank() == 2) {
      rank.wait_value(0, 1);
      rank.add(1);
    }
    expect_declined_by_rank_1(rank, id);
    rank.expect_true(rank.rank() != 0 || rank.value(1) == 1, "rank 0 left before the last rank came");
    rank.add(0);
  });
}

// Goal: where the settings of rank 0 itself are refused it still makes the id, and tells the others why.
// Method: the process of rank 1 makes it and is number 0 of the bootstrap; the others come one after the
// other.
TEST(BootstrapTest, AMakerWithABadSettingTellsTheOthers) {
  expect_of_three([](Rank& rank) {
    tutti_unique_id_t id;
    if (rank.rank() == 1) {
      setenv("TUTTI_ALGORITHM", "no_such_name", 1);
      rank.expect_ok(tutti_get_unique_id(&id), "id");
      std::memcpy(rank.shared_bytes(), &id, sizeof(id));
      rank.add(0);
    }
    const int number = rank.rank() == 2 ? 2 : 1 - rank.rank();
    rank.wait_value(0, static_cast<uint64_t>(number == 2 ? 2 : 1));
    std::memcpy(&id, rank.shared_bytes(), sizeof(id));
    if (number == 2) rank.add(1);
    rank.expect(create(rank, 3, id, number), TUTTI_INVALID_ARGUMENT, "create");
    rank.expect_text({"TUTTI_ALGORITHM", "\"no_such_name\""}, "create");
    if (number != 0) rank.expect_text({"rank 0 cannot take part"}, "create");
    rank.expect_true(number != 0 || rank.value(1) == 1, "the maker left before the last rank came");
    if (number == 1) rank.add(0);
  });
}

// Goal: nobody stays for ranks that have been there, however the bootstrap has failed.
// Method: two ranks that both say that they are rank 1, of a deadline that a stay would not reach.
TEST(BootstrapTest, NobodyStaysWhenAllHaveHeard) {
  ClusterOptions options = without_comm(processes(2));
  options.seconds = 4;
  for (const std::vector<int>& hosts : {std::vector<int>{}, std::vector<int>{0, 1}}) {
    options.hosts = hosts;
    EXPECT_EQ(run_cluster(options,
                          [](Rank& rank) {
                            rank.expect(create(rank, 2, rank.id(), 1), TUTTI_INVALID_ARGUMENT, "create");
                            rank.expect_text({"rank 1", "twice"}, "create");
                          }),
              "")
        << hosts.size();
  }
}

// Goal: the death of the process that serves the bootstrap is told as that, with its number.
TEST(BootstrapTest, TheDeathOfTheIdsMakerIsNamed) {
  ClusterOptions options = without_comm(processes(3));
  options.lost_processes = {0};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const tutti_unique_id_t id = rank.id();
                          if (rank.rank() == 0) {
                            rank.wait_value(0, 2);
                            // The others are in their set-up, or about to be.
                            _exit(0);
                          }
                          rank.add(0);
                          rank.expect(create(rank, 3, id, rank.rank()), TUTTI_PEER_LOST, "create");
                          // Who comes later finds nobody.
                          const std::string text = tutti_last_error();
                          rank.expect_true(text.find("unique id, has ended") != std::string::npos ||
                                               text.find("refused") != std::string::npos,
                                           text);
                        }),
            "");
}

TEST(BootstrapTest, DamagedIdsAreRefused) {
  EXPECT_EQ(run_cluster(without_comm(threads(1), 2000),
                        [](Rank& rank) {
                          tutti_unique_id_t zero;
                          std::memset(&zero, 0, sizeof(zero));
                          rank.expect(create(rank, 1, zero, 0), TUTTI_INVALID_ARGUMENT, "zeros");
                          rank.expect_text({"id"}, "zeros");
                          // Layout: magic (8), version (4), zero (4), key (32), nonce (16), addresses.
                          tutti_unique_id_t other = rank.id();
                          other.bytes[8] ^= 1;
                          rank.expect(create(rank, 1, other, 0), TUTTI_VERSION_MISMATCH, "version");
                          rank.expect_text({"version", std::to_string(TUTTI_VERSION_CODE)}, "version");
                          other = rank.id();
                          other.bytes[20] ^= 1;
                          rank.expect(create(rank, 1, other, 0), TUTTI_INVALID_ARGUMENT, "key");
                          rank.expect_text({"id", "key"}, "key");
                          other = rank.id();
                          other.bytes[15] = 1;
                          rank.expect(create(rank, 1, other, 0), TUTTI_INVALID_ARGUMENT, "reserved bytes");
                          other = rank.id();
                          other.bytes[50] ^= 1;
                          rank.expect(create(rank, 1, other, 0), TUTTI_INVALID_ARGUMENT, "nonce");
                          rank.expect_text({"unique id", "differs"}, "nonce");
                          rank.expect_ok(create(rank, 1, rank.id(), 0), "the true id");
                        }),
            "");
}

// The other ranks waited for a rank whose id was damaged, up to the deadline.
// Method: the set-up's deadline is two minutes, the test's one.
TEST(BootstrapTest, ARankWithADamagedKeyIsNamedAtOnce) {
  EXPECT_EQ(run_cluster(
                without_comm(processes(3)),
                [](Rank& rank) {
                  tutti_unique_id_t id = rank.id();
                  if (rank.rank() == 1) id.bytes[20] ^= 1;
                  rank.expect(create(rank, 3, id, rank.rank()), TUTTI_INVALID_ARGUMENT, "create");
                  rank.expect_text({"key", "damaged", rank.rank() == 1 ? "argument id" : "rank 1"}, "create");
                  rank.meet();
                }),
            "");
}

// Between hosts, a connection without the key may be a stranger's, and must not end the job.
// Goal: the text at the deadline names it.
TEST(BootstrapTest, AConnectionWithoutTheKeyIsNamedAtTheDeadline) {
  ClusterOptions options = without_comm(processes(3), 1500);
  options.hosts = {0, 1, 1};
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    tutti_unique_id_t id = rank.id();
                    if (rank.rank() == 1) id.bytes[20] ^= 1;
                    rank.expect(create(rank, 3, id, rank.rank()),
                                rank.rank() == 1 ? TUTTI_INVALID_ARGUMENT : TUTTI_TIMEOUT, "create");
                    if (rank.rank() != 1)
                      rank.expect_text({"have not joined: 1", "did not know the key", "TUTTI_KEY"}, "create");
                    rank.meet();
                  }),
      "");
}

// Goal: every damaged byte of an id is an error or, where the byte means nothing, harmless; never a hang or a
// crash.
TEST(BootstrapTest, AnyDamagedByteIsHarmless) {
  EXPECT_EQ(run_cluster(without_comm(threads(1), 500),
                        [](Rank& rank) {
                          for (size_t i = 0; i < sizeof(tutti_unique_id_t); ++i) {
                            tutti_unique_id_t id;
                            rank.expect_ok(tutti_get_unique_id(&id), "id");
                            id.bytes[i] = static_cast<char>(~id.bytes[i]);
                            if (create(rank, 1, id, 0) != TUTTI_SUCCESS) continue;
                            rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                            rank.comm = nullptr;
                          }
                        }),
            "");
}

// Goal: a rank that is killed during set-up fails the others long before the deadline, without SIGPIPE.
TEST(BootstrapTest, ARankKilledDuringSetUpFailsAll) {
  for (int delay_us : {0, 300, 1000, 3000}) {
    ClusterOptions options = without_comm(processes(3), 2'000);
    options.lost_processes = {2};
    EXPECT_EQ(run_cluster(options,
                          [delay_us](Rank& rank) {
                            rank.meet();
                            if (rank.rank() == 2) {
                              if (fork() == 0) {
                                usleep(static_cast<useconds_t>(delay_us));
                                kill(getppid(), SIGKILL);
                                _exit(0);
                              }
                            }
                            tutti_result_t result = create(rank, 3, rank.id(), rank.rank());
                            if (rank.rank() == 2) {
                              for (;;) pause();
                            }
                            // It may have died just before it joined, or just after the end of set-up.
                            if (result == TUTTI_SUCCESS) result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
                            rank.expect_true(result == TUTTI_PEER_LOST || result == TUTTI_TIMEOUT,
                                             "set-up: " + std::string(tutti_error_string(result)));
                            const std::string text = tutti_last_error();
                            rank.expect_true(text.find('2') != std::string::npos, text);
                            // The id's maker stays until the other has read why.
                            rank.add(0);
                            rank.wait_value(0, 2);
                          }),
              "")
        << delay_us << " us";
  }
}

TEST(BootstrapTest, NonBlockingCreateIsPolled) {
  ClusterOptions options = without_comm(processes(2));
  options.config.nonblocking = 1;
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          float value = 1;
                          if (rank.rank() == 1) rank.wait_value(0, 1);
                          rank.expect(create(rank, 2, rank.id(), rank.rank()), TUTTI_IN_PROGRESS, "create");
                          tutti_result_t state = TUTTI_IN_PROGRESS;
                          if (rank.rank() == 0) {
                            rank.expect_ok(tutti_comm_async_error(rank.comm, &state), "async_error");
                            rank.expect_true(state == TUTTI_IN_PROGRESS, "created without rank 1");
                            rank.expect(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                                         rank.comm, TUTTI_BLOCKING),
                                        TUTTI_INVALID_USAGE, "a call during set-up");
                            rank.add(0);
                          }
                          do {
                            rank.expect_ok(tutti_comm_async_error(rank.comm, &state), "async_error");
                          } while (state == TUTTI_IN_PROGRESS);
                          rank.expect(state, TUTTI_SUCCESS, "state");
                          rank.expect_ok(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                                          rank.comm, TUTTI_BLOCKING),
                                         "all_reduce");
                          rank.expect_true(value == 2.0f, "wrong sum");
                        }),
            "");
}

// Goal: abort and destroy end a set-up that will never finish, without waiting for its deadline.
TEST(BootstrapTest, AbortEndsANonBlockingCreate) {
  ClusterOptions options = without_comm(threads(1), 100'000);
  options.config.nonblocking = 1;
  options.seconds = 30;
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          for (int turn = 0; turn < 2; ++turn) {
                            tutti_unique_id_t id;
                            rank.expect_ok(tutti_get_unique_id(&id), "id");
                            rank.expect(create(rank, 2, id, 0), TUTTI_IN_PROGRESS, "create");
                            const double start = seconds_now();
                            rank.expect_ok(
                                turn == 0 ? tutti_comm_abort(rank.comm) : tutti_comm_destroy(rank.comm),
                                "end");
                            rank.comm = nullptr;
                            rank.expect_true(seconds_now() - start < 10, "waited for the deadline");
                          }
                        }),
            "");
}

/// Creates a communicator of one rank in 3 GiB of address space; the error's text, or nothing.
std::string create_in_little_address_space() {
  const rlimit limit{3u << 30, 3u << 30};
  setrlimit(RLIMIT_AS, &limit);
  tutti_unique_id_t id;
  tutti_comm_t* comm = nullptr;
  if (tutti_get_unique_id(&id) != TUTTI_SUCCESS ||
      tutti_comm_create(&comm, 1, id, 0, nullptr) != TUTTI_SUCCESS)
    return tutti_last_error();
  return tutti_comm_destroy(comm) == TUTTI_SUCCESS ? "" : tutti_last_error();
}

// Goal: a limit on address space shrinks the heap that nobody asked for; a heap that was asked for is refused
// with the name of its setting.
// Every rank held four descriptors of every rank, threads of its own process included, until all were mapped.
TEST(BootstrapTest, ManyRanksMeetWithFewDescriptors) {
  for (const std::vector<int>& layout : {threads(32), std::vector<int>{4, 4, 4, 4}}) {
    EXPECT_EQ(run_cluster(without_comm(layout),
                          [](Rank& rank) {
                            rlimit limit{};
                            getrlimit(RLIMIT_NOFILE, &limit);
                            limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, rank.count() == 32 ? 256 : 192);
                            setrlimit(RLIMIT_NOFILE, &limit);
                            const tutti_unique_id_t id = rank.id();
                            rank.meet();
                            if (!rank.expect_ok(create(rank, rank.count(), id, rank.rank()), "create"))
                              return;
                            rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                          }),
              "")
        << layout_name(layout);
  }
}

TEST(BootstrapTest, AddressSpaceMayBeLimited) {
  if (sanitized()) GTEST_SKIP() << "sanitizers need address space of their own";
  EXPECT_EQ(run_child(create_in_little_address_space), "");
  EXPECT_NE(run_child(create_in_little_address_space, {{"TUTTI_HEAP_BYTES", "8589934592"}})
                .find("TUTTI_HEAP_BYTES"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::test
