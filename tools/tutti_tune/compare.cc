#include "tools/tutti_tune/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "algorithms/choice.h"
#include "algorithms/priced_choice.h"

namespace tutti::tool {
namespace {

constexpr double kNear = 1.25;
constexpr double kCheap = 1.05;
/// The perf tools call without pauses.
constexpr uint64_t kRepeatedSlices = uint64_t{1} << 15;

/// Sums over points.
struct Score {
  uint32_t points = 0;
  uint32_t near = 0;
  double log_ratio = 0;  ///< of predicted over measured
  uint32_t choices = 0;
  uint32_t cheap_by_price = 0;
  uint32_t cheap_by_table = 0;
  double log_by_price = 0;
  double log_by_table = 0;

  void add(const Score& other) {
    points += other.points;
    near += other.near;
    log_ratio += other.log_ratio;
    choices += other.choices;
    cheap_by_price += other.cheap_by_price;
    cheap_by_table += other.cheap_by_table;
    log_by_price += other.log_by_price;
    log_by_table += other.log_by_table;
  }
};

double percent(uint32_t part, uint32_t all) {
  return all == 0 ? 0 : 100.0 * part / all;
}

std::string row(const std::string& name, const Score& score) {
  const auto mean = [](double log, uint32_t count) { return count == 0 ? 1 : std::exp(log / count); };
  return format("| %s | %u | %.0f %% | %.2f | %.0f %% | %.2f | %.0f %% | %.2f |\n", name.c_str(),
                score.points, percent(score.near, score.points), mean(score.log_ratio, score.points),
                percent(score.cheap_by_price, score.choices), mean(score.log_by_price, score.choices),
                percent(score.cheap_by_table, score.choices), mean(score.log_by_table, score.choices));
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
           "mean "
           "| choice by table within 5 % | mean |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n" +
           rows + row("all", all);
  }

 private:
  Status add_group(const Case& group, Score& score) {
    std::map<uint64_t, std::map<std::string, double>> measured;
    std::map<uint64_t, double> by_table;
    for (const auto& [of, sizes] : samples_.cases()) {
      if (std::tuple(of.collective, of.ranks, of.hosts) !=
          std::tuple(group.collective, group.ranks, group.hosts))
        continue;
      for (const auto& [bytes, size] : sizes) {
        const double us = samples_.median_us(of, bytes);
        if (of.algorithm == kDefault) {
          by_table[bytes] = us;
        } else {
          measured[bytes][of.algorithm] = us;
        }
      }
    }
    for (const auto& [bytes, times] : measured)
      TUTTI_TRY(add_size(group, bytes, times, by_table[bytes], score));
    return Status::ok();
  }

  Status add_size(const Case& group, uint64_t bytes, const std::map<std::string, double>& times,
                  double by_table_us, Score& score) {
    const Request request{.collective = group.collective,
                          .rank_count = group.ranks,
                          .block_bytes = block_bytes_of(group.collective, group.ranks, bytes)};
    const auto candidates = predict(machine_, request, {.repeated_slices = kRepeatedSlices}, group.hosts);
    TUTTI_TRY(candidates.status());
    double best_us = by_table_us > 0 ? by_table_us : INFINITY;
    for (const auto& [name, us] : times) best_us = std::min(best_us, us);
    double by_price_us = 0;
    for (const Candidate& candidate : *candidates) {
      const auto time = times.find(std::string(candidate.algorithm->name));
      if (time == times.end() || candidate.simulation.is_lower_bound) continue;
      const double ratio = candidate.simulation.microseconds / time->second;
      ++score.points;
      score.near += ratio < kNear && ratio > 1 / kNear ? 1 : 0;
      score.log_ratio += std::log(ratio);
      if (options_.details) {
        lines_ += format("%-14s %2u %9llu %-26s predicted %10.2f measured %10.2f ratio %.2f\n",
                         std::string(collective_name(group.collective)).c_str(), group.ranks,
                         static_cast<unsigned long long>(bytes), time->first.c_str(),
                         candidate.simulation.microseconds, time->second, ratio);
      }
    }
    const Facts facts = machine_.facts(group.ranks, group.hosts);
    const Algorithm* by_table = ChoiceTable::built_in().choose(request, facts);
    auto& prices = prices_
                       .try_emplace({group.ranks, group.hosts},
                                    PricedMachine{.routes = machine_.routes(),
                                                  .costs = machine_.costs(group.ranks, group.hosts)})
                       .first->second;
    const Algorithm* by_price = prices.choose(request, facts, *by_table).algorithm;
    const auto chosen = times.find(std::string(by_price->name));
    if (chosen != times.end()) by_price_us = by_price == by_table ? by_table_us : chosen->second;
    if (by_price_us == 0 || by_table_us <= 0) return Status::ok();
    ++score.choices;
    score.cheap_by_price += by_price_us <= best_us * kCheap ? 1 : 0;
    score.cheap_by_table += by_table_us <= best_us * kCheap ? 1 : 0;
    score.log_by_price += std::log(by_price_us / best_us);
    score.log_by_table += std::log(by_table_us / best_us);
    return Status::ok();
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
