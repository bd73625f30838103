#include "tools/paired_times.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tutti::tool {
namespace {

/// Standard deviation of a start's difference of two algorithms, before anything is known: that of the middle
/// of three turns, of which each row differs by 5 % (docs/measurements/topology.md). It counts as so many
/// starts.
constexpr double kUsualSpread = 0.05;
constexpr double kUsualStarts = 4;
/// Slower algorithms than by this factor say nothing of the spread among the fast ones.
constexpr double kRival = 1.25;
/// That what is called sure is chance.
constexpr double kChance = 0.05;

/// How many standard errors are exceeded with this probability.
double errors_of(double chance) {
  double low = 0, high = 10;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > chance ? low : high) = middle;
  }
  return low;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double squares_around(const std::vector<double>& values, double mean) {
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum;
}

/// The middle of each start's turns.
std::vector<double> middles(const std::map<uint64_t, std::vector<double>>& starts) {
  std::vector<double> result;
  for (const auto& [start, turns] : starts) result.push_back(middle(turns));
  return result;
}

double mean_of_distances(const std::map<uint64_t, std::map<uint64_t, std::vector<double>>>& turns) {
  std::vector<double> means;
  for (const auto& [distance, starts] : turns) means.push_back(mean_of(middles(starts)));
  return mean_of(means);
}

}  // namespace

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t last = values.size() - 1;
  return (values[last / 2] + values[(last + 1) / 2]) / 2;
}

bool Lead::is_surely_above(double limit, size_t rivals) const {
  const double chance = kChance / static_cast<double>(std::max<size_t>(rivals, 1));
  return mean - errors_of(chance) * error > limit;
}

bool Lead::is_surely_below(double limit) const {
  return mean + errors_of(kChance) * error <= limit;
}

void PairedTimes::add(const std::string& algorithm, const Block& block, double us) {
  Row& row = rows_[algorithm][block];
  row.log_sum += std::log(us);
  ++row.count;
}

void PairedTimes::split_one_start() {
  std::set<uint64_t> starts;
  for (const auto& [algorithm, rows] : rows_)
    for (const auto& [block, row] : rows) starts.insert(block.start);
  if (starts.size() != 1) return;
  for (auto& [algorithm, rows] : rows_) {
    Rows split;
    for (const auto& [block, row] : rows) split[{block.distance, block.turn, 0}] = row;
    rows = std::move(split);
  }
}

PairedTimes::Levels PairedTimes::levels(const std::optional<uint64_t>& without_start) const {
  std::map<Block, std::vector<double>> blocks;
  for (const auto& [algorithm, rows] : rows_) {
    for (const auto& [block, row] : rows)
      if (block.start != without_start) blocks[block].push_back(row.log());
  }
  std::erase_if(blocks, [&](const auto& one) { return 2 * one.second.size() <= rows_.size(); });
  Levels levels;
  if (blocks.empty()) return levels;
  std::map<Block, double> middle_of;
  Turns all;
  for (auto& [block, logs] : blocks) {
    middle_of[block] = middle(std::move(logs));
    all[block.distance][block.start].push_back(middle_of[block]);
  }
  levels.middle = mean_of_distances(all);
  for (const auto& [algorithm, rows] : rows_) {
    Turns own;
    for (const auto& [block, row] : rows) {
      if (const auto at = middle_of.find(block); at != middle_of.end())
        own[block.distance][block.start].push_back(row.log() - at->second);
    }
    // Where all take longer, those that were not measured there would seem faster.
    if (own.size() == all.size()) levels.of[algorithm] = mean_of_distances(own);
  }
  return levels;
}

std::map<std::string, double> PairedTimes::us() const {
  const Levels known = levels();
  std::map<std::string, double> us;
  for (const auto& [algorithm, level] : known.of) us[algorithm] = std::exp(known.middle + level);
  return us;
}

std::string PairedTimes::fastest() const {
  const Levels known = levels();
  const auto level = [](const auto& one) { return one.second; };
  const auto least = std::ranges::min_element(known.of, {}, level);
  return least == known.of.end() ? std::string() : least->first;
}

PairedTimes::Turns PairedTimes::differences(const std::string& slow, const std::string& fast) const {
  Turns turns;
  const auto one = rows_.find(slow);
  const auto other = rows_.find(fast);
  if (one == rows_.end() || other == rows_.end()) return turns;
  for (const auto& [block, row] : one->second) {
    if (const auto at = other->second.find(block); at != other->second.end())
      turns[block.distance][block.start].push_back(row.log() - at->second.log());
  }
  return turns;
}

/// By how much a start's difference of two fast algorithms varies, from what all of them show: the few starts
/// of two alone may agree by chance.
double PairedTimes::usual_variance() const {
  double squares = kUsualStarts * kUsualSpread * kUsualSpread;
  double freedoms = kUsualStarts;
  const std::string best = fastest();
  for (const auto& [algorithm, rows] : rows_) {
    if (algorithm == best) continue;
    const Turns turns = differences(algorithm, best);
    if (turns.empty() || mean_of_distances(turns) > std::log(kRival)) continue;
    for (const auto& [distance, starts] : turns) {
      const std::vector<double> of_starts = middles(starts);
      squares += squares_around(of_starts, mean_of(of_starts));
      freedoms += static_cast<double>(of_starts.size() - 1);
    }
  }
  return squares / freedoms;
}

std::optional<Lead> PairedTimes::lead_of(const Turns& turns) const {
  if (turns.empty()) return std::nullopt;
  const double usual = usual_variance();
  double variance = 0;
  for (const auto& [distance, starts] : turns) {
    const std::vector<double> of_starts = middles(starts);
    const auto count = static_cast<double>(of_starts.size());
    const double own = count < 2 ? 0 : squares_around(of_starts, mean_of(of_starts)) / (count - 1);
    variance += std::max(own, usual) / count;
  }
  const auto distances = static_cast<double>(turns.size());
  return Lead{.mean = mean_of_distances(turns), .error = std::sqrt(variance) / distances};
}

std::optional<Lead> PairedTimes::lead(const std::string& slow, const std::string& fast) const {
  return lead_of(differences(slow, fast));
}

std::optional<Lead> PairedTimes::lead_over_fastest(const std::string& algorithm) const {
  const auto own = rows_.find(algorithm);
  if (own == rows_.end()) return std::nullopt;
  std::set<uint64_t> starts;
  for (const auto& [block, row] : own->second) starts.insert(block.start);
  if (starts.size() < 2) return std::nullopt;
  Turns judged;
  for (const uint64_t start : starts) {
    const std::map<std::string, double> others = levels(start).of;
    const auto level = [](const auto& one) { return one.second; };
    const auto rival = std::ranges::min_element(others, {}, level);
    if (rival == others.end()) continue;
    for (const auto& [distance, of_starts] : differences(algorithm, rival->first)) {
      if (const auto at = of_starts.find(start); at != of_starts.end()) judged[distance].insert(*at);
    }
  }
  return lead_of(judged);
}

}  // namespace tutti::tool
