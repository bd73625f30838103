// The fault matrix: every fault in every phase, on one host and on two, and what the other ranks are told,
// how soon. One test a row and placement. Its outcome is fixed here and checked; what was measured stands in
// the test's properties, from which fault_table.py makes the table of docs/measurements/faults.md.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr int kRanks = 4;
constexpr int kVictim = 1;
/// Calls before the fault: all links and operations are there, and have been used.
constexpr int kCallsBefore = 20;
/// The heartbeat and the deadline of a late rank.
constexpr int kLimitMs = 1000;

enum class Fault {
  kKilled,
  kStopped,
  kExits,
  kOtherCall,
  kLate,
  kAborts,
  kOtherSettings,
  kBadSetting,
  kTlsAlone,
  kOtherRankCount,
  kTwice
};
enum class Phase { kSetUp, kShortCall, kLongCall, kComputing };

/// What a rank may be told: a result, and parts that its text has.
struct Told {
  tutti_result_t result;
  std::vector<std::string> texts;
};

/// A row of the table: what every other rank must be told; one of several where it depends on who came first.
struct Row {
  Fault fault;
  Phase phase;
  std::vector<Told> told;
  /// While the ranks compute they are told nothing; their next call fails.
  bool by_next_call = false;
};

const std::vector<Row>& rows() {
  using enum Fault;
  using enum Phase;
  const Told lost{TUTTI_PEER_LOST, {"rank 1"}};
  const Told silent{TUTTI_PEER_LOST, {"rank 1", "no sign of life"}};
  const Told left{TUTTI_PEER_LOST, {"rank 1", "left"}};
  const Told other_call{TUTTI_MISMATCH, {"all_reduce", "barrier"}};
  const Told late{TUTTI_TIMEOUT, {"rank 1", "finished collective"}};
  const Told aborted{TUTTI_ABORTED, {"rank 1"}};
  const Told has_not_come{TUTTI_TIMEOUT, {"of 4 ranks", "1"}};
  static const std::vector<Row> kTable = {
      {kKilled, kSetUp, {lost}},
      {kKilled, kShortCall, {lost}},
      {kKilled, kLongCall, {lost}},
      {kKilled, kComputing, {lost}},
      {kStopped, kSetUp, {has_not_come}},
      {kStopped, kShortCall, {silent}},
      {kStopped, kLongCall, {silent}},
      {kStopped, kComputing, {silent}},
      {kExits, kSetUp, {lost}},
      {kExits, kShortCall, {left}},
      {kExits, kLongCall, {left}},
      {kExits, kComputing, {left}, true},
      {kOtherCall, kShortCall, {other_call}},
      {kOtherCall, kLongCall, {other_call}},
      {kOtherCall, kComputing, {other_call}, true},
      {kLate, kSetUp, {has_not_come}},
      {kLate, kShortCall, {late}},
      {kLate, kLongCall, {late}},
      {kAborts, kSetUp, {lost, aborted}},
      {kAborts, kShortCall, {aborted}},
      {kAborts, kLongCall, {aborted}},
      {kAborts, kComputing, {aborted}},
      {kOtherSettings, kSetUp, {{TUTTI_INVALID_ARGUMENT, {"reproducible", "rank 1"}}}},
      {kBadSetting, kSetUp, {{TUTTI_INVALID_ARGUMENT, {"rank 1 cannot take part", "TUTTI_SLOTS"}}}},
      {kTlsAlone, kSetUp, {{TUTTI_INVALID_ARGUMENT, {"TUTTI_TLS", "rank 1"}}}},
      {kOtherRankCount, kSetUp, {{TUTTI_INVALID_ARGUMENT, {"4", "5", "ranks"}}}},
      {kTwice, kSetUp, {{TUTTI_INVALID_ARGUMENT, {"rank 1", "twice"}}}},
  };
  return kTable;
}

const char* words(Fault fault) {
  switch (fault) {
    case Fault::kKilled: return "killed";
    case Fault::kStopped: return "stopped";
    case Fault::kExits: return "exits without destroying";
    case Fault::kOtherCall: return "makes another call";
    case Fault::kLate: return "late by more than the deadline";
    case Fault::kAborts: return "aborts";
    case Fault::kOtherSettings: return "has other settings";
    case Fault::kBadSetting: return "has a setting that is refused";
    case Fault::kTlsAlone: return "alone asks for TLS";
    case Fault::kOtherRankCount: return "expects other ranks";
    case Fault::kTwice: return "is there twice";
  }
  return "";
}

const char* words(Phase phase) {
  switch (phase) {
    case Phase::kSetUp: return "in set-up";
    case Phase::kShortCall: return "in short calls";
    case Phase::kLongCall: return "in long calls";
    case Phase::kComputing: return "while they compute";
  }
  return "";
}

/// "TUTTI_PEER_LOST", for the table.
std::string name_of(tutti_result_t result) {
  switch (result) {
    case TUTTI_PEER_LOST: return "TUTTI_PEER_LOST";
    case TUTTI_TIMEOUT: return "TUTTI_TIMEOUT";
    case TUTTI_MISMATCH: return "TUTTI_MISMATCH";
    case TUTTI_ABORTED: return "TUTTI_ABORTED";
    case TUTTI_INVALID_ARGUMENT: return "TUTTI_INVALID_ARGUMENT";
    default: return "result " + std::to_string(result);
  }
}

/// What crosses from the ranks to the test; shared with the processes forked later.
struct Seen {
  double fault_s;
  struct {
    tutti_result_t result;
    double at_s;
    char text[800];
  } of_rank[kRanks];
};

class SharedSeen {
 public:
  SharedSeen() {
    void* page = mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) std::abort();
    seen_ = new (page) Seen{};
  }
  ~SharedSeen() { munmap(seen_, sizeof(Seen)); }
  SharedSeen(const SharedSeen&) = delete;
  SharedSeen& operator=(const SharedSeen&) = delete;
  Seen& operator*() const { return *seen_; }
  Seen* operator->() const { return seen_; }

 private:
  Seen* seen_;
};

// Counters of the cluster.
constexpr int kSeen = 0;    ///< ranks that know of the fault
constexpr int kReady = 1;   ///< the fault is about to happen, or has
constexpr int kLooked = 2;  ///< ranks that were told nothing while they computed

bool dies(Fault fault) {
  return fault == Fault::kKilled || fault == Fault::kExits;
}

/// A run of one row: the bodies of the victim and of the others.
class FaultRun {
 public:
  FaultRun(const Row& row, Seen& seen) : row_(row), seen_(seen) {}

  void body(Rank& rank) const {
    rank.meet();
    if (row_.phase == Phase::kSetUp) {
      rank.rank() == kVictim ? victim_in_set_up(rank) : other_in_set_up(rank);
      return;
    }
    tutti_config_t config = rank.config();
    if (!rank.renew(config)) return;
    std::vector<float> data(elements(), 1.0f);
    for (int i = 0; i < kCallsBefore; ++i) rank.expect_ok(sum(rank, data), "before");
    rank.meet();
    rank.rank() == kVictim ? victim(rank, data) : other(rank, data);
    if (rank.rank() == kVictim && row_.fault == Fault::kAborts) rank.comm = nullptr;
  }

 private:
  size_t elements() const { return row_.phase == Phase::kLongCall ? 1 << 20 : 1; }

  static tutti_result_t sum(Rank& rank, std::vector<float>& data) {
    return tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                            TUTTI_BLOCKING);
  }

  void happen(Rank& rank) const {
    seen_.fault_s = seconds_now();
    rank.add(kReady);
  }

  /// Says what this rank was told, and waits until all have been: whoever has the error is then free to
  /// leave.
  void tell(Rank& rank, tutti_result_t result) const {
    auto& own = seen_.of_rank[rank.rank()];
    own.at_s = seconds_now();
    own.result = result;
    std::strncpy(own.text, tutti_last_error(), sizeof(own.text) - 1);
    rank.add(kSeen);
    rank.wait_value(kSeen, kRanks - 1);
    if (row_.fault == Fault::kStopped && rank.rank() == 0) kill(rank.pid_of_process(kVictim), SIGCONT);
  }

  tutti_result_t create(Rank& rank, int rank_count, int number, const tutti_config_t& config) const {
    return tutti_comm_create(&rank.comm, rank_count, rank.id(), number, &config);
  }

  void victim_in_set_up(Rank& rank) const {
    const Fault fault = row_.fault;
    if (dies(fault) || fault == Fault::kAborts) return victim_while_they_meet(rank);
    tutti_config_t config = rank.config();
    happen(rank);
    switch (fault) {
      case Fault::kStopped: kill(getpid(), SIGSTOP); return;
      case Fault::kLate: rank.wait_value(kSeen, kRanks - 1); return;
      case Fault::kOtherSettings: config.reproducible = 1; break;
      case Fault::kBadSetting: setenv("TUTTI_SLOTS", "3", 1); break;
      case Fault::kTlsAlone: setenv("TUTTI_TLS", "1", 1); break;
      default: break;
    }
    create(rank, fault == Fault::kOtherRankCount ? kRanks + 1 : kRanks, kVictim, config);
  }

  /// It has joined; the last rank has not.
  void victim_while_they_meet(Rank& rank) const {
    tutti_config_t config = rank.config();
    config.nonblocking = 1;
    rank.expect(create(rank, kRanks, kVictim, config), TUTTI_IN_PROGRESS, "create");
    rank.wait_until_joined();
    happen(rank);
    if (row_.fault == Fault::kKilled) kill(getpid(), SIGKILL);
    if (row_.fault == Fault::kExits) std::exit(0);
    if (row_.fault == Fault::kAborts) {
      rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
      rank.comm = nullptr;
    }
  }

  void other_in_set_up(Rank& rank) const {
    // The last rank comes after the fault: set-up is not over by then.
    const bool is_last = rank.rank() == kRanks - 1;
    if (is_last) rank.wait_value(kReady, 1);
    if (is_last && dies(row_.fault)) rank.wait_until_dead(kVictim);
    const int number = row_.fault == Fault::kTwice && is_last ? kVictim : rank.rank();
    tell(rank, create(rank, kRanks, number, rank.config()));
  }

  void victim(Rank& rank, std::vector<float>& data) const {
    if (row_.phase == Phase::kComputing) return commit(rank);
    if (row_.fault == Fault::kKilled || row_.fault == Fault::kStopped || row_.fault == Fault::kAborts) {
      std::thread deed([&] { commit(rank); });
      while (sum(rank, data) == TUTTI_SUCCESS) {
      }
      deed.join();
      return;
    }
    commit(rank);
  }

  /// The fault itself.
  void commit(Rank& rank) const {
    happen(rank);
    switch (row_.fault) {
      case Fault::kKilled: kill(getpid(), SIGKILL); break;
      case Fault::kStopped: kill(getpid(), SIGSTOP); break;
      case Fault::kExits: std::exit(0);
      case Fault::kOtherCall:
        rank.expect(tutti_barrier(rank.comm, TUTTI_BLOCKING), TUTTI_MISMATCH, "itself");
        break;
      case Fault::kLate: rank.wait_value(kSeen, kRanks - 1); break;
      case Fault::kAborts: rank.expect_ok(tutti_comm_abort(rank.comm), "abort"); break;
      default: rank.fail("this fault is one of set-up");
    }
  }

  void other(Rank& rank, std::vector<float>& data) const {
    tutti_result_t result = TUTTI_SUCCESS;
    if (row_.phase == Phase::kComputing && !row_.by_next_call) {
      const double deadline_s = seconds_now() + patience_s(20);
      while (result == TUTTI_SUCCESS && seconds_now() < deadline_s) {
        rank.expect_ok(tutti_comm_async_error(rank.comm, &result), "async_error");
        std::this_thread::yield();
      }
      result = sum(rank, data);
    } else {
      if (row_.by_next_call) {
        rank.wait_value(kReady, 1);
        if (dies(row_.fault)) rank.wait_until_dead(kVictim);
        rank.expect_ok(tutti_comm_async_error(rank.comm, &result), "async_error");
        rank.expect_true(result == TUTTI_SUCCESS, "told before a call");
        // The first next call tells all.
        rank.add(kLooked);
        rank.wait_value(kLooked, kRanks - 1);
      }
      while (result == TUTTI_SUCCESS) result = sum(rank, data);
    }
    tell(rank, result);
  }

  const Row& row_;
  Seen& seen_;
};

struct Case {
  Row row;
  int hosts;
};

/// A legal name of a test: "killed in short calls", 2 -> "KilledInShortCallsOn2".
std::string name_of(const Case& tested) {
  std::string name;
  bool capital = true;
  for (const char letter : std::string(words(tested.row.fault)) + " " + words(tested.row.phase)) {
    if (letter == ' ' || letter == '-') {
      capital = true;
    } else {
      name += static_cast<char>(capital ? std::toupper(letter) : letter);
      capital = false;
    }
  }
  return name + "On" + std::to_string(tested.hosts);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Row& row : rows()) {
    for (const int hosts : {1, 2}) all.push_back({row, hosts});
  }
  return all;
}

/// What the table says that the other ranks see.
std::string outcome(const Row& row) {
  std::string text = row.by_next_call ? "nothing; by the next call " : "";
  for (size_t i = 0; i < row.told.size(); ++i) {
    text += (i == 0 ? "" : ", or ") + name_of(row.told[i].result) + " (";
    for (const std::string& part : row.told[i].texts)
      text += (&part == row.told[i].texts.data() ? "\"" : " ... ") + part;
    text += "\")";
  }
  return text;
}

/// The table's row, but for what is measured: fault_table.py reads it from the list of tests.
void PrintTo(const Case& tested, std::ostream* out) {
  *out << words(tested.row.fault) << " | " << words(tested.row.phase) << " | " << outcome(tested.row) << " | "
       << tested.hosts;
}

bool is_told(const Told& told, tutti_result_t result, const std::string& text) {
  return result == told.result && std::all_of(told.texts.begin(), told.texts.end(), [&](const auto& part) {
           return text.find(part) != std::string::npos;
         });
}

ClusterOptions options_of(const Case& tested) {
  ClusterOptions options = Arrangement{processes(kRanks), 1, tested.hosts}.options();
  const int limit_ms = kLimitMs * patience_s(1);
  options.create = false;
  options.environment.emplace_back("TUTTI_HEARTBEAT_MS", std::to_string(limit_ms));
  if (dies(tested.row.fault)) options.lost_processes = {kVictim};
  const auto& told = tested.row.told;
  const auto is_timeout = [](const Told& one) { return one.result == TUTTI_TIMEOUT; };
  if (std::any_of(told.begin(), told.end(), is_timeout)) {
    const auto limit = static_cast<uint64_t>(limit_ms);
    (tested.row.phase == Phase::kSetUp ? options.config.setup_timeout_ms : options.config.timeout_ms) = limit;
  }
  return options;
}

class FaultMatrixTest : public testing::TestWithParam<Case> {};

// Goal: a fault of one rank is told to every other rank, as the row of the table says, in every phase.
// Method: four processes; rank 1 has the fault; each other rank notes what it is told, and when.
TEST_P(FaultMatrixTest, EveryOtherRankIsTold) {
  const Case& tested = GetParam();
  const SharedSeen seen;
  const FaultRun run(tested.row, *seen);
  EXPECT_EQ(run_cluster(options_of(tested), [&run](Rank& rank) { run.body(rank); }), "");
  double slowest_s = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    const auto& told = seen->of_rank[rank];
    EXPECT_TRUE(std::any_of(tested.row.told.begin(), tested.row.told.end(),
                            [&](const Told& one) { return is_told(one, told.result, told.text); }))
        << "rank " << rank << ": " << name_of(told.result) << ", " << told.text;
    slowest_s = std::max(slowest_s, told.at_s - seen->fault_s);
  }
  RecordProperty("milliseconds", static_cast<int>(std::lround(slowest_s * 1e3)));
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultMatrixTest, testing::ValuesIn(cases()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace tutti::test
