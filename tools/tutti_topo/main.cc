// tutti-topo: shows what is connected to what, in this machine or in a topology file.
//
//   tutti-topo                                 this machine as a tree, with speeds and their origins
//   tutti-topo --matrix dgx.xml                distances, as nvidia-smi topo -m shows them
//   tutti-topo -f svg -o dgx.svg dgx.xml       a drawing
//   tutti-topo -f hwloc machine.topo           the same machine as another kind of file
//   tutti-topo --search dgx.xml                what the machine offers to collectives, and what limits it
//   tutti-topo --measure                       probes of this machine; later calls use the numbers
//   mpirun -n 2 tutti-topo --net               tries each pair of rails between the hosts of a job
//   tutti-topo -d "8 gpus, nvswitch 450 GB/s"  a machine described in a line
//   mpirun -n 16 tutti-topo -f svg -o job.svg  the whole job; rank 0 writes
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/version_line.h"
#include "tools/flags.h"
#include "tools/runs.h"
#include "tools/slice_probes.h"
#include "tools/trials.h"
#include "tools/tutti_topo/job.h"
#include "tools/tutti_topo/net.h"
#include "tools/tutti_topo/net_probe.h"
#include "tools/tutti_topo/show.h"
#include "topology/detect.h"
#include "topology/file.h"
#include "topology/hwloc_xml.h"
#include "topology/kept.h"
#include "topology/nccl_xml.h"
#include "topology/probes.h"
#include "topology/text.h"
#include "topology/units.h"

namespace tutti::tool {
namespace {

using topology::Imported;

constexpr int kRefused = 1;   // exit status: the file is wrong, or the form cannot hold the machine
constexpr int kBadUsage = 2;  // exit status: arguments, output file

struct Options {
  std::string description;
  std::string form = "text";
  std::string output;
  bool matrix = false;
  bool offers = false;
  bool table = false;
  bool measure = false;
  bool measured = false;
  bool forget = false;
  bool net = false;
  int probe_rank = -1;
  bool alone = false;
  std::vector<std::string> files;
};

std::string kept_by_tools(uint64_t kind, const char* what) {
  return topology::kept_path(topology::kept_folder(process_environment()), kind, what);
}

/// Whether tutti-tune has kept samples, from which it makes the table.
bool has_tuned(uint64_t kind) {
  const std::string samples = kept_by_tools(kind, "samples");
  return !samples.empty() && access(samples.c_str(), F_OK) == 0;
}

int fail(int status, const std::string& text) {
  std::cerr << "tutti-topo: " << text << "\n";
  return status;
}

std::string print_ns(const topology::Measurements& measurements) {
  return topology::print_time(measurements.slices.apart_ns.value);
}

/// This machine with the first measured numbers or, if `looks`, with those of the distance that its cores
/// have now. `host_name`: as detect_this_machine.
Result<Imported> load_this_machine(const std::string& host_name, bool looks) {
  auto detected = topology::detect_this_machine(host_name);
  if (!detected) return detected.status();
  Result<Imported> machine(std::move(*detected));
  const uint64_t kind = topology::fingerprint(machine->graph);
  const std::string path = kept_by_tools(kind, "measured");
  const auto kept = topology::read_kept(path, kind);
  if (kept) {
    const uint64_t line_ns = looks && kept->size() > 1 ? topology::measure_line(machine->graph) : 0;
    const topology::Measurements& chosen = topology::nearest(*kept, line_ns);
    machine->graph = topology::with_measurements(machine->graph, chosen);
    machine->notes.push_back("measured numbers are from " + path);
    if (kept->size() > 1) machine->notes.back() += ", of cores " + print_ns(chosen) + " apart";
  } else if (kept.status().code() != Code::kSystemError) {
    machine->notes.push_back(std::string(kept.status().text()));
  }
  return machine;
}

/// The machines of all ranks, if a launcher has started this process. Empty on all ranks but the first, which
/// have nothing to show.
Result<std::optional<Imported>> load_job(const LaunchContext& context) {
  const auto config = read_config(process_environment());
  TUTTI_TRY(config.status());
  const auto own = load_this_machine("host", false);
  TUTTI_TRY(own.status());
  auto job = join_job(context, *config, *own);
  TUTTI_TRY(job.status());
  if (context.rank != 0) return std::optional<Imported>();
  return std::optional(std::move(*job));
}

Result<std::optional<Imported>> load(const Options& options) {
  const auto only = [](Result<Imported> machine) -> Result<std::optional<Imported>> {
    TUTTI_TRY(machine.status());
    return std::optional(std::move(*machine));
  };
  if (!options.description.empty()) return only(topology::parse_topology(options.description));
  if (!options.files.empty()) return only(topology::read_topology(options.files[0]));
  if (!options.alone) {
    const auto context = find_launch_context(process_environment());
    TUTTI_TRY(context.status());
    if (*context && (*context)->rank_count > 1) return load_job(**context);
  }
  return only(load_this_machine("", true));
}

constexpr double kBudgetS = 8.5;  // of --measure

/// What probes find at each distance of the cores, the most common one first, without trials of calls.
Result<std::vector<topology::Measurements>> probe(const topology::Graph& graph) {
  const auto common = topology::measure(graph);
  TUTTI_TRY(common.status());
  return measure_slices(graph, *common);
}

/// The calls that an earlier --measure has tried at this distance of the cores.
topology::CallTimes known_calls(const std::string& path, uint64_t kind, uint64_t line_ns) {
  const auto kept = topology::read_kept(path, kind);
  if (!kept) return {};
  const topology::Measurements& own = topology::nearest(*kept, line_ns);
  return topology::is_same_distance(own.slices.apart_ns.value, line_ns) ? own.calls : topology::CallTimes();
}

/// Tries all algorithms in short runs, those first that were tried in the fewest starts, as far as is
/// `known`.
TriedCalls try_all_calls(double budget_s, const topology::CallTimes& known) {
  const std::string perf_tools = find_perf_tools();
  auto tried = perf_tools.empty()
                   ? Result<TriedCalls>(Status(Code::kUnsupported, "all_reduce_perf is not found"))
                   : try_calls(perf_tools, budget_s, known);
  if (!tried) {
    std::cerr << "note: no calls were tried: " << tried.status().text() << "\n";
    return {};
  }
  if (tried->good_runs < tried->wanted_runs) {
    std::cerr << format(
        "note: %zu of %zu runs of trials were left out, because the time was over or the cores moved; call "
        "tutti-topo --measure again to add them\n",
        tried->wanted_runs - tried->good_runs, tried->wanted_runs);
  }
  return std::move(*tried);
}

/// Those that are kept, of distances other than those of `found`.
std::vector<topology::Measurements> kept_of_others(const std::string& path, uint64_t kind,
                                                   const std::vector<topology::Measurements>& found) {
  auto kept = topology::read_kept(path, kind);
  if (!kept) return {};
  std::erase_if(*kept, [&](const topology::Measurements& one) {
    return std::ranges::any_of(found, [&](const topology::Measurements& own) {
      return topology::is_same_distance(one.slices.apart_ns.value, own.slices.apart_ns.value);
    });
  });
  return std::move(*kept);
}

/// Fills in the calls of `all`, which has one at least. A distance of many trials at which there was no time
/// for slices borrows those of the nearest other one: trials correct what is predicted from them.
void add_calls(const Samples& samples, const topology::Graph& graph,
               std::vector<topology::Measurements>& all) {
  constexpr size_t kManyTrials = 100;
  std::vector<uint64_t> lines;
  for (const auto& [of, sizes] : samples.cases()) {
    for (const auto& [bytes, size] : sizes) {
      for (const Sample& sample : size.samples) {
        if (sample.line_ns > 0) lines.push_back(sample.line_ns);  // 0: unknown, so no distance of its own
      }
    }
  }
  const auto distances = topology::distances_of({lines.begin(), lines.end()});
  std::map<uint64_t, std::vector<double>> by_distance;
  for (const uint64_t line_ns : lines)
    by_distance[topology::distance_at(distances, line_ns)].push_back(static_cast<double>(line_ns));
  for (auto& [distance, own] : by_distance) {
    const size_t trials = own.size();
    const topology::Fact apart_ns = topology::middle_of(std::move(own));
    const auto is_here = [&](const topology::Measurements& one) {
      return topology::is_same_distance(one.slices.apart_ns.value, apart_ns.value);
    };
    if (trials < kManyTrials || all.size() >= topology::kDistancesMax || std::ranges::any_of(all, is_here))
      continue;
    topology::Measurements borrower = topology::nearest(all, apart_ns.value);
    topology::set_distance(borrower, topology::first_two_cores(graph), apart_ns);
    all.push_back(std::move(borrower));
  }
  auto machine = Machine::of(graph, topology::RanksAre::kCores);  // none of one core
  for (topology::Measurements& one : all)
    one.calls = call_times(samples, one.slices.apart_ns.value, machine ? &*machine : nullptr);
}

/// Into the file of `path`. Without -o the table of the trials is kept, too, unless tutti-tune has kept one.
Status measure_and_keep(const Options& options, const topology::Graph& graph, uint64_t kind,
                        const std::string& path) {
  TUTTI_TRY(topology::check_can_keep(path));
  // As keep() would say after the measuring.
  const Status former = topology::read_kept(path, kind).status();
  if (former.code() == Code::kInvalidArgument) return former;
  // A file that the user names is no other job's.
  if (options.output.empty()) TUTTI_TRY(topology::check_cores(graph));
  const auto start = std::chrono::steady_clock::now();
  auto found = probe(graph);
  TUTTI_TRY(found.status());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const TriedCalls tried =
      try_all_calls(kBudgetS - took.count(), known_calls(path, kind, found->front().slices.apart_ns.value));
  // Trials are of any distance.
  const auto others = kept_of_others(path, kind, *found);
  found->insert(found->end(), others.begin(), others.end());
  add_calls(tried.samples, graph, *found);
  TUTTI_TRY(topology::keep(path, std::move(*found)));
  if (tried.samples.cases().empty() || !options.output.empty() || has_tuned(kind)) return {};
  const auto all = topology::read_kept(path, kind);
  TUTTI_TRY(all.status());
  const auto cores = static_cast<uint32_t>(graph.of_kind(topology::NodeKind::kCore).size());
  return topology::keep_text(kept_by_tools(kind, "choice"), table_of_trials(*all, cores));
}

/// --measure, --measured and --forget: the file of measurements of this machine.
int run_measurements(const Options& options) {
  const auto machine = topology::detect_this_machine();
  if (!machine) return fail(kRefused, std::string(machine.status().text()));
  const uint64_t kind = topology::fingerprint(machine->graph);
  const std::string path = options.output.empty() ? kept_by_tools(kind, "measured") : options.output;
  if (path.empty())
    return fail(kBadUsage, "none of TUTTI_CACHE_DIR, XDG_CACHE_HOME and HOME is set; name a file with -o");
  if (options.forget) {
    if (const auto kept = topology::read_kept(path, kind);
        kept.status().code() == Code::kInvalidArgument && !options.output.empty()) {
      return fail(kRefused,
                  std::string(kept.status().text()) + ": not a file of measurements, and not deleted");
    }
    if (options.output.empty() && !has_tuned(kind)) std::remove(kept_by_tools(kind, "choice").c_str());
    if (std::remove(path.c_str()) != 0) return fail(kRefused, std::string(system_error(path, errno).text()));
    std::cout << "deleted " << path << "\n";
    return 0;
  }
  if (options.measure) {
    if (const Status status = measure_and_keep(options, machine->graph, kind, path); !status)
      return fail(kRefused, std::string(status.text()));
  }
  const auto kept = topology::read_kept(path, kind);
  if (!kept)
    return fail(kRefused, std::string(kept.status().text()) + " (tutti-topo --measure makes the file)");
  std::cout << "# " << path << "\n" << topology::print_measurements(*kept);
  return 0;
}

Result<std::string> shown(const Options& options, const Imported& machine) {
  if (options.matrix) return show_matrix(machine.graph);
  if (options.offers) return show_offers(machine.graph);
  if (options.form == "json") return show_json(machine);
  if (options.form == "svg") return draw_svg(machine.graph);
  if (options.form == "topo") return topology::print_graph(machine.graph);
  if (options.form == "hwloc") return topology::export_hwloc(machine.graph);
  if (options.form == "nccl") return topology::export_nccl(machine.graph);
  return show_tree(machine.graph);
}

/// A row for each file; a file that is refused has its reason as a row, and is told by the exit status.
int write_table(const Options& options) {
  int status = 0;
  std::cout << table_head();
  for (const std::string& path : options.files) {
    const size_t folder = path.rfind('/', path.rfind('/') - 1);
    const std::string name = path.substr(folder == std::string::npos ? 0 : folder + 1);
    const auto machine = topology::read_topology(path);
    if (machine) {
      std::cout << table_row(name, machine->graph) << std::flush;
    } else {
      const std::string reason(machine.status().text());
      const size_t line = reason.find("line ");
      std::cout << "| " << name << " | refused: " << reason.substr(line == std::string::npos ? 0 : line)
                << " | | | | | | |\n";
      status = kRefused;
    }
  }
  return status;
}

/// To the file that -o names, or to standard output.
int write_text(const Options& options, const std::string& text) {
  if (options.output.empty()) {
    std::cout << text;
    return 0;
  }
  std::ofstream file(options.output, std::ios::binary);
  file << text << std::flush;
  return file ? 0 : fail(kBadUsage, "cannot write " + options.output);
}

/// --net: rank 0 writes what all ranks have found.
int run_net(const Options& options) {
  if (options.form != "text" && options.form != "json") return fail(kBadUsage, "--net writes text or json");
  int rank = 0;
  const auto report = try_network(rank);
  if (!report) return fail(kRefused, std::string(report.status().text()));
  const int status = has_failure(*report) ? kRefused : 0;
  if (rank != 0) return status;
  const std::string text = options.form == "json" ? show_net_json(*report) : show_net(*report);
  const int written = write_text(options, text);
  return written != 0 ? written : status;
}

int run(const Options& options) {
  if (options.probe_rank >= 0) return probe_main(options.probe_rank);
  if (options.net) return run_net(options);
  if (options.table) return write_table(options);
  if (options.measure || options.measured || options.forget) return run_measurements(options);
  if (options.files.size() > 1) return fail(kBadUsage, "several files are only for --table");
  const auto loaded = load(options);
  if (!loaded) return fail(kRefused, std::string(loaded.status().text()));
  if (!*loaded) return 0;
  const std::optional<Imported>& machine = *loaded;
  const auto text = shown(options, *machine);
  if (!text) return fail(kRefused, std::string(text.status().text()));
  if (const int status = write_text(options, *text); status != 0) return status;
  for (const std::string& note : machine->notes) std::cerr << "note: " << note << "\n";
  if (const std::string assumed = assumptions(machine->graph); !assumed.empty())
    std::cerr << "warning: " << assumed << "\n";
  return 0;
}

}  // namespace
}  // namespace tutti::tool

int main(int argc, char** argv) {
  tutti::tool::Options options;
  CLI::App app(
      "Shows what is connected to what: this machine, the job if a launcher started it, or a topology file "
      "(text, hwloc 2 XML, NCCL XML).");
  tutti::tool::name_mistakes(app, "tutti-topo");
  auto* file = app.add_option("FILE", options.files, "a topology file; without one: this machine or job");
  app.add_option("-d,--describe", options.description,
                 "a machine in words: \"2 hosts x 8 gpus, nvswitch 450 GB/s\"")
      ->excludes(file);
  app.add_option("-f,--format", options.form, "text, json, svg, topo (this tool's files), hwloc or nccl")
      ->check(CLI::IsMember({"text", "json", "svg", "topo", "hwloc", "nccl"}));
  app.add_flag("-m,--matrix", options.matrix,
               "the distances between GPUs and network cards, or between cores");
  app.add_flag("-s,--search", options.offers, "orders for rings and trees, cards, levels, and bounds");
  app.add_flag("--table", options.table,
               "a row for each FILE: bounds, and what rings, trees and hierarchies reach");
  auto* measure =
      app.add_flag("--measure", options.measure, "measure this machine, under 10 s; the numbers are kept");
  auto* measured =
      app.add_flag("--measured", options.measured, "show the kept numbers and their file")->excludes(measure);
  app.add_flag("--forget", options.forget, "delete the kept numbers")->excludes(measure)->excludes(measured);
  app.add_flag("--net", options.net,
               "under a launcher: try each pair of RDMA ports and TCP interfaces between the job's hosts")
      ->excludes(file);
  app.add_option("--net-probe", options.probe_rank)->group("");  // for --net
  app.add_flag("--alone", options.alone, "this machine only, even if a launcher started this process");
  app.add_option("-o,--output", options.output, "a file to write");
  app.set_version_flag("--version", tutti::version_line("tutti-topo"));
  app.footer(
      "Notes and warnings go to standard error. Exit status: 1 if a file is refused or a\npair of rails "
      "fails, 2 for wrong arguments.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : tutti::tool::kBadUsage;
  }
  try {
    return tutti::tool::end_output("tutti-topo", tutti::tool::run(options));
  } catch (const std::exception& error) {
    return tutti::tool::fail(tutti::tool::kBadUsage, error.what());
  }
}
