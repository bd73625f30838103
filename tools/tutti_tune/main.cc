// tutti-tune: measures which algorithms are the fastest on this machine or job. The library reads the result
// when it makes a communicator.
//
//   tutti-tune                                         2, 4 and 8 processes of this machine, two minutes
//   tutti-tune -n 16 -c all_reduce --budget 30         what matters, in half a minute
//   tutti-tune --launch "mpirun -n 32 --hostfile h"    a job: the words before the program
//   tutti-tune --show, --forget                        the table and its file
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "core/cpu.h"
#include "core/version_line.h"
#include "tools/flags.h"
#include "tools/runs.h"
#include "tools/samples.h"
#include "tools/sizes.h"
#include "tools/tutti_tune/compare.h"
#include "topology/detect.h"
#include "topology/kept.h"
#include "topology/probes.h"

namespace tutti::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRefused = 1;   // exit status: nothing could be measured
constexpr int kBadUsage = 2;  // exit status: arguments, output file

/// Measurements of each algorithm in a run.
constexpr uint32_t kTurns = kLeastSamples;
/// Short, because rows are left out during which the host of a virtual machine moves the cores.
constexpr double kRowMs = 2;
/// Of a run of which most rows are left out.
constexpr uint32_t kTries = 3;

struct Options {
  std::vector<uint32_t> processes = {2, 4, 8};
  std::vector<std::string> collectives;
  std::string launch;
  uint32_t emulated_hosts = 1;
  std::string least_bytes = "8";
  std::string most_bytes = "16M";
  uint64_t least = 0;  ///< least_bytes, as a number
  uint64_t most = 0;
  uint32_t factor = 4;
  double budget_s = 120;
  uint32_t rounds = 5;
  std::string folder;
  std::string output;
  bool show = false;
  bool compare = false;
  bool details = false;
  bool forget = false;
};

int fail(int status, const std::string& text) {
  std::cerr << "tutti-tune: " << text << "\n";
  return status;
}

/// The files of this kind of machine: the table, and the samples, from which a later run goes on.
struct Files {
  std::string table;
  std::string samples;
};

Result<Files> find_files(const Options& options, const topology::Graph& machine) {
  if (!options.output.empty()) return Files{options.output, options.output + ".samples"};
  const std::string folder = topology::kept_folder(process_environment());
  if (folder.empty()) {
    return Status(Code::kInvalidUsage,
                  "none of TUTTI_CACHE_DIR, XDG_CACHE_HOME and HOME is set; name a file with -o");
  }
  const uint64_t kind = topology::fingerprint(machine);
  return Files{topology::kept_path(folder, kind, "choice"), topology::kept_path(folder, kind, "samples")};
}

class Tuner {
 public:
  Tuner(Options options, Files files, Samples samples, topology::Graph machine)
      : options_(std::move(options)),
        files_(std::move(files)),
        samples_(std::move(samples)),
        machine_(std::move(machine)) {
    perf_tools_ = options_.folder.empty() ? find_perf_tools() : options_.folder;
    std::istringstream words(options_.launch);
    for (std::string word; words >> word;) launcher_.push_back(word);
    if (!launcher_.empty()) options_.processes = {0};
  }

  int run() {
    if (perf_tools_.empty()) return fail(kBadUsage, "all_reduce_perf is not found; name its folder: --perf");
    if (const Status status = topology::check_can_keep(files_.table); !status)
      return fail(kBadUsage, std::string(status.text()));
    const bool is_kept = options_.output.empty();  // a file that the user names is no other job's
    if (const Status cores = topology::check_cores(machine_); is_kept && launcher_.empty() && !cores)
      return fail(kRefused, std::string(cores.text()));
    add_runs();
    if (runs_.empty()) return fail(kBadUsage, "no collective of this name can be measured");
    const auto start = Clock::now();
    const auto elapsed_s = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    size_t done = 0;
    const size_t all = runs_.size() * options_.rounds;
    double longest_s = 0;
    // Round by round, so that everything is measured once before anything is measured twice. Each round has
    // new processes, which lie elsewhere in memory and on the cores.
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      for (const Case& of : runs_) {
        ++done;
        if (is_done(of, round) || samples_.is_refused(of)) continue;
        if (elapsed_s() + longest_s > options_.budget_s) return finish(done - 1, all);
        show_progress(of, done, all, elapsed_s());
        bool is_measured = false;
        for (uint32_t i = 0; i < kTries && !is_measured; ++i) {
          const double before_s = elapsed_s();
          if (before_s + longest_s > options_.budget_s) break;
          is_measured = measure(of);
          longest_s = std::max(longest_s, elapsed_s() - before_s);
        }
        left_out_ += is_measured ? 0 : 1;
        if (worked_ == 0) continue;
        if (const int status = save(); status != 0) return status;
      }
    }
    return finish(all, all);
  }

 private:
  /// Each is known by the case of the library's own choice, which is in all of them.
  void add_runs() {
    for (const uint32_t processes : options_.processes) {
      for (int number = 0; number < kCollectiveCount; ++number) {
        const auto collective = static_cast<Collective>(number);
        const std::string name(collective_name(collective));
        const bool is_wanted = options_.collectives.empty() ||
                               std::ranges::find(options_.collectives, name) != options_.collectives.end();
        if (!is_wanted || perf_tool_of(collective).empty()) continue;
        runs_.push_back({collective, processes, options_.emulated_hosts, std::string(kDefault)});
      }
    }
  }

  /// Whether this round has measured the case: of each wanted size more than half of its rows. Other sizes of
  /// earlier calls do not count.
  bool is_done(const Case& of, uint32_t round) const {
    const Case own = known(of);
    if (own.ranks == 0) return false;
    const SizeGrid grid = {.least = options_.least, .most = options_.most, .factor = options_.factor};
    const std::set<uint64_t> sizes = row_sizes(own.collective, own.ranks, grid);
    return samples_.rounds_of(own, sizes) > (2 * round + 1) * kTurns / 2;
  }

  /// As the samples know the case: a launcher's ranks and hosts are known after the first run.
  Case known(Case of) const {
    if (launcher_.empty()) return of;
    of.ranks = ranks_;
    of.hosts = hosts_;
    return of;
  }

  /// False: most rows were left out.
  bool measure(const Case& of) {
    const RunOptions run_options{.folder = perf_tools_,
                                 .launcher = launcher_,
                                 .collective = of.collective,
                                 .processes = of.ranks,
                                 .emulated_hosts = options_.emulated_hosts,
                                 .least_bytes = options_.least_bytes,
                                 .most_bytes = options_.most_bytes,
                                 .factor = options_.factor,
                                 .algorithms = algorithms_of(of.collective),
                                 .turns = kTurns,
                                 .row_ms = kRowMs};
    const auto report = run_perf_tool(run_options);
    if (!report) {
      last_failure_ = std::string(report.status().text());
      ++failed_;
      samples_.refuse(of);
      return true;
    }
    ++worked_;
    ranks_ = report->ranks;
    hosts_ = std::max(report->hosts, options_.emulated_hosts);
    add_rows(*report, of.collective, hosts_, samples_);
    if (have_moved(*report)) {
      last_failure_ = "the cores moved, or were busy, during most rows";
      return false;
    }
    if (!samples_.cases().contains(known(of))) samples_.refuse(of);
    return true;
  }

  std::string table() const { return samples_.table(options_.emulated_hosts > 1); }

  int save() const {
    for (const auto& [path, text] : {std::pair(files_.samples, samples_.print()), {files_.table, table()}}) {
      if (const Status kept = topology::keep_text(path, text); !kept)
        return fail(kBadUsage, std::string(kept.text()));
    }
    return 0;
  }

  void show_progress(const Case& of, size_t done, size_t all, double elapsed_s) const {
    constexpr size_t kWidth = 30;
    const double by_time = elapsed_s / options_.budget_s;
    const double by_work = static_cast<double>(done) / static_cast<double>(all);
    const auto full = static_cast<size_t>(std::min(1.0, std::max(by_time, by_work)) * kWidth);
    const bool is_terminal = isatty(STDERR_FILENO) != 0;
    std::cerr << (is_terminal ? "\r" : "") << "[" << std::string(full, '#') << std::string(kWidth - full, ' ')
              << "] "
              << format("%3.0f of %.0f s, run %zu of %zu: %s, %u ranks      ", elapsed_s, options_.budget_s,
                        done, all, std::string(collective_name(of.collective)).c_str(),
                        of.ranks == 0 ? ranks_ : of.ranks)
              << (is_terminal ? "" : "\n") << std::flush;
  }

  int finish(size_t done, size_t all) const {
    if (isatty(STDERR_FILENO) != 0) std::cerr << "\n";
    const std::string table = this->table();
    if (table.find('\n') + 1 == table.size() || (worked_ == 0 && failed_ + left_out_ > 0))
      return fail(kRefused, "nothing was measured. The last failure: " + last_failure_);
    // Nothing may have been left to measure, but the table may be missing, or be of other samples.
    if (const auto kept = topology::read_text(files_.table); !kept || *kept != table) {
      if (const int status = save(); status != 0) return status;
    }
    std::cout << table << std::flush;
    std::cerr << "kept in " << files_.table << "\n";
    if (failed_ > 0) std::cerr << format("%u runs failed. The last one: ", failed_) << last_failure_ << "\n";
    if (left_out_ > 0) {
      std::cerr << format(
          "most rows of %u runs were left out, because the cores moved or were busy; call tutti-tune again "
          "to "
          "go on\n",
          left_out_);
    }
    if (done < all) {
      std::cerr << format("the time is over after %zu of %zu runs; call tutti-tune again to go on\n", done,
                          all);
    }
    return 0;
  }

  Options options_;
  Files files_;
  Samples samples_;
  topology::Graph machine_;
  std::string perf_tools_;
  std::vector<std::string> launcher_;
  std::vector<Case> runs_;
  uint32_t ranks_ = 0;
  uint32_t hosts_ = 1;
  uint32_t worked_ = 0;  ///< runs of this call
  uint32_t failed_ = 0;
  uint32_t left_out_ = 0;
  std::string last_failure_ = "none";
};

/// The samples for which one of all measurements is the nearest.
struct NearSamples {
  Samples samples;
  std::vector<double> unlike_ns = {};  ///< lines of those of a distance that was not measured
};
NearSamples samples_near(const Samples& samples, const std::vector<topology::Measurements>& all,
                         const topology::Measurements& own) {
  NearSamples near;
  for (const auto& [of, sizes] : samples.cases()) {
    for (const auto& [bytes, size] : sizes) {
      for (const Sample& sample : size.samples) {
        if (&topology::nearest(all, sample.line_ns) != &own) continue;
        near.samples.add(of, bytes, sample, size.ran);
        if (!topology::is_same_distance(sample.line_ns, own.slices.apart_ns.value))
          near.unlike_ns.push_back(static_cast<double>(sample.line_ns));
      }
    }
  }
  return near;
}

/// Predicts with what the library knows of this machine, measurements included: each sample with those of the
/// distance that the cores had then.
int show_comparison(const Options& options, const Samples& samples, const topology::Graph& graph) {
  if (samples.cases().empty()) return fail(kRefused, "there are no samples; tutti-tune measures them");
  const auto files = topology::open_files();
  const std::string folder = topology::kept_folder(process_environment());
  const topology::MachineSource source{
      .file = "", .folder = folder, .files = *files, .cpus = cgroup_cpus(), .detect = [] {
        return topology::detect_this_machine("host");
      }};
  const auto table = topology::find_tuned(source);
  const auto kept = table ? ChoiceTable::parse(*table) : Result<ChoiceTable>(table.status());
  if (!kept) return fail(kRefused, "the kept table: " + std::string(kept.status().text()));
  if (options.output.empty()) {
    std::cerr << "note: the kept table is judged by the samples that it was made of; measure others, with "
                 "-o FILE, for an honest judgement\n";
  }
  const CompareOptions how{.emulates_hosts = options.emulated_hosts > 1,
                           .details = options.details,
                           .kept = ChoiceTable::built_in().behind(*kept)};
  const uint64_t kind = topology::fingerprint(graph);
  const auto read = topology::read_kept(topology::kept_path(folder, kind, "measured"), kind);
  if (!read && read.status().code() != Code::kSystemError)
    std::cerr << "note: " << read.status().text() << "\n";
  const std::vector<topology::Measurements> all = read ? *read : std::vector<topology::Measurements>(1);
  for (const topology::Measurements& own : all) {
    const NearSamples near = samples_near(samples, all, own);
    if (near.samples.cases().empty()) continue;
    auto machine =
        Machine::of(read ? topology::with_measurements(graph, own) : graph, topology::RanksAre::kCores);
    if (!machine) return fail(kRefused, std::string(machine.status().text()));
    const auto text = compare(near.samples, *machine, how);
    if (!text) return fail(kRefused, std::string(text.status().text()));
    const auto apart_ns = static_cast<unsigned long long>(own.slices.apart_ns.value);
    if (!near.unlike_ns.empty()) {
      std::cerr << format(
          "note: %zu samples are of cores about %.0f ns apart, but the nearest measurements of cores %llu ns "
          "apart. Call tutti-topo --measure when the cores are there again.\n",
          near.unlike_ns.size(), middle(near.unlike_ns), apart_ns);
    }
    std::cout << (all.size() > 1 ? format("Cores %llu ns apart:\n", apart_ns) : "") << *text << std::flush;
  }
  return 0;
}

int run(const Options& options) {
  auto machine = topology::detect_this_machine("host");
  if (!machine) return fail(kBadUsage, std::string(machine.status().text()));
  const auto files = find_files(options, machine->graph);
  if (!files) return fail(kBadUsage, std::string(files.status().text()));
  const auto file = topology::read_text(options.show ? files->table : files->samples);
  const std::string text = file ? *file : std::string();
  if (options.show) {
    if (!file) return fail(kRefused, std::string(file.status().text()) + " (tutti-tune makes the file)");
    std::cout << "# " << files->table << "\n" << text;
    return 0;
  }
  if (!file && file.status().code() != Code::kSystemError)
    return fail(kRefused, std::string(file.status().text()));
  if (options.forget) {
    const auto table = topology::read_text(files->table);
    if (table && !ChoiceTable::parse(*table))
      return fail(kRefused, files->table + " is no table of choices, and not deleted");
    std::remove(files->samples.c_str());
    if (std::remove(files->table.c_str()) != 0)
      return fail(kRefused, std::string(system_error(files->table, errno).text()));
    std::cout << "deleted " << files->table << "\n";
    return 0;
  }
  auto samples = Samples::parse(text);
  if (!samples)
    return fail(kRefused, files->samples + ": " + std::string(samples.status().text()) +
                              "; delete the file to begin anew");
  const bool are_old = !text.empty() && !samples->are_of_this_version();
  if (are_old) std::cerr << "note: " << files->samples << " is of another version\n";
  if (options.compare || options.details) return show_comparison(options, *samples, machine->graph);
  if (are_old) samples = Samples();  // begun anew
  return Tuner(options, *files, std::move(*samples), std::move(machine->graph)).run();
}

}  // namespace
}  // namespace tutti::tool

int main(int argc, char** argv) {
  tutti::tool::Options options;
  CLI::App app("Measures which algorithms are the fastest here. The library then uses them.");
  tutti::tool::name_mistakes(app, "tutti-tune");
  auto* processes = app.add_option("-n,--procs", options.processes, "processes of this machine: 2,4,8")
                        ->delimiter(',')
                        ->check(CLI::Range(2, 4096));
  app.add_option("-c,--collectives", options.collectives, "default: all")->delimiter(',');
  app.add_option("-l,--launch", options.launch, "for a job: the words before the program, \"mpirun -n 32\"")
      ->excludes(processes);
  app.add_option("--emulate-hosts", options.emulated_hosts,
                 "the processes are on so many emulated hosts, which talk by TCP on this machine")
      ->check(CLI::Range(2, 1024))
      ->excludes("--launch");
  app.add_option("-b,--minbytes", options.least_bytes, "smallest message (K, M, G)")->capture_default_str();
  app.add_option("-e,--maxbytes", options.most_bytes, "largest message (K, M, G)")->capture_default_str();
  app.add_option("-f,--stepfactor", options.factor, "between sizes")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  app.add_option("--budget", options.budget_s, "seconds")
      ->capture_default_str()
      ->check(tutti::tool::number(false));
  app.add_option("--rounds", options.rounds,
                 "starts of the processes; each measures all algorithms three times, in turns")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--perf", options.folder, "the folder of all_reduce_perf");
  app.add_option("-o,--output", options.output,
                 "the table's file (TUTTI_CHOICE_FILE names it then); default: where the library looks");
  auto* show = app.add_flag("--show", options.show, "show the kept table and its file");
  auto* compare =
      app.add_flag("--compare", options.compare,
                   "predicted times beside the measured ones, and what choosing by price would cost");
  auto* points =
      app.add_flag("--points", options.details, "the same with a line for each algorithm and size");
  app.add_flag("--forget", options.forget, "delete the kept table and samples")
      ->excludes(show)
      ->excludes(compare)
      ->excludes(points);
  app.set_version_flag("--version", tutti::version_line("tutti-tune"));
  app.footer(
      "Progress goes to standard error. Exit status: 1 if nothing can be measured, 2 for wrong arguments.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : tutti::tool::kBadUsage;
  }
  const auto least = tutti::tool::parse_bytes(options.least_bytes);
  const auto most = tutti::tool::parse_bytes(options.most_bytes);
  if (!least || !most || *least > *most)
    return tutti::tool::fail(tutti::tool::kBadUsage,
                             "-b and -e need sizes such as 8 and 16M, the smaller first");
  options.least = *least;
  options.most = *most;
  for (const std::string& name : options.collectives) {
    const auto collective = tutti::collective_from_name(name);
    if (!collective || tutti::tool::perf_tool_of(*collective).empty())
      return tutti::tool::fail(tutti::tool::kBadUsage, "no collective '" + name + "' can be measured");
  }
  if (options.emulated_hosts > 1 && options.output.empty()) {
    return tutti::tool::fail(
        tutti::tool::kBadUsage,
        "--emulate-hosts needs -o FILE: jobs on several machines must not find this table");
  }
  try {
    return tutti::tool::end_output("tutti-tune", tutti::tool::run(options));
  } catch (const std::exception& error) {
    return tutti::tool::fail(tutti::tool::kBadUsage, error.what());
  }
}
