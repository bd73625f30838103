// Cluster: ranks of one communicator as threads, as processes, or mixed, for tests.
//
// Every run forks its processes from the test. The test itself never calls tutti. So a test can kill a rank,
// give a rank its own environment, and start from a fresh process. Ranks report failures as text through a
// shared page. A child that does not end in time is killed by its id and reported with its last action.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/free_port.h"
#include "tutti/tutti.h"

namespace tutti::test {

struct ClusterShared;

/// The seconds that a sanitized or heavily loaded machine may need for work of `seconds` on this machine.
int patience_s(int seconds);

struct ClusterOptions {
  /// Ranks of each process: {1, 1, 1} is three processes, {3} three threads, {2, 1} mixed.
  std::vector<int> layout = {1, 1};
  /// The number of each process's emulated host. Ranks on different hosts use the loopback network. Empty:
  /// all on one host.
  std::vector<int> hosts = {};
  /// Set in every child before its first call.
  std::vector<std::pair<std::string, std::string>> environment = {};
  tutti_config_t config = TUTTI_CONFIG_INIT;
  /// Create a communicator before the body, and destroy it afterwards.
  bool create = true;
  /// Processes that the body kills, or that end without a report.
  std::vector<int> lost_processes = {};
  int seconds = 60;
};

/// A body's view of one rank. Any thread of the rank may call its functions.
class Rank {
 public:
  Rank(ClusterShared& shared, const ClusterOptions& options, int rank, int rank_count, int process);

  int rank() const { return rank_; }
  int count() const { return count_; }
  int process() const { return process_; }
  tutti_config_t config() const { return options_.config; }
  /// A body that destroys or aborts the communicator sets this to null.
  tutti_comm_t* comm = nullptr;
  /// The id of the cluster's communicator, made by rank 0's process.
  tutti_unique_id_t id() const;

  /// Makes a new communicator of all ranks in `comm`, under a new id. All ranks call it. False on failure.
  bool renew();
  bool renew(const tutti_config_t& config);

  /// Records the rank's current action, for the report of a hang.
  void at(const std::string& what);
  /// Adds a failure to the run. The body continues.
  void fail(const std::string& text);
  /// Fails with the call's text unless `result` is `wanted`. Returns whether they are equal.
  bool expect(tutti_result_t result, tutti_result_t wanted, const std::string& what);
  bool expect_ok(tutti_result_t result, const std::string& what) {
    return expect(result, TUTTI_SUCCESS, what);
  }
  bool expect_true(bool condition, const std::string& what);
  /// The failed call's text must contain all parts.
  void expect_text(const std::vector<std::string>& parts, const std::string& what);

  /// A barrier of all ranks, without tutti. False (and a failure) if they do not come.
  bool meet();
  /// Counters 0..15, shared by all ranks.
  void add(int counter, uint64_t value = 1);
  uint64_t value(int counter) const;
  /// Waits until the counter is at least `value`. False (and a failure) at the deadline.
  bool wait_value(int counter, uint64_t value);
  /// 4 KiB shared by all ranks.
  void* shared_bytes();
  /// Waits until the bootstrap knows the first communicator that this process creates.
  bool wait_until_joined();
  pid_t pid_of_process(int process) const;
  /// Whether the process has ended, even if the test has not waited for it yet.
  bool is_dead(int process) const;
  /// Waits a while until the process has ended.
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

/// Runs `body` on every rank. Returns the failures, one on each line, or "".
std::string run_cluster(const ClusterOptions& options, const RankBody& body);

/// Runs `body` in one child process, without a cluster. `body` returns its failures.
std::string run_child(const std::function<std::string()>& body,
                      const std::vector<std::pair<std::string, std::string>>& environment = {},
                      int seconds = 60);

/// P ranks as processes, as threads of one process, and mixed ({2, 1, 2, ...}).
std::vector<int> processes(int rank_count);
std::vector<int> threads(int rank_count);
std::vector<int> mixed(int rank_count);
/// mixed(), but threads under the thread sanitizer. The sanitizer does not see that one thread's write
/// follows another's read by way of a third rank in another process, and would report a race.
std::vector<int> mixed_or_threads(int rank_count);
/// "p1+1+1", "t3".
std::string layout_name(const std::vector<int>& layout);

/// The variations for tests of a whole communicator.
struct Arrangement {
  std::vector<int> layout;
  int threads_a_rank = 1;  ///< that work on one operation, from 64 bytes a thread on
  int hosts = 1;           ///< emulated hosts; each has equally many processes, or one more

  friend bool operator==(const Arrangement&, const Arrangement&) = default;
  ClusterOptions options() const;
  /// "p1_1_1", "t3_by2", "p1_1_on2": a valid name of a test.
  std::string name() const;
};
void PrintTo(const Arrangement& arrangement, std::ostream* out);

double seconds_now();

/// For a child forked from a process with threads, called before it exits. Memory that only the stacks of
/// those threads held is not a leak of the child, but the address sanitizer would report it.
void skip_leak_check();

/// Resources that this process holds, for tests of leaks.
struct Holdings {
  int descriptors = 0;
  int threads = 0;
  long resident_kb = 0;
  int mappings = 0;  ///< of any kind; the C library keeps some of its own (arenas, stacks of ended threads)
  int shared_mappings = 0;
};
Holdings holdings();
/// Waits up to some seconds until there are no more descriptors, threads and shared mappings than `before`,
/// and returns the holdings. The control thread closes its side of a set-up a little later, and the kernel
/// lists a joined thread until it is completely gone.
Holdings settled_holdings(const Holdings& before);

}  // namespace tutti::test
