#include "tools/tutti_plan/explain.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <utility>

#include "tools/flags.h"
#include "tools/priced_table.h"
#include "tools/sizes.h"
#include "tools/tutti_plan/known_machines.h"
#include "tools/tutti_plan/report.h"
#include "tools/tutti_plan/timeline.h"

namespace tutti::tool {

using topology::LinkUse;
using topology::Share;
using topology::Simulation;

namespace {

constexpr int kRefused = 1;
constexpr int kBadUsage = 2;
constexpr double kShownShare = 0.02;

struct Options {
  std::string collective;
  std::string file;
  std::string description;
  std::string device;
  std::string bytes = "1M";
  std::string shown;
  std::string trace;
  std::string svg;
  std::vector<std::string> algorithms;
  uint32_t ranks = 0;
  uint32_t root = 0;
  bool reproducible = false;
};

std::string name_of(const Candidate& candidate) {
  return tutti::name_of(candidate.way);
}

double time_of(const Simulation& simulation, std::initializer_list<Share::Kind> kinds) {
  double us = 0;
  for (const Share& share : simulation.shares) {
    if (std::ranges::find(kinds, share.kind) != kinds.end()) us += share.microseconds;
  }
  return us;
}

uint64_t messages_of(const Simulation& simulation) {
  for (const Share& share : simulation.shares) {
    if (share.kind == Share::Kind::kLatency) return share.count;
  }
  return 0;
}

/// "64 MiB".
std::string bytes_text(uint64_t bytes) {
  const std::string text = short_bytes(bytes);
  const bool has_unit = text.back() >= 'A';
  return has_unit ? text.substr(0, text.size() - 1) + " " + text.back() + "iB" : text + " bytes";
}

/// "62 %  12.3 ms  bytes over nvlink between gpu and nvswitch (as ...)".
std::string where_the_time_goes(const Simulation& simulation) {
  std::string out;
  for (const Share& share : simulation.shares) {
    const double part = share.microseconds / simulation.microseconds;
    if (part < kShownShare) continue;
    const std::string times =
        share.kind == Share::Kind::kLatency
            ? format(", %llu one after the other", static_cast<unsigned long long>(share.count))
            : "";
    out += format("  %3.0f %%  %9s  %s%s\n", part * 100, short_time(share.microseconds).c_str(),
                  share.what.c_str(), times.c_str());
  }
  return out;
}

std::string busiest_link(const Simulation& simulation) {
  if (simulation.busiest.empty()) return "";
  const LinkUse& use = simulation.busiest[0];
  const double part = std::min(1.0, use.busy_us / simulation.microseconds);
  std::string out = format("%s carries %s and is busy %.0f %% of the time", use.what.c_str(),
                           bytes_text(use.bytes).c_str(), part * 100);
  if (use.alike > 1) out += format("; %u links like it carry as much", use.alike);
  return out;
}

/// The largest of the differences is the reason.
std::string why_slower(const Candidate& loser, const Candidate& winner) {
  const Simulation& mine = loser.simulation;
  const Simulation& best = winner.simulation;
  const auto more = [&](std::initializer_list<Share::Kind> kinds) {
    return time_of(mine, kinds) - time_of(best, kinds);
  };
  const double steps_us = more({Share::Kind::kSteps, Share::Kind::kLatency});
  const double bytes_us = more({Share::Kind::kBytes});
  const double waits_us = more({Share::Kind::kWaiting});
  if (steps_us >= bytes_us && steps_us >= waits_us) {
    return format(
        "More steps that wait for each other: a chain of %llu messages, where %s has %llu. Their latency "
        "and the fixed cost of steps take %s; there %s.",
        static_cast<unsigned long long>(messages_of(mine)), name_of(winner).c_str(),
        static_cast<unsigned long long>(messages_of(best)),
        short_time(time_of(mine, {Share::Kind::kSteps, Share::Kind::kLatency})).c_str(),
        short_time(time_of(best, {Share::Kind::kSteps, Share::Kind::kLatency})).c_str());
  }
  std::string out;
  if (bytes_us >= waits_us) {
    out = format("More time for bytes: %s on its longest chain; there %s.",
                 short_time(time_of(mine, {Share::Kind::kBytes})).c_str(),
                 short_time(time_of(best, {Share::Kind::kBytes})).c_str());
  } else {
    out = format("Messages wait for links that other messages use: %s on its longest chain; there %s.",
                 short_time(time_of(mine, {Share::Kind::kWaiting})).c_str(),
                 short_time(time_of(best, {Share::Kind::kWaiting})).c_str());
  }
  if (mine.busiest.empty() || best.busiest.empty()) return out;
  const LinkUse& link = mine.busiest[0];
  out += format("\n    Its busiest link, %s, carries %s; that of %s carries %s.", link.what.c_str(),
                bytes_text(link.bytes).c_str(), name_of(winner).c_str(),
                bytes_text(best.busiest[0].bytes).c_str());
  if (link.alike < best.busiest[0].alike) {
    out += format("\n    %u link%s this load; %s spreads its load over %u.", link.alike,
                  link.alike == 1 ? " bears" : "s bear", name_of(winner).c_str(), best.busiest[0].alike);
  }
  return out;
}

Result<Request> request_of(const Options& options, const Machine& machine) {
  const auto collective = collective_from_name(options.collective);
  if (!collective || *collective == Collective::kSendRecv) {
    return Status(Code::kInvalidArgument,
                  "'" + options.collective + "' is not a collective: tutti-plan --list names them");
  }
  const auto bytes = parse_bytes(options.bytes);
  if (!bytes) return Status(Code::kInvalidArgument, "'" + options.bytes + "' is not a number of bytes");
  const uint32_t ranks = options.ranks > 0 ? options.ranks : machine.rank_count();
  if (options.root >= ranks)
    return Status(Code::kInvalidArgument, format("root %u is not one of %u ranks", options.root, ranks));
  for (const std::string& name : options.algorithms) {
    if (find_algorithm(*collective, name) == nullptr)
      return Status(Code::kInvalidArgument, options.collective + " has no algorithm '" + name + "'");
  }
  return Request{.collective = *collective,
                 .rank_count = ranks,
                 .root = options.root,
                 .block_bytes = block_bytes_of(*collective, ranks, *bytes),
                 .reproducible = options.reproducible};
}

int fail(int status, const std::string& text) {
  std::cerr << "tutti-plan: " << text << "\n";
  return status;
}

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  return static_cast<bool>(file);
}

/// The bus bandwidth of the fastest candidate and of the ring, and, for all_reduce on all of a known machine,
/// of others.
std::string bandwidths(const Request& request, std::span<const Candidate> candidates, uint64_t bytes,
                       const KnownMachine& known, const Machine& machine) {
  std::string out = "\n";
  for (const Candidate& candidate : candidates) {
    if (&candidate != &candidates.front() && name_of(candidate) != "ring") continue;
    const double predicted = static_cast<double>(bytes) / candidate.simulation.microseconds / 1000 *
                             bus_factor(request.collective, request.rank_count);
    out += format("Bus bandwidth of %s: %.0f GB/s predicted, not measured.\n", name_of(candidate).c_str(),
                  predicted);
  }
  if (request.collective != Collective::kAllReduce || request.rank_count != machine.rank_count()) return out;
  for (const PublishedBandwidth& other : known.published) {
    out += format("  Published: %.0f GB/s at %s, %s (%s)\n", other.gigabytes_per_s,
                  bytes_text(other.bytes).c_str(), std::string(other.by).c_str(),
                  std::string(other.source).c_str());
  }
  return out;
}

int run(Options& options) {
  const KnownMachine* const known = find_machine(options.device);
  if (!options.device.empty()) {
    if (known == nullptr)
      return fail(kBadUsage, "--device " + options.device + ": not one of " + std::string(machine_names()));
    options.description = known->description;
  }
  if (options.file.empty() == options.description.empty())
    return fail(kBadUsage, "name a topology file with --topology, or a machine with -d or --device");
  auto machine = Machine::load(options.file, options.description);
  if (!machine) return fail(kRefused, std::string(machine.status().text()));
  if (known != nullptr && known->has_multicast) machine->set_multicast();
  const auto request = request_of(options, *machine);
  if (!request) return fail(kBadUsage, std::string(request.status().text()));
  const auto candidates = predict(*machine, *request,
                                  {.algorithms = options.algorithms,
                                   .packet_bytes_max = machine->packet_bytes_max(*request),
                                   .trace = true});
  if (!candidates) return fail(kRefused, std::string(candidates.status().text()));
  if (candidates->empty()) return fail(kRefused, "none of these algorithms serves the request");
  const std::string size = bytes_text(*parse_bytes(options.bytes));
  std::cout << format("%s of %s on %u ranks, %u host%s\n", options.collective.c_str(), size.c_str(),
                      request->rank_count, machine->host_count(request->rank_count),
                      machine->host_count(request->rank_count) == 1 ? "" : "s");
  if (machine->on_gpus())
    std::cout << "The costs of a step on a GPU are estimates (topology/rank_costs.cc).\n";
  std::cout << explain(*request, *candidates) << explain_library(*machine, *request, *candidates);
  if (known != nullptr)
    std::cout << bandwidths(*request, *candidates, *parse_bytes(options.bytes), *known, *machine);
  const auto shown = std::ranges::find(*candidates, options.shown, name_of);
  if (!options.shown.empty() && shown == candidates->end())
    return fail(kBadUsage, "--show " + options.shown + ": not one of the candidates");
  const Candidate& drawn = options.shown.empty() ? candidates->front() : *shown;
  const std::string title =
      format("%s of %s, %u ranks: %s, %s", options.collective.c_str(), size.c_str(), request->rank_count,
             name_of(drawn).c_str(), short_time(drawn.simulation.microseconds).c_str());
  if (!options.trace.empty() && !write(options.trace, chrome_trace(title, drawn.simulation)))
    return fail(kBadUsage, "cannot write " + options.trace);
  if (!options.svg.empty() && !write(options.svg, draw_timeline(title, drawn.simulation)))
    return fail(kBadUsage, "cannot write " + options.svg);
  return 0;
}

}  // namespace

std::string explain(const Request& request, std::span<const Candidate> candidates) {
  const Candidate& winner = candidates.front();
  std::string out = "\nCandidates, fastest first:\n";
  for (const Candidate& candidate : candidates) {
    const Simulation& of = candidate.simulation;
    out +=
        format("  %-38s %s%10s  %6.2f x\n", name_of(candidate).c_str(), of.is_lower_bound ? "at least " : "",
               short_time(of.microseconds).c_str(), of.microseconds / winner.simulation.microseconds);
  }
  out += "\n" + name_of(winner) + " wins. Its longest chain of steps that wait for each other:\n";
  out += where_the_time_goes(winner.simulation);
  out += "  Bottleneck: " + busiest_link(winner.simulation) + ".\n";
  if (winner.simulation.walked_ranks < request.rank_count) {
    out += format("  All hosts do the same: %u ranks were walked for all %u.\n",
                  winner.simulation.walked_ranks, request.rank_count);
  }
  if (candidates.size() > 1) out += "\nWhy the others lose:\n";
  for (const Candidate& candidate : candidates.subspan(1)) {
    out += format("  %s (%.2f x)\n    ", name_of(candidate).c_str(),
                  candidate.simulation.microseconds / winner.simulation.microseconds);
    out += candidate.simulation.is_lower_bound ? "Too slow to be walked to its end."
                                               : why_slower(candidate, winner);
    out += "\n";
  }
  return out;
}

std::string explain_library(Machine& machine, const Request& request, std::span<const Candidate> candidates) {
  const LibraryChoice choice = choice_of_library(machine, request);
  if (choice.way.algorithm == nullptr) return "";
  std::string out = format("\nThe library's table takes %s (row %u).",
                           tutti::name_of(choice.by_table.way).c_str(), choice.by_table.row + 1);
  if (choice.by_price) out += format(" By price the library takes %s.", tutti::name_of(choice.way).c_str());
  const auto found = std::ranges::find(candidates, choice.way, &Candidate::way);
  if (found == candidates.end()) return out + "\n";
  const double us = found->simulation.microseconds;
  const auto over_links = std::ranges::find(
      candidates, false, [](const Candidate& candidate) { return candidate.way.by_packets; });
  if (choice.way.by_packets && over_links != candidates.end()) {
    return out + format(" It is predicted to take %.1f us: %s over links takes %.2f times as long.\n", us,
                        name_of(*over_links).c_str(), over_links->simulation.microseconds / us);
  }
  const double ratio = us / candidates.front().simulation.microseconds;
  return out + (ratio < 1.005 ? " The prediction agrees.\n"
                              : format(" It is predicted to take %.2f times as long as %s.\n", ratio,
                                       name_of(candidates.front()).c_str()));
}

int run_table(int argc, char** argv) {
  std::string file;
  std::string description;
  std::vector<uint32_t> ranks;
  CLI::App app(
      "Writes a choice table for a machine, from predicted times. TUTTI_CHOICE_FILE names such a file.",
      "tutti-plan table");
  name_mistakes(app, "tutti-plan");
  auto* named = app.add_option("--topology", file, "a topology file (docs/topology.md)");
  app.add_option("-d,--describe", description, "a machine in words: \"8 gpus, nvswitch 450 GB/s\"")
      ->excludes(named);
  app.add_option("-n,--ranks", ranks, "rank counts; default: all ranks of the machine")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 20));
  try {
    app.parse(argc, argv);
    if (file.empty() == description.empty())
      return fail(kBadUsage, "name a topology file with --topology, or describe a machine with -d");
    auto machine = Machine::load(file, description);
    if (!machine) return fail(kRefused, std::string(machine.status().text()));
    if (ranks.empty()) ranks.push_back(machine->rank_count());
    const auto table = priced_table(*machine, ranks);
    if (!table) return fail(kRefused, std::string(table.status().text()));
    std::cout << *table;
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  } catch (const std::exception& error) {
    return fail(kBadUsage, error.what());
  }
}

int run_explain(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Explains which algorithm is the fastest for a collective on a machine, and why the others lose.",
      "tutti-plan explain");
  name_mistakes(app, "tutti-plan");
  app.add_option("collective", options.collective, "all_reduce, all_gather, ...")->required();
  auto* file = app.add_option("--topology", options.file, "a topology file (docs/topology.md)");
  auto* words = app.add_option("-d,--describe", options.description,
                               "a machine in words: \"8 gpus, nvswitch 450 GB/s\"")
                    ->excludes(file);
  app.add_option("--device", options.device,
                 "a known machine, beside what others have published: " + std::string(machine_names()))
      ->excludes(file)
      ->excludes(words);
  app.add_option("-s,--bytes", options.bytes,
                 "message bytes, e.g. 64K; if a buffer holds a block for every rank: "
                 "bytes of all blocks")
      ->capture_default_str();
  app.add_option("-n,--ranks", options.ranks, "rank count; default: all ranks of the machine")
      ->check(CLI::Range(1u, 1u << 20));
  app.add_option("-a,--algorithms", options.algorithms, "only these")->delimiter(',');
  app.add_option("--root", options.root, "root rank")->capture_default_str();
  app.add_flag("--reproducible", options.reproducible, "canonical order of reduction");
  app.add_option("--trace", options.trace, "a file for chrome://tracing or Perfetto");
  app.add_option("--svg", options.svg, "a file for a drawing of the timeline");
  app.add_option("--show", options.shown, "the algorithm of these files; default: the winner");
  app.footer("Exit status: 1 if the machine or the request is refused, 2 for wrong arguments.");
  try {
    app.parse(argc, argv);
    return run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  } catch (const std::exception& error) {
    return fail(kBadUsage, error.what());
  }
}

}  // namespace tutti::tool
