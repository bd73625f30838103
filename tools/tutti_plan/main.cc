// tutti-plan: shows, proves and prices the plan of a collective, or a plan read from a file.
//
//   tutti-plan all_reduce -n 4 -s 1M               the plan of the choice table
//   tutti-plan all_reduce -n 4 -s 1M -a ring       the plan of one algorithm
//   tutti-plan all_reduce -n 8 -s 1M --hosts 2     the plan for ranks on two hosts
//   tutti-plan all_reduce -n 256 --hosts 32 --prices    every algorithm's predicted time, without proof
//   tutti-plan all_reduce --topology dgx.topo --prices    ranks, hosts and costs of a machine
//   tutti-plan explain all_reduce -s 64M --topology dgx.topo    which algorithm wins, and why the others lose
//   tutti-plan table --topology dgx.topo           a choice table for TUTTI_CHOICE_FILE
//   tutti-plan --file my.plan                      exit status 1 and the reason if the plan is wrong
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/choice.h"
#include "core/version_line.h"
#include "plan/text.h"
#include "tools/flags.h"
#include "tools/sizes.h"
#include "tools/tutti_plan/explain.h"
#include "tools/tutti_plan/graph_costs.h"
#include "tools/tutti_plan/report.h"
#include "topology/file.h"

namespace tutti::tool {
namespace {

constexpr uint32_t kMaxRanks = 4096;
constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr int kRefused = 1;   // exit status: the plan is wrong
constexpr int kBadUsage = 2;  // exit status: arguments, files

struct Options {
  std::string collective;
  std::string algorithm;
  std::string bytes = "1M";
  std::string type = "float32";
  std::string op = "sum";
  std::string file;
  std::string hosts;
  std::string topology;
  std::vector<uint32_t> host_of;
  int64_t rank = -1;
  bool list = false;
  bool summary_only = false;
  bool prices_only = false;
  bool no_publish = false;
  bool out_of_place = false;
  Request request;
  Facts facts;
  Costs costs;
};

int fail(int status, const std::string& text) {
  std::cerr << "tutti-plan: " << text << "\n";
  return status;
}

void declare_request(CLI::App& app, Options& options) {
  app.add_option("collective", options.collective, "all_reduce, all_gather, ...: see --list");
  app.add_option("-n,--ranks", options.request.rank_count, "rank count")
      ->capture_default_str()
      ->check(CLI::Range(1u, kMaxRanks));
  app.add_option("-a,--algorithm", options.algorithm, "an algorithm of --list; default: the choice table's");
  app.add_option("--root", options.request.root, "root rank")->capture_default_str();
  app.add_option("--type", options.type, "element type")->capture_default_str();
  app.add_option("--op", options.op, "operator")->capture_default_str();
  app.add_flag("--reproducible", options.request.reproducible, "canonical order of reduction");
  app.add_flag("--in-place", options.request.in_place, "for equal send and receive buffers");
  app.add_flag("--no-publish", options.no_publish, "ranks cannot read each other's published slots");
  app.add_flag("--multicast", options.facts.can_multicast,
               "a switch stores to all ranks and reduces their values");
  app.add_flag("--reference", options.facts.can_reference, "ranks can read each other's buffers");
  app.add_option("--rank", options.rank, "print only this rank's part (all ranks are proved)");
  app.add_flag("--summary", options.summary_only, "do not print steps");
  app.add_flag("--prices", options.prices_only,
               "only predict the time of every algorithm that serves the request, the fastest first");
  app.add_flag("--list", options.list, "list the algorithms");
}

/// Called when all options of a request are declared: --file excludes them, because a file holds the request.
void declare_file(CLI::App& app, Options& options) {
  const std::vector<CLI::Option*> of_requests = app.get_options();
  CLI::Option* file =
      app.add_option("--file", options.file, "prove the plans of a text file ('-': standard input)");
  for (CLI::Option* option : of_requests) {
    if (option != app.get_help_ptr()) file->excludes(option);
  }
  app.add_flag("--out-of-place", options.out_of_place, "--file: do not prove the plans in place")
      ->needs(file);
}

void declare_sizes_and_costs(CLI::App& app, Options& options) {
  app.add_option("-s,--bytes", options.bytes,
                 "message bytes, e.g. 64K; if a buffer holds a block for every rank: bytes of all blocks")
      ->capture_default_str();
  app.add_flag("--variable-counts", options.request.variable_counts, "for blocks of different sizes");
  app.add_option("--hosts", options.hosts,
                 "a number of hosts (2), or the host of each rank (0,0,1,1); default: one host");
  app.add_option(
      "--topology", options.topology,
      "a topology file (docs/topology.md): its ranks, hosts and costs, where no option says otherwise");
  app.add_option("--cores", options.costs.cores, "cores that the ranks of a host share")
      ->capture_default_str()
      ->check(number(false));
  app.add_option("--overhead-us", options.costs.step_overhead_us, "cost of a step")
      ->capture_default_str()
      ->check(number(true));
  app.add_option("--latency-us", options.costs.link_latency_us, "cost of a message")
      ->capture_default_str()
      ->check(number(true));
  app.add_option("--switch-us", options.costs.switch_us, "cost of switching a core between ranks")
      ->capture_default_str()
      ->check(number(true));
  app.add_option("--link-bytes-per-us", options.costs.link_bytes_per_us, "bandwidth of a link")
      ->capture_default_str()
      ->check(number(false));
  app.add_option("--memory-bytes-per-us", options.costs.memory_bytes_per_us, "bandwidth of a core to memory")
      ->capture_default_str()
      ->check(number(false));
  app.add_option("--network-overhead-us", options.costs.network_overhead_us,
                 "cost of a message between hosts to the ranks at its ends")
      ->capture_default_str()
      ->check(number(true));
  app.add_option("--network-latency-us", options.costs.network_latency_us, "time of a message on the network")
      ->capture_default_str()
      ->check(number(true));
  app.add_option("--network-bytes-per-us", options.costs.network_bytes_per_us,
                 "bandwidth of a host, in each direction")
      ->capture_default_str()
      ->check(number(false));
  app.footer(
      "Also: tutti-plan explain --help, tutti-plan table --help.\n"
      "Exit status: 0 proved, 1 the plan is wrong, 2 wrong arguments.\n"
      "The default costs are for two cores of an EPYC (Zen 5). ./dev bench measures the cache line latency "
      "and\n"
      "the copy bandwidth of this machine.");
}

/// Takes from the topology file what the command line does not say. Returns "" or the mistake.
std::string read_machine(const CLI::App& app, Options& options) {
  if (options.topology.empty()) return "";
  const auto machine = topology::read_topology(options.topology);
  if (!machine) return std::string(machine.status().text());
  const auto found = costs_of(machine->graph);
  if (!found) return options.topology + ": " + std::string(found.status().text());
  const auto take = [&](const char* name, auto Costs::*field) {
    if (app.count(name) == 0) options.costs.*field = found->costs.*field;
  };
  take("--cores", &Costs::cores);
  take("--overhead-us", &Costs::step_overhead_us);
  take("--latency-us", &Costs::link_latency_us);
  take("--link-bytes-per-us", &Costs::link_bytes_per_us);
  take("--memory-bytes-per-us", &Costs::memory_bytes_per_us);
  take("--network-latency-us", &Costs::network_latency_us);
  take("--network-bytes-per-us", &Costs::network_bytes_per_us);
  const size_t rank_count = std::min<size_t>(found->host_of.size(), kMaxRanks);
  if (app.count("--ranks") == 0) options.request.rank_count = static_cast<uint32_t>(rank_count);
  if (options.hosts.empty() && found->host_count > 1 && options.request.rank_count <= rank_count) {
    for (uint32_t rank = 0; rank < options.request.rank_count; ++rank) {
      options.hosts += (rank == 0 ? "" : ",") + std::to_string(found->host_of[rank]);
    }
  }
  return "";
}

/// Reads --hosts for `rank_count` ranks. Returns "" or the mistake.
std::string place_ranks(Options& options, uint32_t rank_count) {
  if (options.hosts.empty()) return "";
  auto host_of = parse_hosts(options.hosts, rank_count);
  if (!host_of) {
    return format("--hosts '%s' is neither a number of hosts for %u ranks nor a host for each, e.g. 0,0,1,1",
                  options.hosts.c_str(), rank_count);
  }
  options.host_of = std::move(*host_of);
  options.facts.host_of = options.costs.host_of = options.host_of;
  options.facts.host_count = 1 + *std::ranges::max_element(options.host_of);
  return "";
}

/// Reads at most the limit and one part more, which is enough to refuse the text.
std::string read_plans(std::istream& stream) {
  std::string text;
  std::vector<char> part(size_t{1} << 20);
  while (text.size() <= kMaxFileBytes && stream) {
    stream.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part.data(), static_cast<size_t>(stream.gcount()));
  }
  return text;
}

int report_file(Options& options) {
  std::string text;
  if (options.file == "-") {
    text = read_plans(std::cin);
  } else {
    std::ifstream stream(options.file, std::ios::binary);
    // A folder opens like a file. Only reading fails.
    stream.peek();
    if (!stream.is_open() || stream.bad()) return fail(kBadUsage, "cannot read " + options.file);
    text = read_plans(stream);
  }
  if (text.size() > kMaxFileBytes) return fail(kBadUsage, options.file + " is larger than 1 GiB");
  const auto plans = parse_plans(text);
  if (!plans) return fail(kRefused, "refused: " + options.file + " " + std::string(plans.status().text()));
  const auto bytes = parse_bytes(options.bytes);
  if (!bytes) return fail(kBadUsage, "'" + options.bytes + "' is not a number of bytes");
  const Plan& plan = plans->front();
  const std::string defect = place_ranks(options, plan.rank_count);
  if (!defect.empty()) return fail(kBadUsage, defect);
  const uint64_t block_bytes = block_bytes_of(plan.collective, plan.rank_count, *bytes);
  const Report report = report_plans(*plans, {.block_bytes = block_bytes,
                                              .verify = {.in_place = !options.out_of_place,
                                                         .variable_counts = options.request.variable_counts},
                                              .costs = options.costs});
  (report.is_right ? std::cout : std::cerr) << report.text;
  return report.is_right ? 0 : kRefused;
}

/// Completes the request from the words of the command line. Returns "" or the mistake.
std::string complete_request(Options& options) {
  Request& request = options.request;
  const auto collective = collective_from_name(options.collective);
  if (!collective || *collective == Collective::kSendRecv) {
    return options.collective.empty()
               ? "name a collective, e.g. tutti-plan all_reduce -n 4 (or --list, --file)"
               : "'" + options.collective + "' is not a collective; see --list";
  }
  const auto type = type_from_name(options.type);
  if (!type) return "'" + options.type + "' is not a type, e.g. float32";
  const auto op = op_from_name(options.op);
  if (!op) return "'" + options.op + "' is not an operator, e.g. sum";
  if (!is_defined(*op, *type)) return options.op + " is not defined on " + options.type;
  const auto bytes = parse_bytes(options.bytes);
  if (!bytes) return "'" + options.bytes + "' is not a number of bytes";
  if (request.root >= request.rank_count)
    return format("root %u is not one of %u ranks", request.root, request.rank_count);
  if (options.rank >= int64_t{request.rank_count}) return "--rank names no rank";
  request.collective = *collective;
  request.type = *type;
  request.op = *op;
  request.block_bytes = block_bytes_of(*collective, request.rank_count, *bytes);
  std::string defect = place_ranks(options, request.rank_count);
  options.facts.can_publish = !options.no_publish && options.facts.host_count == 1;
  options.facts.cores = options.costs.cores;
  return defect;
}

/// Returns the algorithm, and in `why` the reason. Null: `why` holds the mistake.
const Algorithm* choose(const Options& options, std::string& why) {
  const Request& request = options.request;
  if (options.algorithm.empty()) {
    const ChoiceTable& table = ChoiceTable::built_in();
    uint32_t row = 0;
    const Algorithm* chosen = table.choose(request, options.facts, &row);
    why = row < table.rows().size()
              ? format("row %u of the choice table", row + 1)
              : "no row of the choice table; the first algorithm that supports the request";
    return chosen;
  }
  const Algorithm* named = find_algorithm(request.collective, options.algorithm);
  why = named == nullptr ? options.collective + " has no algorithm '" + options.algorithm + "'; see --list"
                         : "the command line";
  if (named != nullptr && !named->supports(request, options.facts)) {
    why = options.algorithm + " does not support this request";
    return nullptr;
  }
  return named;
}

int report_request(const Options& options) {
  const Request& request = options.request;
  std::string why;
  const Algorithm* algorithm = choose(options, why);
  if (algorithm == nullptr) return fail(kBadUsage, why);
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < request.rank_count; ++rank) {
    plans.push_back(algorithm->make(request, options.facts, rank));
  }
  const bool is_barrier = request.collective == Collective::kBarrier;
  std::cout << "# " << options.collective << " of " << request.rank_count << " ranks, "
            << (is_barrier ? "0" : options.bytes) << " bytes: " << algorithm->name << ", chosen by " << why
            << "\n";
  const Report report = report_plans(
      plans, {.block_bytes = request.block_bytes,
              .verify = {.in_place = request.in_place, .variable_counts = request.variable_counts},
              .costs = options.costs});
  (report.is_right ? std::cout : std::cerr) << report.text;
  if (!options.summary_only) {
    const std::span<const Plan> all(plans);
    std::cout << print_plans(options.rank < 0 ? all : all.subspan(static_cast<size_t>(options.rank), 1));
  }
  return report.is_right ? 0 : kRefused;
}

int report_prices(const Options& options) {
  const auto text = price_algorithms(options.request, options.facts, options.costs);
  if (!text) return fail(kBadUsage, std::string(text.status().text()));
  std::cout << *text;
  return 0;
}

int run(const CLI::App& app, Options& options) {
  if (options.list) {
    std::cout << list_algorithms();
    return 0;
  }
  if (const std::string mistake = read_machine(app, options); !mistake.empty())
    return fail(kBadUsage, mistake);
  if (!options.file.empty()) return report_file(options);
  const std::string defect = complete_request(options);
  if (!defect.empty()) return fail(kBadUsage, defect);
  return options.prices_only ? report_prices(options) : report_request(options);
}

}  // namespace
}  // namespace tutti::tool

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "explain")
    return tutti::tool::end_output("tutti-plan", tutti::tool::run_explain(argc - 1, argv + 1));
  if (argc > 1 && std::string_view(argv[1]) == "table")
    return tutti::tool::end_output("tutti-plan", tutti::tool::run_table(argc - 1, argv + 1));
  CLI::App app("Shows, proves and prices the plan of a collective, or plans read from a file.");
  tutti::tool::name_mistakes(app, "tutti-plan");
  tutti::tool::Options options;
  options.request.rank_count = 2;
  tutti::tool::declare_request(app, options);
  tutti::tool::declare_file(app, options);
  app.set_version_flag("--version", tutti::version_line("tutti-plan"));
  tutti::tool::declare_sizes_and_costs(app, options);
  try {
    app.parse(argc, argv);
    return tutti::tool::end_output("tutti-plan", tutti::tool::run(app, options));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : tutti::tool::kBadUsage;
  } catch (const std::exception& error) {
    return tutti::tool::fail(tutti::tool::kBadUsage, error.what());
  }
}
