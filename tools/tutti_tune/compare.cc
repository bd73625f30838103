#include "tools/tutti_tune/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
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
  double log_cost = 0;

  void add(double cost) {
    ++count;
    cheap += cost <= kCheap ? 1 : 0;
    log_cost += std::log(cost);
  }
  void add(const Choices& other) {
    count += other.count;
    cheap += other.cheap;
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
  Choices by_samples = {};

  void add(const Score& other) {
    points += other.points;
    near += other.near;
    log_ratio += other.log_ratio;
    by_price.add(other.by_price);
    by_table.add(other.by_table);
    by_kept.add(other.by_kept);
    by_samples.add(other.by_samples);
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
  return format(" %.0f %% | %.2f |", percent(choices.cheap, choices.count),
                mean(choices.log_cost, choices.count));
}

std::string row(const std::string& name, const Score& score) {
  return format("| %s | %u | %.0f %% | %.2f |", name.c_str(), score.points, percent(score.near, score.points),
                mean(score.log_ratio, score.points)) +
         columns(score.by_price) + columns(score.by_table) + columns(score.by_kept) +
         columns(score.by_samples) + "\n";
}

/// Samples of one size, each case's by themselves in the order of their measurement.
using Series = std::vector<std::vector<double>>;
/// By algorithm.
using Times = std::map<std::string, Series>;

/// Every `of`-th start of the processes, from start `first` on. Of one start: every `of`-th sample. A single
/// sample is in every part.
struct Part {
  size_t first;
  size_t of;
};

double middle_us(const Series& series, const Part& part) {
  std::vector<double> some;
  for (const std::vector<double>& samples : series) {
    const size_t in_a_row = samples.size() > kLeastSamples ? kLeastSamples : 1;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (samples.size() == 1 || i / in_a_row % part.of == part.first) some.push_back(samples[i]);
    }
  }
  return middle(std::move(some));
}

double middle_us(const Series& series) {
  std::vector<double> all;
  for (const std::vector<double>& samples : series) all.insert(all.end(), samples.begin(), samples.end());
  return middle(std::move(all));
}

const std::string& fastest_of(const Times& times, const Part& part) {
  const auto us = [&](const Times::value_type& one) { return middle_us(one.second, part); };
  return std::ranges::min_element(times, {}, us)->first;
}

/// How much longer the algorithm takes than the fastest one. One part of the samples says which is the
/// fastest, and the other one how long it takes: the best of ten equal ones is the fastest by chance, and
/// where its pages lie stays the same for a whole start of the processes.
double cost_of(const std::string& algorithm, const Times& times, const Part& one, const Part& other) {
  const auto cost = [&](const Part& chooses, const Part& measures) {
    return middle_us(times.at(algorithm), measures) /
           middle_us(times.at(fastest_of(times, chooses)), measures);
  };
  return std::sqrt(cost(one, other) * cost(other, one));
}

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
    return lines_ +
           "| | points | within 25 % | predicted / measured | choice by price within 5 % of the fastest | "
           "mean | by built-in table | mean | by kept table | mean | by a third of these samples | mean |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" +
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
        auto& samples = measured[bytes][size.ran].emplace_back();
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
      add_point(group, bytes, candidate, middle_us(time->second), score);
    }
    const Facts facts = machine_.facts(group.ranks, group.hosts);
    const Algorithm* by_table = ChoiceTable::built_in().choose(request, facts);
    auto& prices = prices_
                       .try_emplace({group.ranks, group.hosts},
                                    PricedMachine{.routes = machine_.routes(),
                                                  .costs = machine_.costs(group.ranks, group.hosts)})
                       .first->second;
    std::vector<std::string> names;
    for (const auto& [name, series] : times) names.push_back(name);
    // Their times differ by chance only, and the best of five equal ones would win by it.
    const auto first_of = equal_algorithms(names, request, facts);
    Times of_plans;
    for (const auto& [name, series] : times) {
      Series& all = of_plans[first_of.at(name)];
      all.insert(all.end(), series.begin(), series.end());
    }
    const auto add = [&](Choices& choices, const Algorithm* algorithm) {
      if (const auto first = first_of.find(std::string(algorithm->name)); first != first_of.end())
        choices.add(cost_of(first->second, of_plans, {0, 2}, {1, 2}));
    };
    add(score.by_table, by_table);
    add(score.by_price, prices.choose(request, facts, {by_table}).way.algorithm);
    add(score.by_kept, options_.kept.choose(request, facts));
    add_thirds(of_plans, score.by_samples);
    return Status::ok();
  }

  /// Each third of the samples chooses once, and the others judge.
  static void add_thirds(const Times& times, Choices& choices) {
    constexpr size_t kParts = 3;
    for (size_t third = 0; third < kParts; ++third) {
      const auto has_few = [&](const auto& one) {
        size_t count = 0;
        for (const auto& samples : one.second) count += samples.size();
        return count < kParts || middle_us(one.second, {third, kParts}) == 0;
      };
      if (std::ranges::any_of(times, has_few)) return;
    }
    for (size_t third = 0; third < kParts; ++third) {
      const Part one{(third + 1) % kParts, kParts}, other{(third + 2) % kParts, kParts};
      choices.add(cost_of(fastest_of(times, {third, kParts}), times, one, other));
    }
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
