// tutti-sim: the predicted time of a collective on any machine, algorithms side by side.
//
//   tutti-sim all_reduce dgx.topo                                   sizes from 8 bytes to 1 GiB
//   tutti-sim all_reduce -d "64 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails, fat tree 2:1"
//   tutti-sim all_reduce -d "2048 hosts x 8 gpus, ..." --ranks 64,1024,16384 -b 1M -e 1M
//   tutti-sim all_to_all cluster.topo -a direct,pairwise --svg plot.svg
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "core/version_line.h"
#include "tools/flags.h"
#include "tools/machine.h"
#include "tools/sizes.h"
#include "tools/tutti_plan/report.h"
#include "tools/tutti_sim/plot.h"

namespace tutti::tool {
namespace {

constexpr int kRefused = 1;   // exit status: the machine or the request cannot be simulated
constexpr int kBadUsage = 2;  // exit status: arguments, output file
constexpr size_t kMostPanels = 4;

struct Options {
  std::string collective;
  std::string file;
  std::string description;
  std::string least_bytes = "8";
  std::string most_bytes = "1G";
  uint32_t factor = 8;
  std::vector<uint32_t> ranks;
  std::vector<std::string> algorithms;
  uint32_t root = 0;
  std::string svg;
};

/// One line of the table.
struct Row {
  uint32_t ranks = 0;
  uint64_t bytes = 0;
  std::vector<Candidate> candidates;
};

int fail(int status, const std::string& text) {
  std::cerr << "tutti-sim: " << text << "\n";
  return status;
}

std::vector<std::string> names_of(Collective collective, const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    const auto occurs = [&](const Row& row) {
      return std::ranges::any_of(row.candidates,
                                 [&](const Candidate& c) { return c.way.algorithm == &algorithm; });
    };
    if (algorithm.collective == collective && std::ranges::any_of(rows, occurs))
      names.emplace_back(algorithm.name);
  }
  return names;
}

const Candidate* find(const Row& row, const std::string& name) {
  for (const Candidate& candidate : row.candidates) {
    if (candidate.way.algorithm->name == name) return &candidate;
  }
  return nullptr;
}

void print_table(Collective collective, const std::vector<Row>& rows) {
  const std::vector<std::string> names = names_of(collective, rows);
  uint32_t ranks = 0;
  for (const Row& row : rows) {
    if (row.ranks != ranks) {
      std::cout << format("%s%8s %8s", ranks == 0 ? "" : "\n", "ranks", "bytes");
      for (const std::string& name : names)
        std::cout << format(" %*s", std::max(11, static_cast<int>(name.size())), name.c_str());
      std::cout << format("  %-28s %10s\n", "fastest", "bus GB/s");
      ranks = row.ranks;
    }
    std::cout << format("%8u %8s", row.ranks, short_bytes(row.bytes).c_str());
    for (const std::string& name : names) {
      const Candidate* candidate = find(row, name);
      std::string cell = candidate == nullptr ? "-" : format("%.2f", candidate->simulation.microseconds);
      if (candidate != nullptr && candidate->simulation.is_lower_bound) cell = ">" + cell;
      std::cout << format(" %*s", std::max(11, static_cast<int>(name.size())), cell.c_str());
    }
    const Candidate& best = row.candidates.front();
    const double bus = static_cast<double>(row.bytes) * bus_factor(collective, row.ranks) /
                       best.simulation.microseconds / 1000;
    std::cout << format("  %-28s %10.3f\n", std::string(best.way.algorithm->name).c_str(), bus) << std::flush;
  }
}

/// Over sizes with a panel for each rank count; over rank counts if there is one size.
Plot plot_of(const Options& options, Collective collective, const std::vector<Row>& rows) {
  const bool over_ranks = rows.size() > 1 && rows.front().bytes == rows.back().bytes;
  Plot plot{.title = options.collective + (options.file.empty() ? "" : " on " + options.file),
            .x_name = over_ranks ? "ranks" : "bytes of the message",
            .y_name = "predicted time",
            .x_is_bytes = !over_ranks,
            .panels = {}};
  std::map<uint32_t, size_t> panel_of;
  for (const Row& row : rows) {
    const auto [known, is_new] = panel_of.try_emplace(over_ranks ? 0 : row.ranks, plot.panels.size());
    if (is_new && plot.panels.size() == kMostPanels) {
      panel_of.erase(known);
      continue;
    }
    if (is_new) {
      const std::string title =
          over_ranks ? short_bytes(row.bytes) + " bytes" : format("%u ranks", row.ranks);
      plot.panels.push_back({.title = title, .curves = {}});
      for (const std::string& name : names_of(collective, rows))
        plot.panels.back().curves.push_back({name, {}});
    }
    for (Curve& curve : plot.panels[known->second].curves) {
      const Candidate* candidate = find(row, curve.name);
      if (candidate == nullptr || candidate->simulation.is_lower_bound) continue;
      curve.points.emplace_back(over_ranks ? row.ranks : static_cast<double>(row.bytes),
                                candidate->simulation.microseconds);
    }
  }
  return plot;
}

/// From `least` on, each `factor` times the one before.
std::vector<uint64_t> sizes_between(uint64_t least, uint64_t most, uint64_t factor) {
  std::vector<uint64_t> sizes = {least};
  while (sizes.back() <= most / factor) sizes.push_back(sizes.back() * factor);  // the product may not fit
  return sizes;
}

int run(const Options& options) {
  const auto collective = collective_from_name(options.collective);
  if (!collective || *collective == Collective::kSendRecv)
    return fail(kBadUsage, "'" + options.collective + "' is not a collective: tutti-plan --list names them");
  if (options.file.empty() == options.description.empty())
    return fail(kBadUsage, "name a topology file, or describe a machine with -d");
  const auto least = parse_bytes(options.least_bytes);
  const auto most = parse_bytes(options.most_bytes);
  if (!least || !most || *least == 0 || *most < *least)
    return fail(kBadUsage,
                "-b and -e are no range of bytes: " + options.least_bytes + ", " + options.most_bytes);
  for (const std::string& name : options.algorithms) {
    if (find_algorithm(*collective, name) == nullptr)
      return fail(kBadUsage, options.collective + " has no algorithm '" + name + "'; see tutti-plan --list");
  }
  auto machine = Machine::load(options.file, options.description);
  if (!machine) return fail(kRefused, std::string(machine.status().text()));
  std::vector<uint32_t> counts = options.ranks;
  if (counts.empty()) counts.push_back(machine->rank_count());
  std::vector<Row> rows;
  std::cout << "# " << options.collective << ": predicted time in us; >: at least"
            << (machine->on_gpus() ? "; costs of steps on GPUs are estimates" : "") << "\n";
  for (const uint32_t ranks : counts) {
    if (options.root >= ranks)
      return fail(kBadUsage, format("root %u is not one of %u ranks", options.root, ranks));
    for (const uint64_t bytes : sizes_between(*least, *most, options.factor)) {
      const Request request{.collective = *collective,
                            .rank_count = ranks,
                            .root = options.root,
                            .block_bytes = block_bytes_of(*collective, ranks, bytes)};
      auto candidates = predict(*machine, request, {.algorithms = options.algorithms});
      if (!candidates) return fail(kRefused, std::string(candidates.status().text()));
      if (candidates->empty()) return fail(kRefused, "none of these algorithms serves the request");
      rows.push_back({.ranks = ranks, .bytes = bytes, .candidates = std::move(*candidates)});
    }
  }
  print_table(*collective, rows);
  if (options.svg.empty()) return 0;
  std::ofstream file(options.svg, std::ios::binary);
  file << draw_plot(plot_of(options, *collective, rows)) << std::flush;
  return file ? 0 : fail(kBadUsage, "cannot write " + options.svg);
}

}  // namespace
}  // namespace tutti::tool

int main(int argc, char** argv) {
  tutti::tool::Options options;
  CLI::App app("Predicts the time of a collective on any machine, algorithms side by side.");
  tutti::tool::name_mistakes(app, "tutti-sim");
  app.add_option("collective", options.collective, "all_reduce, all_gather, ...")->required();
  auto* file = app.add_option("FILE", options.file, "a topology file (docs/topology.md)");
  app.add_option("-d,--describe", options.description,
                 "a machine in words: \"2 hosts x 8 gpus, nvswitch 450 GB/s\"")
      ->excludes(file);
  app.add_option("-b,--least", options.least_bytes,
                 "the smallest message; if a buffer holds a block for every rank: "
                 "bytes of all blocks")
      ->capture_default_str();
  app.add_option("-e,--most", options.most_bytes, "the largest message")->capture_default_str();
  app.add_option("-f,--factor", options.factor, "between two sizes")
      ->capture_default_str()
      ->check(CLI::Range(2u, 1u << 20));
  app.add_option("-n,--ranks", options.ranks, "rank counts; default: all ranks of the machine")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 20));
  app.add_option("-a,--algorithms", options.algorithms, "only these")->delimiter(',');
  app.add_option("--root", options.root, "root rank")->capture_default_str();
  app.add_option("--svg", options.svg, "a plot: over sizes, or over rank counts if there is one size");
  app.set_version_flag("--version", tutti::version_line("tutti-sim"));
  app.footer("Exit status: 1 if the machine or the request is refused, 2 for wrong arguments.");
  try {
    app.parse(argc, argv);
    return tutti::tool::end_output("tutti-sim", tutti::tool::run(options));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : tutti::tool::kBadUsage;
  } catch (const std::exception& error) {
    return tutti::tool::fail(tutti::tool::kBadUsage, error.what());
  }
}
