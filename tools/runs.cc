#include "tools/runs.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "algorithms/algorithm.h"
#include "algorithms/predict.h"
#include "core/config.h"
#include "core/file_descriptor.h"
#include "core/random.h"
#include "core/variables.h"
#include "topology/measurements.h"

namespace tutti::tool {
namespace {

constexpr size_t kLastWords = 400;
/// What a user's environment may name in place of the library's own choice.
constexpr std::array kNamedChoices = {"TUTTI_CHOICE_FILE", "TUTTI_ALGORITHM", "TUTTI_TOPOLOGY_FILE",
                                      "TUTTI_PRICES"};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

/// A folder for a report, so that nobody else uses its name. The destructor deletes it.
class ReportFolder {
 public:
  ReportFolder() {
    std::error_code failure;
    path_ = std::filesystem::temp_directory_path(failure).string() + "/tutti-reports-XXXXXX";
    if (failure) {
      status_ = system_error("the folder for temporary files (TMPDIR)", failure.value());
    } else if (mkdtemp(path_.data()) == nullptr) {
      status_ = system_error("making a folder for reports: " + path_, errno);
    }
  }
  ReportFolder(const ReportFolder&) = delete;
  ReportFolder& operator=(const ReportFolder&) = delete;
  ~ReportFolder() {
    std::error_code failure;
    if (status_) std::filesystem::remove_all(path_, failure);
  }
  /// Why there is none: kSystemError.
  const Status& status() const { return status_; }
  std::string report() const { return path_ + "/report.json"; }

 private:
  std::string path_;
  Status status_;
};

/// Signals that would end this process wait as long as this lives. Ignored ones stay ignored.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&held, signal);
    }
    pthread_sigmask(SIG_BLOCK, &held, &before_);
    arrivals_ = FileDescriptor(signalfd(-1, &held, SFD_CLOEXEC));
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// Readable when one has come.
  int descriptor() const { return arrivals_.get(); }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
  FileDescriptor arrivals_;
};

/// Bytes of all ranks' rotated buffers: the last-level cache, between 64 and 256 MiB; 64 where glibc does not
/// know it. What trials measure holds for samples only if these rotate over as much: over 1.9 GiB calls took
/// up to twice as long on a Granite Rapids, and to touch that takes seconds in each run
/// (docs/measurements/topology.md).
std::string footprint() {
  return std::to_string(std::clamp<long>(sysconf(_SC_LEVEL3_CACHE_SIZE), 64l << 20, 256l << 20));
}

std::vector<std::string> command(const RunOptions& options, const std::string& report) {
  std::vector<std::string> words = options.launcher;
  // Launchers of several hosts do not hand on variables by themselves.
  words.emplace_back("/usr/bin/env");
  for (const char* name : kNamedChoices) words.insert(words.end(), {"-u", std::string(name)});
  words.emplace_back("TUTTI_CACHE_DIR=/nonexistent/tutti");
  words.push_back(options.folder + "/" + perf_tool_of(options.collective));
  if (options.launcher.empty())
    words.insert(words.end(), {"--procs", std::to_string(options.processes), "--bind"});
  if (options.emulated_hosts > 1)
    words.insert(words.end(), {"--emulate-hosts", std::to_string(options.emulated_hosts)});
  std::string names;
  for (const std::string& name : options.algorithms) names += (names.empty() ? "" : ",") + name;
  words.insert(words.end(), {"-b",
                             options.least_bytes,
                             "-e",
                             options.most_bytes,
                             "-f",
                             std::to_string(options.factor),
                             "-N",
                             std::to_string(options.turns),
                             "--row-time",
                             format("%g", options.row_ms),
                             "-T",
                             std::to_string(options.timeout_s),
                             "-c",
                             "0",
                             "-a",
                             "3",
                             "--memory",
                             "host",
                             "--footprint",
                             footprint(),
                             "-J",
                             report,
                             "--out-of-place"});
  if (!names.empty()) words.insert(words.end(), {"--algorithms", names});
  return words;
}

/// A child that writes to `output`.
Result<pid_t> start(std::vector<std::string>& words, int output, const sigset_t& signal_mask) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &signal_mask);
  std::vector<std::string> variables = process_variables();
  pid_t child = -1;
  const int error = posix_spawnp(&child, words[0].c_str(), &actions, &attributes, pointers(words).data(),
                                 pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return system_error("starting " + words[0], error);
  return child;
}

/// The end of a text, from the beginning of a word on.
std::string last_words(const std::string& text) {
  if (text.size() <= kLastWords) return text;
  const size_t cut = text.find_first_of(" \n", text.size() - kLastWords);
  return text.substr(cut == std::string::npos ? text.size() - kLastWords : cut + 1);
}

/// What the child writes, until it closes its output. A signal ends the child.
std::string read_all(int descriptor, const HeldSignals& signals, pid_t child) {
  std::string text;
  char buffer[4096];
  pollfd polls[] = {{descriptor, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
  for (;;) {
    if (poll(polls, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return text;
    }
    if (polls[1].revents != 0) {
      kill(child, SIGTERM);
      polls[1].fd = -1;
    }
    if (polls[0].revents == 0) continue;
    const ssize_t n = ::read(descriptor, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > 4 * kLastWords) text.erase(0, text.size() - 2 * kLastWords);
  }
}

Row row_of(const nlohmann::json& json) {
  const auto& measured = json.at("out_of_place");
  Row row{.bytes = json.at("size").get<uint64_t>(),
          .microseconds = measured.at("time").get<double>(),
          .algorithm = json.at("algorithm").get<std::string>(),
          .wanted = json.value("wanted", "")};
  if (!measured.contains("line_ns")) return row;
  const auto [before_ns, after_ns] = measured.at("line_ns").get<std::pair<uint64_t, uint64_t>>();
  row.have_moved = before_ns == 0 || after_ns == 0 || !topology::is_same_distance(before_ns, after_ns);
  row.line_ns = row.have_moved ? 0 : after_ns;
  return row;
}

}  // namespace

std::string perf_tool_of(Collective collective) {
  switch (collective) {
    case Collective::kAllToAll: return "alltoall_perf";
    case Collective::kBarrier:
    case Collective::kSendRecv: return "";
    default: return std::string(collective_name(collective)) + "_perf";
  }
}

std::set<uint64_t> row_sizes(Collective collective, uint32_t ranks, const SizeGrid& grid) {
  constexpr uint64_t kFloat = 4, kAligned = 16;
  const uint64_t blocks = message_bytes({.collective = collective, .rank_count = ranks, .block_bytes = 1});
  std::set<uint64_t> sizes;
  for (uint64_t bytes = grid.least; bytes > 0 && bytes <= grid.most; bytes *= grid.factor) {
    const uint64_t block = bytes / blocks;
    const uint64_t unit = blocks > 1 && block >= kAligned ? kAligned : kFloat;
    if (const uint64_t row = block / unit * unit * blocks; row > 0) sizes.insert(row);
    if (bytes > grid.most / grid.factor) break;
  }
  return sizes;
}

std::vector<std::string> algorithms_of(Collective collective) {
  std::vector<std::string> names = {std::string(kDefault)};
  for (const Algorithm& algorithm : algorithms()) {
    // Between ranks in host memory there is no multicast.
    if (algorithm.collective == collective && algorithm.name != "multicast")
      names.emplace_back(algorithm.name);
  }
  return names;
}

std::string find_perf_tools() {
  std::error_code failure;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failure).parent_path();
  for (const auto& folder : {own, own.parent_path() / "perf"}) {
    if (std::filesystem::exists(folder / "all_reduce_perf", failure)) return folder.string();
  }
  return {};
}

Result<Report> parse_report(std::string_view json) {
  try {
    const auto document = nlohmann::json::parse(json);
    Report report;
    report.ranks = document.at("config").at("ranks").get<uint32_t>();
    std::set<std::string> hosts;
    for (const auto& device : document.at("config").at("devices"))
      hosts.insert(device.at("hostname").get<std::string>());
    report.hosts = static_cast<uint32_t>(hosts.size());
    for (const auto& row : document.at("results")) report.rows.push_back(row_of(row));
    return report;
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kInvalidArgument, std::string("the report of a run: ") + error.what());
  }
}

bool have_moved(const Report& report) {
  return 2 * std::ranges::count_if(report.rows, &Row::have_moved) > std::ssize(report.rows);
}

void add_rows(const Report& report, Collective collective, uint32_t hosts, Samples& samples) {
  std::map<std::pair<uint64_t, std::string>, uint32_t> turns;  // by size and algorithm
  for (const Row& row : report.rows) {
    const uint32_t turn = turns[{row.bytes, row.wanted}]++;
    if (row.bytes == 0 || row.microseconds <= 0 || row.have_moved) continue;
    const Sample sample = {
        .us = row.microseconds, .line_ns = row.line_ns, .start = report.start, .turn = turn};
    samples.add({collective, report.ranks, hosts, row.wanted}, row.bytes, sample, row.algorithm);
  }
}

Result<Report> run_perf_tool(const RunOptions& options) {
  const HeldSignals signals;  // until the folder is deleted
  const ReportFolder folder;
  TUTTI_TRY(folder.status());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  std::vector<std::string> words = command(options, folder.report());
  const auto child = start(words, writer.get(), signals.before());
  TUTTI_TRY(child.status());
  writer = FileDescriptor();
  const std::string words_of_child = read_all(reader.get(), signals, *child);
  int status = 0;
  while (waitpid(*child, &status, 0) < 0 && errno == EINTR) {
  }
  std::ifstream file(folder.report(), std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Status(Code::kUnsupported, last_words(words_of_child));
  auto report = parse_report(json);
  if (!report) return report;
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(&report->start, 1))));
  report->start |= 1u << 16;  // smaller numbers are of samples whose start is not known
  return report;
}

}  // namespace tutti::tool
