// Everything that crosses processes is in one anonymous shared mapping, made before the forks.
#include "tests/support/cluster.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "tests/support/scope.h"

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the names are the sanitizer's
extern "C" int __lsan_do_recoverable_leak_check() __attribute__((weak));

namespace {
bool leak_check_is_off = false;
}
// The leak sanitizer calls this before it looks for leaks.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() {
  return leak_check_is_off ? 1 : 0;
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

namespace tutti::test {
namespace {

constexpr int kMaxRanks = 64;
constexpr size_t kReportBytes = 32768;
constexpr size_t kPlaceBytes = 192;
constexpr int kCounters = 16;

void nap() {
  const timespec time{0, 200'000};
  nanosleep(&time, nullptr);
}

struct Report {
  std::atomic<uint32_t> lock;
  std::atomic<uint32_t> length;
  char text[kReportBytes];
  std::atomic<uint32_t> place_version;
  char place[kPlaceBytes];
};

}  // namespace

struct ClusterShared {
  std::atomic<uint32_t> id_ready;
  tutti_unique_id_t id;
  std::atomic<uint64_t> arrived;
  std::atomic<uint64_t> counters[kCounters];
  std::atomic<pid_t> pids[kMaxRanks];
  alignas(64) char bytes[4096];
  double deadline_s;
  Report reports[kMaxRanks];
};

namespace {

/// Polls `condition` until three seconds before the run's deadline; at the deadline the parent kills.
template <class Condition>
bool wait_for(const ClusterShared& shared, Condition condition) {
  for (;;) {
    if (condition()) return true;
    if (seconds_now() > shared.deadline_s) return false;
    nap();
  }
}

void append(Report& report, const std::string& text) {
  while (report.lock.exchange(1) != 0) nap();
  const uint32_t start = report.length;
  const size_t room = kReportBytes - 1 - start;
  const size_t length = std::min(room, text.size());
  std::memcpy(report.text + start, text.data(), length);
  report.length = start + static_cast<uint32_t>(length);
  report.lock = 0;
}

/// A mapping shared with later children.
template <class T>
class SharedPage {
 public:
  SharedPage() {
    void* page = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) std::abort();
    page_ = new (page) T{};
  }
  ~SharedPage() { munmap(page_, sizeof(T)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  T& operator*() const { return *page_; }
  T* operator->() const { return page_; }

 private:
  T* page_;
};

/// Whether this process listens for peers that fetch its files. The listener opens once the bootstrap knows
/// the process's first rank.
bool has_file_server() {
  std::set<std::string> own;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  std::ifstream sockets("/proc/self/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find(" @tutti-files-") == line.npos) continue;
    // Num RefCount Protocol Flags Type St Inode Path
    std::istringstream words(line);
    std::string inode;
    for (int i = 0; i < 7; ++i) words >> inode;
    if (own.contains(inode)) return true;
  }
  return false;
}

void run_rank(ClusterShared& shared, const ClusterOptions& options, const RankBody& body, int rank, int count,
              int process) {
  Rank self(shared, options, rank, count, process);
  if (rank == 0) {
    if (!self.expect_ok(tutti_get_unique_id(&shared.id), "tutti_get_unique_id")) return;
    shared.id_ready.store(1, std::memory_order_release);
  } else if (!wait_for(shared, [&] { return shared.id_ready.load(std::memory_order_acquire) != 0; })) {
    return self.fail("rank 0 made no unique id");
  }
  if (options.create) {
    self.at("tutti_comm_create");
    if (!self.expect_ok(tutti_comm_create(&self.comm, count, shared.id, rank, &options.config), "create"))
      return;
  }
  body(self);
  if (self.comm != nullptr) {
    self.at("tutti_comm_destroy");
    self.expect_ok(tutti_comm_destroy(self.comm), "destroy");
  }
  self.at("done");
}

[[noreturn]] void leave_child(ClusterShared& shared, int rank) {
  if (__lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0) {
    append(shared.reports[rank], "memory leaked, see the log\n");
  }
  _exit(0);
}

[[noreturn]] void run_process(ClusterShared& shared, const ClusterOptions& options, const RankBody& body,
                              int process, int first_rank, int count) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  if (!options.hosts.empty()) {
    setenv("TUTTI_HOSTID", std::to_string(options.hosts[static_cast<size_t>(process)]).c_str(), 1);
    setenv("TUTTI_SOCKET_IFNAME", "=lo", 1);
  }
  const int mine = options.layout[static_cast<size_t>(process)];
  std::vector<std::thread> others;
  for (int i = 1; i < mine; ++i) {
    others.emplace_back([&, i] { run_rank(shared, options, body, first_rank + i, count, process); });
  }
  run_rank(shared, options, body, first_rank, count, process);
  for (std::thread& thread : others) thread.join();
  leave_child(shared, first_rank);
}

std::string death(int status) {
  if (WIFSIGNALED(status)) return std::string("signal ") + strsignal(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

/// Waits for the child until the deadline, then kills it. Returns "" if it ended well.
std::string reap(pid_t pid, double deadline_s) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  bool hung = false;
  for (;;) {
    const double left = deadline_s - seconds_now();
    pollfd entry{fd, POLLIN, 0};
    if (left > 0 && poll(&entry, 1, static_cast<int>(left * 1000) + 1) == 0) continue;
    if ((entry.revents & POLLIN) == 0 && left > 0) continue;
    hung = (entry.revents & POLLIN) == 0;
    break;
  }
  if (hung) kill(pid, SIGKILL);
  if (fd >= 0) close(fd);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (hung) return "hung and was killed";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return "ended by " + death(status);
}

}  // namespace

double seconds_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

int patience_s(int seconds) {
  return seconds * (sanitized() ? 4 : 1);
}

Rank::Rank(ClusterShared& shared, const ClusterOptions& options, int rank, int rank_count, int process)
    : shared_(shared), options_(options), rank_(rank), count_(rank_count), process_(process) {}

tutti_unique_id_t Rank::id() const {
  return shared_.id;
}

bool Rank::renew() {
  return renew(options_.config);
}

bool Rank::renew(const tutti_config_t& config) {
  at("renew");
  if (!meet()) return false;
  if (rank_ == 0 && !expect_ok(tutti_get_unique_id(&shared_.id), "tutti_get_unique_id")) return false;
  if (!meet()) return false;
  const tutti_unique_id_t id = shared_.id;
  return expect_ok(tutti_comm_create(&comm, count_, id, rank_, &config), "create");
}

void Rank::at(const std::string& what) {
  Report& report = shared_.reports[rank_];
  while (report.lock.exchange(1) != 0) nap();
  const size_t length = std::min(what.size(), kPlaceBytes - 1);
  std::memcpy(report.place, what.data(), length);
  report.place[length] = '\0';
  report.lock = 0;
}

void Rank::fail(const std::string& text) {
  append(shared_.reports[rank_], "rank " + std::to_string(rank_) + ": " + text + "\n");
}

bool Rank::expect(tutti_result_t result, tutti_result_t wanted, const std::string& what) {
  if (result == wanted) return true;
  std::string text =
      what + ": got \"" + tutti_error_string(result) + "\", not \"" + tutti_error_string(wanted) + "\"";
  if (result != TUTTI_SUCCESS) text += std::string(": ") + tutti_last_error();
  fail(text);
  return false;
}

bool Rank::expect_true(bool condition, const std::string& what) {
  if (!condition) fail(what);
  return condition;
}

void Rank::expect_text(const std::vector<std::string>& parts, const std::string& what) {
  const std::string text = tutti_last_error();
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) fail(what + ": no \"" + part + "\" in \"" + text + "\"");
  }
}

bool Rank::meet() {
  ++meetings_;
  const uint64_t wanted = meetings_ * static_cast<uint64_t>(count_);
  shared_.arrived.fetch_add(1);
  const bool all = wait_for(shared_, [&] { return shared_.arrived.load() >= wanted; });
  if (!all) fail("the ranks did not meet");
  return all;
}

void Rank::add(int counter, uint64_t value) {
  shared_.counters[counter].fetch_add(value);
}

uint64_t Rank::value(int counter) const {
  return shared_.counters[counter].load();
}

bool Rank::wait_value(int counter, uint64_t value) {
  const bool came = wait_for(shared_, [&] { return shared_.counters[counter].load() >= value; });
  if (!came) fail("counter " + std::to_string(counter) + " did not reach " + std::to_string(value));
  return came;
}

bool Rank::wait_until_joined() {
  const bool joined = wait_for(shared_, has_file_server);
  if (!joined) fail("its set-up did not join the meeting");
  return joined;
}

void* Rank::shared_bytes() {
  return shared_.bytes;
}

pid_t Rank::pid_of_process(int process) const {
  return shared_.pids[process].load();
}

bool Rank::is_dead(int process) const {
  std::ifstream file("/proc/" + std::to_string(pid_of_process(process)) + "/stat");
  std::string word;
  return !(file >> word >> word >> word) || word == "Z" || word == "X";
}

void Rank::wait_until_dead(int process) const {
  wait_for(shared_, [&] { return is_dead(process); });
}

std::string run_cluster(const ClusterOptions& options, const RankBody& body) {
  const SharedPage<ClusterShared> shared;
  const int count = std::accumulate(options.layout.begin(), options.layout.end(), 0);
  if (count > kMaxRanks) return "too many ranks for a test cluster";
  const double deadline_s = seconds_now() + patience_s(options.seconds);
  shared->deadline_s = deadline_s - 1;
  int first_rank = 0;
  std::fflush(nullptr);  // otherwise children that flush at their end repeat the test's output
  for (size_t process = 0; process < options.layout.size(); ++process) {
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) run_process(*shared, options, body, static_cast<int>(process), first_rank, count);
    shared->pids[process] = pid;
    first_rank += options.layout[process];
  }
  std::string failures;
  first_rank = 0;
  for (size_t process = 0; process < options.layout.size(); ++process) {
    const std::string end = reap(shared->pids[process], deadline_s);
    const bool may_die = std::find(options.lost_processes.begin(), options.lost_processes.end(),
                                   static_cast<int>(process)) != options.lost_processes.end();
    for (int i = 0; i < options.layout[process]; ++i, ++first_rank) {
      const Report& report = shared->reports[first_rank];
      failures.append(report.text, report.length);
      if (!end.empty() && !may_die) {
        failures +=
            "rank " + std::to_string(first_rank) + ": its process " + end + " at: " + report.place + "\n";
      }
    }
  }
  return failures;
}

std::string run_child(const std::function<std::string()>& body,
                      const std::vector<std::pair<std::string, std::string>>& environment, int seconds) {
  const SharedPage<ClusterShared> shared;
  const double deadline_s = seconds_now() + patience_s(seconds);
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) std::abort();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    const std::string failures = body();
    append(shared->reports[0], failures);
    leave_child(*shared, 0);
  }
  const std::string end = reap(pid, deadline_s);
  std::string failures(shared->reports[0].text, shared->reports[0].length);
  if (!end.empty()) failures += "the child " + end + "\n";
  return failures;
}

std::vector<int> processes(int rank_count) {
  return std::vector<int>(static_cast<size_t>(rank_count), 1);
}

std::vector<int> threads(int rank_count) {
  return {rank_count};
}

std::vector<int> mixed(int rank_count) {
  std::vector<int> layout;
  for (int left = rank_count; left > 0; left -= layout.back()) {
    layout.push_back(std::min(left, layout.size() % 2 == 0 ? 2 : 1));
  }
  return layout;
}

std::vector<int> mixed_or_threads(int rank_count) {
  return thread_sanitized() ? threads(rank_count) : mixed(rank_count);
}

std::string layout_name(const std::vector<int>& layout) {
  std::string name = layout.size() == 1 ? "t" : "p";
  for (size_t i = 0; i < layout.size(); ++i) name += (i == 0 ? "" : "_") + std::to_string(layout[i]);
  return name;
}

ClusterOptions Arrangement::options() const {
  ClusterOptions result;
  result.layout = layout;
  result.config.threads = threads_a_rank;
  result.environment = {{"TUTTI_STRIPE_BYTES", "64"}};
  for (size_t i = 0; hosts > 1 && i < layout.size(); ++i) {
    result.hosts.push_back(static_cast<int>(i * static_cast<size_t>(hosts) / layout.size()));
  }
  return result;
}

std::string Arrangement::name() const {
  return layout_name(layout) + (threads_a_rank == 1 ? "" : "_by" + std::to_string(threads_a_rank)) +
         (hosts == 1 ? "" : "_on" + std::to_string(hosts));
}

void PrintTo(const Arrangement& arrangement, std::ostream* out) {
  *out << arrangement.name();
}

void skip_leak_check() {
  leak_check_is_off = true;
}

Holdings holdings() {
  Holdings result;
  for (const auto& [path, count] :
       {std::pair{"/proc/self/fd", &result.descriptors}, std::pair{"/proc/self/task", &result.threads}}) {
    DIR* folder = opendir(path);
    if (folder == nullptr) continue;
    while (const dirent* entry = readdir(folder)) *count += entry->d_name[0] != '.' ? 1 : 0;
    closedir(folder);
  }
  std::ifstream statm("/proc/self/statm");
  long total = 0;
  long resident = 0;
  statm >> total >> resident;
  result.resident_kb = resident * (sysconf(_SC_PAGESIZE) / 1024);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    ++result.mappings;
    // "start-end rwxs ...": the letter s marks shared mappings, which hold all memory that ranks share.
    const size_t permissions = line.find(' ') + 1;
    if (permissions + 3 < line.size() && line[permissions + 3] == 's') ++result.shared_mappings;
  }
  return result;
}

Holdings settled_holdings(const Holdings& before) {
  const double deadline_s = seconds_now() + patience_s(5);
  Holdings now = holdings();
  const auto holds_more = [&before, &now] {
    return now.descriptors > before.descriptors || now.threads > before.threads ||
           now.shared_mappings > before.shared_mappings;
  };
  while (holds_more() && seconds_now() < deadline_s) {
    nap();
    now = holdings();
  }
  return now;
}

}  // namespace tutti::test
