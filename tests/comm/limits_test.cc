// Narrow limits: few descriptors, closed standard streams, little address space, refused system calls, no
// network. Either the ranks work, or every rank is told at once which rank lacks what, and what to do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/refused_call.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

/// Far below the set-up's deadline of two minutes.
constexpr double kAtOnceS = 10;

ClusterOptions without_comm(int ranks, std::vector<int> hosts = {}) {
  ClusterOptions options;
  options.layout = processes(ranks);
  options.hosts = std::move(hosts);
  options.create = false;
  return options;
}

tutti_result_t create(Rank& rank, const tutti_unique_id_t& id) {
  const tutti_config_t config = rank.config();
  return tutti_comm_create(&rank.comm, rank.count(), id, rank.rank(), &config);
}

void limit(int resource, rlim_t value) {
  rlimit both{};
  getrlimit(static_cast<__rlimit_resource>(resource), &both);
  both.rlim_cur = value;
  setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

/// The highest number of an open descriptor.
rlim_t highest_descriptor() {
  rlim_t highest = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) highest = static_cast<rlim_t>(fd);
  }
  return highest;
}

/// The bytes of address space that this process has taken.
rlim_t address_space() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

void expect_sum(Rank& rank) {
  std::vector<int32_t> data(3000, rank.rank() + 1);
  rank.expect_ok(tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_INT32, TUTTI_SUM, rank.comm,
                                  TUTTI_BLOCKING),
                 "all_reduce");
  rank.expect_true(data[0] == rank.count() * (rank.count() + 1) / 2, "the sum is wrong");
}

/// Every rank fails at once, with these parts of the text.
void expect_told(Rank& rank, const tutti_unique_id_t& id, const std::vector<std::string>& texts) {
  const double began_s = seconds_now();
  const tutti_result_t result = create(rank, id);
  const double took_s = seconds_now() - began_s;
  rank.expect_true(result == TUTTI_SYSTEM_ERROR || result == TUTTI_OUT_OF_MEMORY,
                   "create returned " + std::to_string(result) + ": " + tutti_last_error());
  rank.expect_text(texts, "create");
  rank.expect_true(took_s < patience_s(static_cast<int>(kAtOnceS)),
                   "create took " + std::to_string(took_s) + " s");
  rank.meet();
}

// Four ranks of which one had few descriptors waited for the deadline, and no text named descriptors.
// Goal: whatever number is left to rank 1, the ranks work or all read that rank 1 lacks descriptors.
// Method: the limit falls from a number that suffices to one that suffices for nothing but a socket.
TEST(LimitsTest, ARankWithoutDescriptorsIsNamedAtOnce) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, std::vector<int>{0, 0, 1, 1}}) {
    int failures = 0;
    for (rlim_t more = 1; more <= 40; more += more < 12 ? 1 : 7) {
      const auto body = [more](Rank& rank) {
        const tutti_unique_id_t id = rank.id();
        if (rank.rank() == 1) limit(RLIMIT_NOFILE, highest_descriptor() + 1 + more);
        const double began_s = seconds_now();
        const tutti_result_t result = create(rank, id);
        rank.expect_true(seconds_now() - began_s < patience_s(static_cast<int>(kAtOnceS)),
                         "create took too long");
        if (result == TUTTI_SUCCESS) {
          rank.add(2);
          expect_sum(rank);
        } else {
          rank.expect_text({"RLIMIT_NOFILE", "ulimit -n"}, "create");
          if (rank.rank() != 1) rank.expect_text({"rank 1"}, "create");
        }
        rank.meet();
        rank.expect_true(rank.value(2) == 0 || rank.value(2) == 4, "some ranks have a communicator");
      };
      const std::string result = run_cluster(without_comm(4, hosts), body);
      EXPECT_EQ(result, "") << more << " descriptors, " << hosts.size();
      failures += result.empty() ? 0 : 1;
      if (failures > 2) break;
    }
  }
}

// Goal: with a limit of 20 in every process, all read which limit it is.
TEST(LimitsTest, TwentyDescriptorsInEveryProcessAreWorkedWithOrTold) {
  const auto body = [](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    rank.meet();
    limit(RLIMIT_NOFILE, std::max<rlim_t>(20, highest_descriptor() + 3));
    if (create(rank, id) == TUTTI_SUCCESS) {
      expect_sum(rank);
    } else {
      rank.expect_text({"RLIMIT_NOFILE"}, "create");
    }
    rank.meet();
  };
  EXPECT_EQ(run_cluster(without_comm(4), body), "");
}

// Descriptors of the library had the numbers 0 to 2, and the application's output went into its sockets.
TEST(LimitsTest, OurDescriptorsAreNoStandardStreams) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, std::vector<int>{0, 1}}) {
    const auto body = [](Rank& rank) {
      const tutti_unique_id_t id = rank.id();
      for (const int fd : {0, 1, 2}) close(fd);
      rank.expect_ok(create(rank, id), "create");
      expect_sum(rank);
      for (const int fd : {0, 1, 2}) {
        rank.expect_true(fcntl(fd, F_GETFD) < 0, "descriptor " + std::to_string(fd) + " is open");
      }
      rank.meet();
    };
    ClusterOptions options = without_comm(2, hosts);
    EXPECT_EQ(run_cluster(options, body), "") << hosts.size();
  }
}

// The heap took what was left, and peers could not be mapped: 60 and 100 MB worked, 120 to 220 MB did not.
// Method: the ranks inherit a limit of so many megabytes more than the test's process has. The rings of four
// ranks take 44 MB, and the C library reserves 64 MB for a thread's memory if there is room.
TEST(LimitsTest, LittleAddressSpaceSuffices) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer reserves address space for its shadow memory";
  for (rlim_t megabytes = 60; megabytes <= 400; megabytes += 20) {
    const std::string problem = run_child([megabytes]() -> std::string {
      limit(RLIMIT_AS, address_space() + (megabytes << 20));
      return run_cluster(without_comm(4), [megabytes](Rank& rank) {
        if (create(rank, rank.id()) == TUTTI_SUCCESS) {
          expect_sum(rank);
        } else {
          rank.expect_true(megabytes < 140, "create failed");
          rank.expect_text({"RLIMIT_AS", "TUTTI_HEAP_BYTES"}, "create");
        }
        rank.meet();
      });
    });
    EXPECT_EQ(problem, "") << megabytes;
  }
}

// Goal: a rank with a limit on its addresses has shorter rings, and works with ranks that have none.
TEST(LimitsTest, RingsMayDifferInLength) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer reserves address space for its shadow memory";
  const auto body = [](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    if (rank.rank() == 1) limit(RLIMIT_AS, address_space() + (rlim_t{600} << 20));
    if (!rank.expect_ok(create(rank, id), "create")) return;
    constexpr size_t kCount = 3'000'000;
    std::vector<float> data(kCount, static_cast<float>(rank.rank() + 1));
    rank.expect_ok(tutti_all_reduce(data.data(), data.data(), kCount, TUTTI_FLOAT32, TUTTI_MAX, rank.comm,
                                    TUTTI_BLOCKING),
                   "all_reduce");
    rank.expect_true(data.front() == 3 && data.back() == 3, "the maximum is wrong");
    rank.meet();
  };
  ClusterOptions options = without_comm(3);
  options.environment = {{"TUTTI_HEAP_BYTES", "16777216"}};
  EXPECT_EQ(run_cluster(options, body), "");
}

// Goal: a heap that does not fit is told with the setting that makes it smaller, on all ranks.
TEST(LimitsTest, AHeapThatDoesNotFitNamesItsSetting) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer reserves address space for its shadow memory";
  const auto body = [](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    setenv("TUTTI_HEAP_BYTES", "1073741824", 1);
    // Room for two heaps: its own and one of two peers.
    if (rank.rank() == 1) limit(RLIMIT_AS, address_space() + (rlim_t{2600} << 20));
    expect_told(rank, id, {"TUTTI_HEAP_BYTES", "rank 1", "RLIMIT_AS"});
  };
  EXPECT_EQ(run_cluster(without_comm(3), body), "");
}

struct Refusal {
  const char* name;
  long number;
  int64_t argument = -1;
  const char* text = nullptr;  ///< null: works all the same
};

class RefusedCallTest : public testing::TestWithParam<Refusal> {};

// A rank to which one system call was refused let the others wait for the deadline.
TEST_P(RefusedCallTest, TheRanksWorkOrAreToldAtOnce) {
  const Refusal refusal = GetParam();
  for (const std::vector<int>& hosts : {std::vector<int>{}, std::vector<int>{0, 1, 1}}) {
    const auto body = [refusal](Rank& rank) {
      const tutti_unique_id_t id = rank.id();
      if (rank.rank() == 1 && !refuse_call(refusal.number, refusal.argument)) rank.fail("no filters here");
      if (refusal.text != nullptr) {
        expect_told(rank, id, {refusal.text, rank.rank() == 1 ? "" : "rank 1 cannot take part"});
        return;
      }
      rank.expect_ok(create(rank, id), "create");
      if (rank.comm != nullptr) expect_sum(rank);
      rank.meet();
    };
    EXPECT_EQ(run_cluster(without_comm(3, hosts), body), "") << hosts.size();
  }
}

INSTANTIATE_TEST_SUITE_P(, RefusedCallTest,
                         testing::Values(Refusal{"epoll_create1", SYS_epoll_create1, -1, "epoll_create1"},
                                         Refusal{"timerfd_create", SYS_timerfd_create, -1, "timerfd_create"},
                                         Refusal{"eventfd2", SYS_eventfd2, -1, "eventfd"},
                                         Refusal{"pipe2", SYS_pipe2, -1, "pipe2"},
                                         Refusal{"madvise_wipeonfork", SYS_madvise, MADV_WIPEONFORK},
                                         Refusal{"memfd_create", SYS_memfd_create}),
                         [](const auto& one) { return std::string(one.param.name); });

// Goal: without MADV_WIPEONFORK a forked child is still told that it is one.
TEST(LimitsTest, AForkIsSeenWithoutWipeOnFork) {
  const auto body = [](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    rank.expect_true(refuse_call(SYS_madvise, MADV_WIPEONFORK), "no filters here");
    rank.expect_ok(create(rank, id), "create");
    const pid_t child = fork();
    if (child == 0) _exit(tutti_barrier(rank.comm, TUTTI_BLOCKING) == TUTTI_INVALID_USAGE ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    rank.expect_true(status == 0, "the child could use its parent's communicator");
    rank.meet();
  };
  EXPECT_EQ(run_cluster(without_comm(2), body), "");
}

// Goal: where a process may not look into /proc, or sees none of its peers there, the files come over a
// socket. Method: rank 1 may call no stat.
TEST(LimitsTest, FilesComeOverASocketWhereProcIsClosed) {
  const auto body = [](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    if (rank.rank() == 1) rank.expect_true(refuse_call(SYS_newfstatat), "no filters here");
    if (!rank.expect_ok(create(rank, id), "create")) return;
    float one = 1;
    rank.expect_ok(tutti_all_reduce(&one, &one, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                   "all_reduce");
    rank.expect_true(one == 3.0f, "the sum is wrong");
    rank.meet();
  };
  EXPECT_EQ(run_cluster(without_comm(3), body), "");
}

// Goal: memory of the heap works from a file that takes the place of memfd, and a peer reads it.
TEST(LimitsTest, TheHeapWorksWithoutMemfd) {
  const auto body = [](Rank& rank) {
    const tutti_unique_id_t id = rank.id();
    rank.expect_true(refuse_call(SYS_memfd_create), "no filters here");
    if (!rank.expect_ok(create(rank, id), "create")) return;
    void* memory = nullptr;
    constexpr size_t kCount = 1 << 20;
    if (!rank.expect_ok(tutti_mem_alloc(&memory, kCount * sizeof(float)), "mem_alloc")) return;
    auto* data = static_cast<float*>(memory);
    std::fill_n(data, kCount, static_cast<float>(rank.rank() + 1));
    rank.expect_ok(tutti_all_reduce(data, data, kCount, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                   "all_reduce");
    rank.expect_true(data[kCount - 1] == 3.0f, "the sum is wrong");
    rank.expect_ok(tutti_mem_free(memory), "mem_free");
    rank.meet();
  };
  EXPECT_EQ(run_cluster(without_comm(2), body), "");
}

// An id could not be made without a network interface that is up, not even for one host.
// Method: a new network name space, in which the loopback interface is down.
TEST(LimitsTest, OneHostNeedsNoNetworkInterface) {
  const std::string problem = run_child([]() -> std::string {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return "skip";
    ClusterOptions options = without_comm(3);
    options.layout = {1, 1, 1};
    return run_cluster(options, [](Rank& rank) {
      const tutti_unique_id_t id = rank.id();
      rank.expect_ok(create(rank, id), "create");
      if (rank.comm != nullptr) expect_sum(rank);
      rank.meet();
    });
  });
  if (problem == "skip") GTEST_SKIP() << "this user may not make a network name space";
  EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace tutti::test
