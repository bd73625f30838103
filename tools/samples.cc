#include "tools/samples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>
#include <tuple>

#include "algorithms/choice.h"

namespace tutti::tool {
namespace {

/// What noise can make of equal times (docs/measurements/predicted.md).
constexpr double kBetterThanDefault = 1.05;
constexpr double kWorthARow = 1.03;

template <class T>
bool read_number(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Result<Samples> Samples::parse(std::string_view text) {
  Samples samples;
  uint32_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::istringstream line{std::string(text.substr(0, end))};
    text.remove_prefix(std::min(end + 1, text.size()));
    std::vector<std::string> words;
    for (std::string word; line >> word;) words.push_back(word);
    if (words.empty() || words[0].starts_with("#")) continue;
    Case of;
    uint64_t bytes = 0;
    double us = 0;
    const auto collective = collective_from_name(words[0]);
    const bool is_default = words.size() == 7 && words[4] == kDefault;
    if (!collective || !(words.size() == 6 || is_default) || !read_number(words[1], of.ranks) ||
        !read_number(words[2], of.hosts) || !read_number(words[3], bytes) || !read_number(words[5], us) ||
        of.ranks == 0 || of.hosts == 0 || !std::isfinite(us) || us <= 0) {
      return Status(
          Code::kInvalidArgument,
          format("line %u: expected collective, ranks, hosts, bytes, algorithm, microseconds", number));
    }
    of.collective = *collective;
    of.algorithm = words[4];
    const std::string& ran = is_default ? words[6] : words[4];
    if (find_algorithm(of.collective, ran) == nullptr)
      return Status(Code::kInvalidArgument, format("line %u: no algorithm of this name", number));
    samples.add(of, bytes, us, ran);
  }
  return samples;
}

std::string Samples::print() const {
  std::string out = "# collective ranks hosts bytes algorithm microseconds (tutti-tune)\n";
  for (const auto& [of, sizes] : cases_) {
    for (const auto& [bytes, size] : sizes) {
      for (const double us : size.us) {
        out += format("%s %u %u %llu %s %.4g", std::string(collective_name(of.collective)).c_str(), of.ranks,
                      of.hosts, static_cast<unsigned long long>(bytes), of.algorithm.c_str(), us);
        out += (of.algorithm == kDefault ? " " + size.ran : "") + "\n";
      }
    }
  }
  return out;
}

void Samples::add(const Case& of, uint64_t bytes, double microseconds, const std::string& ran) {
  if (of.algorithm != kDefault && of.algorithm != ran) return;
  Size& size = cases_[of][bytes];
  size.us.push_back(microseconds);
  size.ran = ran;
}

uint32_t Samples::rounds_of(const Case& of) const {
  const auto found = cases_.find(of);
  if (found == cases_.end()) return 0;
  size_t least = SIZE_MAX;
  for (const auto& [bytes, size] : found->second) least = std::min(least, size.us.size());
  return static_cast<uint32_t>(least);
}

double Samples::median_us(const Case& of, uint64_t bytes) const {
  const auto found = cases_.find(of);
  if (found == cases_.end()) return 0;
  const auto size = found->second.find(bytes);
  return size == found->second.end() ? 0 : middle(size->second.us);
}

Samples::Winner Samples::winner_of(const Case& any, uint64_t bytes, const std::string& before) const {
  std::map<std::string, double> times;
  Winner winner;
  Case of = any;
  of.algorithm = kDefault;
  winner.default_us = median_us(of, bytes);
  if (winner.default_us > 0) {
    winner.algorithm = cases_.at(of).at(bytes).ran;
    winner.us = winner.default_us;
    times[winner.algorithm] = winner.us;
  }
  std::string best;
  double best_us = 0;
  for (const Algorithm& algorithm : algorithms()) {
    of.algorithm = algorithm.name;
    const double us = algorithm.collective == any.collective ? median_us(of, bytes) : 0;
    if (us <= 0 || cases_.at(of).at(bytes).us.size() < kLeastSamples) continue;
    times[of.algorithm] = std::min(us, times.contains(of.algorithm) ? times[of.algorithm] : us);
    if (best_us > 0 && us >= best_us) continue;
    best = of.algorithm;
    best_us = us;
  }
  const bool is_better = best_us > 0 && (winner.us <= 0 || best_us * kBetterThanDefault < winner.us);
  if (is_better) {
    winner.algorithm = best;
    winner.us = best_us;
  }
  const auto kept = times.find(before);
  if (kept != times.end() && kept->second < winner.us * kWorthARow) {
    winner.algorithm = before;
    winner.us = kept->second;
  }
  return winner;
}

std::string Samples::rows_of(const Case& any, bool reaches_far) const {
  std::set<uint64_t> sizes;
  for (const auto& [of, measured] : cases_) {
    if (std::tuple(of.collective, of.ranks, of.hosts) != std::tuple(any.collective, any.ranks, any.hosts))
      continue;
    for (const auto& [bytes, size] : measured) sizes.insert(bytes);
  }
  std::vector<ChoiceRow> rows;
  std::vector<std::string> notes;
  for (auto size = sizes.begin(); size != sizes.end(); ++size) {
    const Winner winner = winner_of(any, *size, rows.empty() ? "" : rows.back().algorithm);
    if (winner.algorithm.empty()) continue;
    if (rows.empty() || rows.back().algorithm != winner.algorithm) {
      rows.push_back(
          {.collective = any.collective,
           .ranks_min = any.ranks,
           .ranks_max = any.ranks,
           .bytes_min = rows.empty() ? 0 : rows.back().bytes_max + 1,
           .condition = any.hosts > 1 ? ChoiceRow::Condition::kHosts : ChoiceRow::Condition::kPublish,
           .algorithm = winner.algorithm});
      notes.push_back(winner.default_us > winner.us
                          ? format("  # %.4g us, default %.4g us", winner.us, winner.default_us)
                          : format("  # %.4g us", winner.us));
    }
    const auto next = std::next(size);
    // Between two sizes the smaller one's row ends in the middle of their ratio.
    rows.back().bytes_max =
        next == sizes.end()
            ? (reaches_far ? UINT64_MAX : 2 * *size)
            : static_cast<uint64_t>(std::sqrt(static_cast<double>(*size) * static_cast<double>(*next)));
  }
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) out += print_row(rows[i]) + notes[i] + "\n";
  return out;
}

std::string Samples::table(bool reaches_far) const {
  std::string out =
      "# Measured by tutti-tune or tutti-topo. The times are those of the first size of a row.\n";
  std::set<std::tuple<Collective, uint32_t, uint32_t>> done;
  for (const auto& [of, sizes] : cases_) {
    if (done.emplace(of.collective, of.ranks, of.hosts).second) out += rows_of(of, reaches_far);
  }
  return out;
}

}  // namespace tutti::tool
