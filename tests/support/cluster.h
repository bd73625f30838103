// Cluster: ranks of one communicator as threads, as processes, or mixed, for tests.
//
// Every run forks its processes from the test, which itself never calls tutti: so a test can kill a rank,
// give it its own environment, and start from a process that has seen nothing. Ranks report failures as text
// through a shared page; a child that does not end in time is killed by its id and reported with what it did
// last.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::test {

struct ClusterShared;

/// Seconds that a sanitized or heavily loaded machine may need for what takes one here.
int patience_s(int seconds);

struct ClusterOptions {
  /// Ranks of each process: {1, 1, 1} three processes, {3} three threads, {2, 1} mixed.
  std::vector<int> layout = {1, 1};
  /// The emulated host of each process, by number: ranks of different ones meet over the loopback network.
  /// Empty: all on this one.
  std::vector<int> hosts = {};
  /// Set in every child before its first call.
  std::vector<std::pair<std::string, std::string>> environment = {};
  tutti_config_t config = TUTTI_CONFIG_INIT;
  /// Create a communicator before the body, and destroy it after.
  bool create = true;
  /// Processes that the body kills, or that end without a report.
  std::vector<int> lost_processes = {};
  int seconds = 60;
};

/// A body's view of one rank. Its functions may be called from the rank's threads.
class Rank {
 public:
  Rank(ClusterShared& shared, const ClusterOptions& options, int rank, int rank_count, int process);

  int rank() const { return rank_; }
  int count() const { return count_; }
  int process() const { return process_; }
  tutti_config_t config() const { return options_.config; }
  /// Null after the body has destroyed or aborted it and set it so.
  tutti_comm_t* comm = nullptr;
  /// The id of the cluster's communicator, made by the process of rank 0.
  tutti_unique_id_t id() const;

  /// A new communicator of all ranks in `comm`, under a new id; all ranks call it. False on failure.
  bool renew();
  bool renew(const tutti_config_t& config);

  /// Notes what the rank is doing, for the report of a hang.
  void at(const std::string& what);
  /// Adds to the run's failures; the body goes on.
  void fail(const std::string& text);
  /// Fails with the call's text unless `result` is `wanted`. True when it was.
  bool expect(tutti_result_t result, tutti_result_t wanted, const std::string& what);
  bool expect_ok(tutti_result_t result, const std::string& what) {
    return expect(result, TUTTI_SUCCESS, what);
  }
  bool expect_true(bool condition, const std::string& what);
  /// The failed call's text must contain all of these.
  void expect_text(const std::vector<std::string>& parts, const std::string& what);

  /// All ranks of the cluster, without tutti. False (and a failure) when they do not come.
  bool meet();
  /// A counter that all ranks share, by number 0..15.
  void add(int counter, uint64_t value = 1);
  uint64_t value(int counter) const;
  /// Waits until the counter is at least `value`. False (and a failure) when it does not come.
  bool wait_value(int counter, uint64_t value);
  /// 4 KiB that all ranks share.
  void* shared_bytes();
  /// Waits until a communicator that this process creates, its first one, is known to the meeting.
  bool wait_until_joined();
  pid_t pid_of_process(int process) const;
  /// Whether the process has ended, though the test has not asked for it yet.
  bool is_dead(int process) const;
  /// Waits until it has, for a while.
  void wait_until_dead(int process) const;

 private:
  ClusterShared& shared_;
  const ClusterOptions& options_;
  int rank_;
  int count_;
  int process_;
  uint64_t meetings_ = 0;
};

using RankBody = std::function<void(Rank&)>;

/// Runs `body` on every rank. Empty when all went well, else what failed, a line each.
std::string run_cluster(const ClusterOptions& options, const RankBody& body);

/// One child process that is no cluster: `body` returns its failures.
std::string run_child(const std::function<std::string()>& body,
                      const std::vector<std::pair<std::string, std::string>>& environment = {},
                      int seconds = 60);

/// P ranks as processes, as threads of one, and mixed ({2, 1, 2, ...}).
std::vector<int> processes(int rank_count);
std::vector<int> threads(int rank_count);
std::vector<int> mixed(int rank_count);
/// mixed(), but threads under the thread sanitizer: where one thread's write follows another's read only by
/// way of a third rank in another process, which it does not see, it would report a race.
std::vector<int> mixed_or_threads(int rank_count);
/// "p1+1+1", "t3".
std::string layout_name(const std::vector<int>& layout);

/// What tests of a whole communicator vary.
struct Arrangement {
  std::vector<int> layout;
  int threads_a_rank = 1;  ///< that work on one operation, from 64 bytes a thread on
  int hosts = 1;           ///< emulated; each has as many of the processes as the others, or one more

  friend bool operator==(const Arrangement&, const Arrangement&) = default;
  ClusterOptions options() const;
  /// "p1_1_1", "t3_by2", "p1_1_on2": a legal name of a test.
  std::string name() const;
};
void PrintTo(const Arrangement& arrangement, std::ostream* out);

double seconds_now();

/// A port of the loopback interface that nobody listened at a moment ago.
int free_port();

/// For a child forked from a process with threads, before it exits: what only the stacks of those threads
/// held is no leak of the child, but the address sanitizer would take it for one.
void skip_leak_check();

/// What this process holds: for tests of leaks.
struct Holdings {
  int descriptors = 0;
  int threads = 0;
  long resident_kb = 0;
  int mappings = 0;  ///< of any kind: the C library keeps some of its own (arenas, stacks of ended threads)
  int shared_mappings = 0;
};
Holdings holdings();
/// What it holds once it has no more descriptors, threads and shared mappings than `before`, or after some
/// seconds: the control thread closes its side of a set-up a little later, and the kernel lists a thread that
/// has been joined until it has quite gone.
Holdings settled_holdings(const Holdings& before);

}  // namespace tutti::test
