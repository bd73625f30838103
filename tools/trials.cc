#include "tools/trials.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <random>

#include "algorithms/choice.h"
#include "algorithms/predict.h"
#include "core/random.h"
#include "tools/equal_plans.h"
#include "tools/runs.h"
#include "tools/sizes.h"
#include "topology/measurements.h"

namespace tutti::tool {
namespace {

using Clock = std::chrono::steady_clock;

struct Setting {
  uint32_t processes;
  uint32_t hosts;
  const char* least_bytes;
  const char* most_bytes;
  uint32_t factor;
  uint32_t turns;
  double row_ms;
  double all_reduce_s;  ///< what a run took on a Granite Rapids; of other collectives half of it
};
/// Many short rows in turns: a busy moment of the machine then falls on few rows of a size.
constexpr uint32_t kTurns = 5;
/// A row has eight calls at least, so that the rows of long calls are long.
constexpr uint32_t kTurnsOfLongCalls = 2;
constexpr double kRowMs = 0.3;
/// Ranks that share cores have good and bad moments of a millisecond.
constexpr double kSharedRowMs = 1;
/// What most jobs of a host need comes first. Short calls of 2 ranks take times that jump from one size to
/// the next. Long calls come last: there is time for them when the others are known.
constexpr Setting kSettings[] = {{2, 1, "8", "2K", 2, kTurns, kRowMs, 0.5},
                                 {2, 1, "8K", "512K", 4, kTurns, kRowMs, 0.5},
                                 {4, 1, "8", "32K", 4, kTurns, kSharedRowMs, 1.0},
                                 {4, 1, "128K", "512K", 4, kTurnsOfLongCalls, kSharedRowMs, 0.7},
                                 {8, 1, "8", "32K", 4, kTurns, kSharedRowMs, 1.3},
                                 {8, 1, "256K", "256K", 2, kTurnsOfLongCalls, kSharedRowMs, 1.0},
                                 {2, 2, "8", "256K", 8, kTurns, kRowMs, 0.6},
                                 {4, 2, "8", "256K", 8, kTurns, kSharedRowMs, 1.9},
                                 {2, 1, "2M", "16M", 8, kTurnsOfLongCalls, kRowMs, 2.7},
                                 {4, 1, "4M", "4M", 2, kTurnsOfLongCalls, kSharedRowMs, 2.1},
                                 {8, 1, "2M", "2M", 2, kTurnsOfLongCalls, kSharedRowMs, 2.8},
                                 {2, 2, "4M", "4M", 2, kTurnsOfLongCalls, kRowMs, 1.2},
                                 {4, 2, "2M", "2M", 2, kTurnsOfLongCalls, kSharedRowMs, 1.9}};
/// What matters most comes first.
constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kAllGather,
                                     Collective::kReduceScatter, Collective::kBroadcast,
                                     Collective::kAllToAll};
constexpr uint32_t kRunTimeoutS = 5;

/// Of ten algorithms, more where ranks share cores (docs/measurements/topology.md).
constexpr Noise kNoise = {.own_cores = 0.3, .shared_cores = 0.45};

struct Trial {
  const Setting* setting;
  Collective collective;

  double expected_s() const {
    return setting->all_reduce_s * (collective == Collective::kAllReduce ? 1 : 0.5);
  }
};

/// How much longer than expected runs take here.
class Pace {
 public:
  void add(double took_s, double expected_s) {
    took_s_ += took_s;
    expected_s_ += expected_s;
  }
  double or_if_unknown(double pace) const { return expected_s_ > 0 ? took_s_ / expected_s_ : pace; }

 private:
  double took_s_ = 0;
  double expected_s_ = 0;
};

/// In how many starts of the ranks this was tried.
uint32_t starts_of(const Trial& trial, const topology::CallTimes& known) {
  const Setting& setting = *trial.setting;
  const uint64_t least = *parse_bytes(setting.least_bytes) / 2;  // sizes are rounded to whole blocks
  const uint64_t most = *parse_bytes(setting.most_bytes);
  uint32_t starts = 0;
  for (const auto& [call, times] : known) {
    if (call.collective != trial.collective || call.ranks != setting.processes || call.hosts != setting.hosts)
      continue;
    const auto size = times.lower_bound(least);
    if (size != times.end() && size->first <= most) starts = std::max(starts, size->second.starts);
  }
  return starts;
}

/// Those of the fewest starts first: of none in the order of the settings, of equally many in any order, so
/// that each has its turn.
std::vector<Trial> all_trials(const topology::CallTimes& known, uint32_t seed) {
  std::vector<std::pair<uint32_t, Trial>> by_starts;
  for (const Setting& setting : kSettings) {
    for (const Collective collective : kCollectives) {
      const Trial trial = {&setting, collective};
      by_starts.emplace_back(starts_of(trial, known), trial);
    }
  }
  const auto first_known = std::stable_partition(by_starts.begin(), by_starts.end(),
                                                 [](const auto& one) { return one.first == 0; });
  std::shuffle(first_known, by_starts.end(), std::minstd_rand(seed));
  std::stable_sort(first_known, by_starts.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  std::vector<Trial> trials;
  for (const auto& one : by_starts) trials.push_back(one.second);
  return trials;
}

Result<Report> run(const Trial& trial, const std::string& perf_tools) {
  const Setting& setting = *trial.setting;
  return run_perf_tool({.folder = perf_tools,
                        .collective = trial.collective,
                        .processes = setting.processes,
                        .emulated_hosts = setting.hosts,
                        .least_bytes = setting.least_bytes,
                        .most_bytes = setting.most_bytes,
                        .factor = setting.factor,
                        .algorithms = algorithms_of(trial.collective),
                        .turns = setting.turns,
                        .row_ms = setting.row_ms,
                        .timeout_s = kRunTimeoutS});
}

}  // namespace

Result<TriedCalls> try_calls(const std::string& perf_tools, double budget_s,
                             const topology::CallTimes& known) {
  const auto start = Clock::now();
  const auto elapsed_s = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  uint32_t seed = 0;
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(&seed, 1))));
  std::vector<Trial> trials = all_trials(known, seed);
  TriedCalls tried{.wanted_runs = trials.size()};
  Pace all;
  std::map<const Setting*, Pace> of_settings;
  bool has_run = false;
  for (size_t i = 0; i < trials.size(); ++i) {
    const Trial trial = trials[i];
    const double before_s = elapsed_s();
    Pace& own = of_settings[trial.setting];
    // The machine may be slow. Runs differ: calls between far cores take longer.
    constexpr double kFirstPace = 2, kMargin = 1.5;
    const double pace = std::max(all.or_if_unknown(kFirstPace), own.or_if_unknown(0));
    if (before_s + kMargin * pace * trial.expected_s() > budget_s) continue;
    const auto report = run(trial, perf_tools);
    if (!report && !has_run) return report.status();
    has_run = true;
    for (Pace* const of : {&all, &own}) of->add(elapsed_s() - before_s, report ? trial.expected_s() : 0);
    if (!report) continue;
    add_rows(*report, trial.collective, trial.setting->hosts, tried.samples);
    if (have_moved(*report))
      trials.push_back(trial);  // once more, at the end
    else
      ++tried.good_runs;
  }
  return tried;
}

std::string table_of_trials(const std::vector<topology::Measurements>& all, uint32_t cores) {
  Samples samples;
  const auto add = [&](const topology::TriedCall& call, uint64_t bytes, const Sample& sample) {
    const Request request{.collective = call.collective,
                          .rank_count = call.ranks,
                          .block_bytes = block_bytes_of(call.collective, call.ranks, bytes)};
    const Algorithm* const chosen = ChoiceTable::built_in().choose(request, Facts{.cores = cores});
    if (chosen == nullptr || find_algorithm(call.collective, call.algorithm) == nullptr) return;
    // What is kept is of many rows.
    for (uint32_t i = 0; i < kLeastSamples; ++i) {
      samples.add({call.collective, call.ranks, call.hosts, call.algorithm}, bytes, sample, call.algorithm);
      if (chosen->name == call.algorithm)
        samples.add({call.collective, call.ranks, call.hosts, std::string(kDefault)}, bytes, sample,
                    call.algorithm);
    }
  };
  for (const topology::Measurements& one : all) {
    for (const auto& [call, sizes] : one.calls) {
      if (call.hosts > 1) continue;  // emulated hosts are unlike other hosts
      for (const auto& [bytes, time] : sizes)
        add(call, bytes, {static_cast<double>(time.ns.value) / 1000, one.slices.apart_ns.value, time.starts});
    }
  }
  Noise noise = kNoise;
  noise.cores = cores;
  return samples.table_of_gains(noise);
}

topology::CallTimes call_times(const Samples& samples, uint64_t line_ns, Machine* machine) {
  /// By algorithm.
  using Times = std::map<std::string, std::vector<double>>;
  std::map<std::pair<topology::TriedCall, uint64_t>, Times> measured;
  for (const auto& [of, sizes] : samples.cases()) {
    for (const auto& [bytes, size] : sizes) {
      Times& times = measured[{{of.collective, of.ranks, of.hosts}, bytes}];
      for (const Sample& sample : size.samples) {
        if (topology::is_same_distance(sample.line_ns, line_ns)) times[size.ran].push_back(sample.us * 1000);
      }
    }
  }
  const size_t cores = machine == nullptr ? 1 : machine->graph().of_kind(topology::NodeKind::kCore).size();
  topology::CallTimes calls;
  for (const auto& [of, times] : measured) {
    auto [call, bytes] = of;
    const Request request{.collective = call.collective,
                          .rank_count = call.ranks,
                          .block_bytes = block_bytes_of(call.collective, call.ranks, bytes)};
    std::vector<std::string> names;
    for (const auto& [name, ns] : times) names.push_back(name);
    std::map<std::string, std::string> first_of;
    if (machine != nullptr)
      first_of = equal_algorithms(names, request, machine->facts(call.ranks, call.hosts));
    Times of_plans;
    for (const auto& [name, ns] : times) {
      auto& all = of_plans[first_of.try_emplace(name, name).first->second];
      all.insert(all.end(), ns.begin(), ns.end());
    }
    for (const std::string& name : names) {
      call.algorithm = name;
      const std::vector<double>& ns = of_plans.at(first_of.at(name));
      // Ranks that share cores have bad moments again and again. They count.
      calls[call][bytes].ns = call.ranks > cores ? topology::mean_of(ns) : topology::middle_of(ns);
    }
  }
  return calls;
}

}  // namespace tutti::tool
