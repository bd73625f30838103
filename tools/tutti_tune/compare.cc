#include "tools/tutti_tune/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "algorithms/choice.h"
#include "algorithms/priced_choice.h"
#include "tools/equal_plans.h"

namespace tutti::tool {
namespace {

constexpr double kNear = 1.25;
constexpr double kCheap = 1.05;

/// How good a way to choose is, summed over sizes.
struct Choices {
  uint32_t count = 0;
  uint32_t cheap = 0;
  uint32_t surely_cheap = 0;
  uint32_t surely_dear = 0;
  uint32_t unmeasured = 0;  ///< chosen algorithms without enough samples, which count as dear
  double log_cost = 0;

  void add(const Lead& cost) {
    const double limit = std::log(kCheap);
    ++count;
    cheap += cost.mean <= limit ? 1 : 0;
    surely_cheap += cost.is_surely_below(limit) ? 1 : 0;
    surely_dear += cost.is_surely_above(limit) ? 1 : 0;
    log_cost += cost.mean;
  }
  void add_unmeasured() {
    ++count;
    ++unmeasured;
  }
  void add(const Choices& other) {
    count += other.count;
    cheap += other.cheap;
    surely_cheap += other.surely_cheap;
    surely_dear += other.surely_dear;
    unmeasured += other.unmeasured;
    log_cost += other.log_cost;
  }
};

/// Sums over points.
struct Score {
  uint32_t points = 0;
  uint32_t near = 0;
  double log_ratio = 0;  ///< of predicted over measured
  Choices by_price = {};
  Choices by_table = {};
  Choices by_kept = {};
  Choices as_run = {};  ///< as the library chose when it was measured, without a kept table
  Choices of_equals = {};

  void add(const Score& other) {
    points += other.points;
    near += other.near;
    log_ratio += other.log_ratio;
    by_price.add(other.by_price);
    by_table.add(other.by_table);
    by_kept.add(other.by_kept);
    as_run.add(other.as_run);
    of_equals.add(other.of_equals);
  }
};

double percent(uint32_t part, uint32_t all) {
  return all == 0 ? 0 : 100.0 * part / all;
}

double mean(double log, uint32_t count) {
  return count == 0 ? 1 : std::exp(log / count);
}

std::string columns(const Choices& choices) {
  if (choices.count == 0) return " - | - |";
  const auto part = [&](uint32_t some) { return percent(some, choices.count); };
  const std::string missing =
      choices.unmeasured > 0 ? format(", %u not measured", choices.unmeasured) : std::string();
  return format(" %.0f %% (%.0f, %.0f)%s | %.2f |", part(choices.cheap), part(choices.surely_cheap),
                part(choices.surely_dear), missing.c_str(),
                mean(choices.log_cost, choices.count - choices.unmeasured));
}

std::string row(const std::string& name, const Score& score) {
  return format("| %s | %u | %.0f %% | %.2f |", name.c_str(), score.points, percent(score.near, score.points),
                mean(score.log_ratio, score.points)) +
         columns(score.by_price) + columns(score.by_table) + columns(score.by_kept) + columns(score.as_run) +
         columns(score.of_equals) + "\n";
}

/// By algorithm.
using Times = std::map<std::string, std::vector<double>>;

class Comparison {
 public:
  Comparison(const Samples& samples, Machine& machine, const CompareOptions& options)
      : samples_(samples), machine_(machine), options_(options) {}

  Result<std::string> run() {
    std::set<std::tuple<Collective, uint32_t, uint32_t>> groups;
    for (const auto& [of, sizes] : samples_.cases()) groups.emplace(of.collective, of.ranks, of.hosts);
    std::string rows;
    Score all;
    for (const auto& [collective, ranks, hosts] : groups) {
      if (hosts > 1 && !options_.emulates_hosts) continue;
      Score score;
      TUTTI_TRY(add_group({collective, ranks, hosts, ""}, score));
      const std::string where = hosts > 1 ? format(" on %u hosts", hosts) : "";
      rows += row(
          format("%s, %u ranks%s", std::string(collective_name(collective)).c_str(), ranks, where.c_str()),
          score);
      all.add(score);
    }
    return lines_ + "| | points | within 25 % | predicted / measured | choice by price" +
           (options_.emulates_hosts ? ", which the library has not over emulated hosts," : "") +
           " within 5 % of the fastest (surely, surely not) | mean | by built-in table | mean | by kept "
           "table | "
           "mean | as the library ran | mean | an algorithm behind itself | mean |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" +
           rows + row("all", all);
  }

 private:
  Status add_group(const Case& group, Score& score) {
    std::map<uint64_t, Times> measured;
    for (const auto& [of, sizes] : samples_.cases()) {
      if (std::tuple(of.collective, of.ranks, of.hosts) !=
          std::tuple(group.collective, group.ranks, group.hosts))
        continue;
      for (const auto& [bytes, size] : sizes) {
        // The library's choice is one of them, too.
        auto& samples = measured[bytes][size.ran];
        for (const Sample& sample : size.samples) samples.push_back(sample.us);
      }
    }
    for (const auto& [bytes, times] : measured) TUTTI_TRY(add_size(group, bytes, times, score));
    return Status::ok();
  }

  Status add_size(const Case& group, uint64_t bytes, const Times& times, Score& score) {
    const Request request{.collective = group.collective,
                          .rank_count = group.ranks,
                          .block_bytes = block_bytes_of(group.collective, group.ranks, bytes)};
    const auto candidates = predict(machine_, request, {.repeated_slices = kRepeatedSlices}, group.hosts);
    TUTTI_TRY(candidates.status());
    for (const Candidate& candidate : *candidates) {
      const auto time = times.find(std::string(candidate.way.algorithm->name));
      if (time == times.end() || candidate.simulation.is_lower_bound) continue;
      add_point(group, bytes, candidate, middle(time->second), score);
    }
    const Facts facts = machine_.facts(group.ranks, group.hosts);
    const Algorithm* by_table = ChoiceTable::built_in().choose(request, facts);
    auto& prices = prices_
                       .try_emplace({group.ranks, group.hosts},
                                    PricedMachine{.routes = machine_.routes(),
                                                  .costs = machine_.costs(group.ranks, group.hosts)})
                       .first->second;
    std::vector<std::string> names;
    for (const auto& [name, us] : times) names.push_back(name);
    // Their times differ by chance only, and the best of five equal ones would win by it.
    const auto first_of = equal_algorithms(names, request, facts);
    const PairedTimes plans =
        paired(group, bytes, [&](const Case&, const std::string& ran) { return first_of.at(ran); });
    if (plans.empty()) return Status::ok();
    const auto add = [&](Choices& choices, const std::string& algorithm) {
      const auto first = first_of.find(algorithm);
      const auto cost = first == first_of.end() ? std::nullopt : plans.lead_over_fastest(first->second);
      if (cost)
        choices.add(*cost);
      else
        choices.add_unmeasured();
    };
    add(score.by_table, std::string(by_table->name));
    add(score.by_price, std::string(prices.choose(request, facts, {by_table}).way.algorithm->name));
    add(score.by_kept, std::string(options_.kept.choose(request, facts)->name));
    if (const std::string ran = samples_.own_choice(group, bytes); !ran.empty()) {
      add(score.as_run, ran);
      add_equals(group, bytes, ran, score.of_equals);
    }
    return Status::ok();
  }

  PairedTimes paired(const Case& group, uint64_t bytes, const Samples::Name& name) const {
    PairedTimes times = samples_.paired_times(group, bytes, name);
    times.split_one_start();
    return times;
  }

  /// What the library chose was also measured by its name: how much slower does either seem by chance?
  void add_equals(const Case& group, uint64_t bytes, const std::string& ran, Choices& choices) const {
    const PairedTimes times =
        paired(group, bytes, [](const Case& of, const std::string&) { return of.algorithm; });
    const std::string own(kDefault);
    for (const auto& cost : {times.lead(own, ran), times.lead(ran, own)})
      if (cost) choices.add(*cost);
  }

  void add_point(const Case& group, uint64_t bytes, const Candidate& candidate, double us, Score& score) {
    const double predicted_us = candidate.simulation.microseconds;
    const double ratio = predicted_us / us;
    ++score.points;
    score.near += ratio < kNear && ratio > 1 / kNear ? 1 : 0;
    score.log_ratio += std::log(ratio);
    if (!options_.details) return;
    lines_ += format("%-14s %2u %9llu %-26s predicted %10.2f measured %10.2f ratio %.2f\n",
                     std::string(collective_name(group.collective)).c_str(), group.ranks,
                     static_cast<unsigned long long>(bytes),
                     std::string(candidate.way.algorithm->name).c_str(), predicted_us, us, ratio);
  }

  const Samples& samples_;
  Machine& machine_;
  const CompareOptions options_;
  std::map<std::pair<uint32_t, uint32_t>, PricedChoice> prices_;  ///< by ranks and hosts
  std::string lines_;
};

}  // namespace

Result<std::string> compare(const Samples& samples, Machine& machine, const CompareOptions& options) {
  return Comparison(samples, machine, options).run();
}

}  // namespace tutti::tool
