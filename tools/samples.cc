#include "tools/samples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <sstream>
#include <tuple>

#include "algorithms/choice.h"
#include "core/version_line.h"
#include "topology/call_times.h"
#include "topology/kept.h"
#include "topology/measurements.h"

namespace tutti::tool {
namespace {

/// An algorithm keeps the next size where it takes less than so many times as long as the fastest one.
constexpr double kKeepsNextSize = 1.02;
/// The same of those that are faster than the library's choice by more than noise.
constexpr double kKeepsNextGain = 1.03;
/// The fastest algorithm of such calls is taken for longer ones, too.
constexpr uint64_t kLongCall = uint64_t{1} << 20;

std::string samples_title() {
  return "# collective ranks hosts bytes algorithm microseconds, " + version_line("tutti-tune") + "\n";
}

template <class T>
bool read_number(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

/// Whether both are times of the same calls, by whatever algorithm.
bool is_alike(const Case& a, const Case& b) {
  return std::tuple(a.collective, a.ranks, a.hosts) == std::tuple(b.collective, b.ranks, b.hosts);
}

/// "s1a2b.3".
bool read_block(std::string_view word, Sample& sample) {
  const size_t dot = word.find('.');
  if (!word.starts_with('s') || dot == std::string_view::npos) return false;
  const std::string_view start = word.substr(1, dot - 1);
  const auto [end, error] = std::from_chars(start.data(), start.data() + start.size(), sample.start, 16);
  return error == std::errc() && end == start.data() + start.size() &&
         read_number(word.substr(dot + 1), sample.turn);
}

std::string by_what_ran(const Case&, const std::string& ran) {
  return ran;
}

/// As `print` writes it: else a later run, which reads that, would make another table.
Sample as_printed(const Sample& sample) {
  Sample kept = sample;
  return read_number(format("%.4g", sample.us), kept.us) ? kept : sample;
}

}  // namespace

Result<Samples> Samples::parse(std::string_view text) {
  Samples samples;
  samples.are_of_this_version_ = text.starts_with(samples_title());
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
    Sample sample;
    if (words.size() > 6 && read_block(words.back(), sample)) words.pop_back();
    if (words.size() > 6 && words.back().ends_with("ns") &&
        read_number(std::string_view(words.back()).substr(0, words.back().size() - 2), sample.line_ns))
      words.pop_back();
    const auto collective = collective_from_name(words[0]);
    const bool is_default = words.size() == 7 && words[4] == kDefault;
    if (!collective || !(words.size() == 6 || is_default) || !read_number(words[1], of.ranks) ||
        !read_number(words[2], of.hosts) || !read_number(words[3], bytes) ||
        !read_number(words[5], sample.us) || of.ranks < 2 || of.ranks > topology::kTriedRanksMax ||
        of.hosts == 0 || of.hosts > of.ranks || bytes > topology::kTriedBytesMax ||
        !std::isfinite(sample.us) || sample.us <= 0) {
      return Status(
          Code::kInvalidArgument,
          format("line %u: expected collective, ranks, hosts, bytes, algorithm, microseconds", number));
    }
    of.collective = *collective;
    of.algorithm = words[4];
    const std::string& ran = is_default ? words[6] : words[4];
    if (find_algorithm(of.collective, ran) == nullptr)
      return Status(Code::kInvalidArgument, format("line %u: no algorithm of this name", number));
    samples.add(of, bytes, sample, ran);
  }
  return samples;
}

std::string Samples::print() const {
  std::string out = samples_title();
  for (const auto& [of, sizes] : cases_) {
    for (const auto& [bytes, size] : sizes) {
      for (const Sample& sample : size.samples) {
        out += format("%s %u %u %llu %s %.4g", std::string(collective_name(of.collective)).c_str(), of.ranks,
                      of.hosts, static_cast<unsigned long long>(bytes), of.algorithm.c_str(), sample.us);
        out += of.algorithm == kDefault ? " " + size.ran : "";
        out += sample.line_ns > 0 ? format(" %lluns", static_cast<unsigned long long>(sample.line_ns)) : "";
        out += format(" s%x.%u\n", sample.start, sample.turn);
      }
    }
  }
  return out;
}

void Samples::add(const Case& of, uint64_t bytes, const Sample& sample, const std::string& ran) {
  if (of.algorithm != kDefault && of.algorithm != ran) return;
  Size& size = cases_[of][bytes];
  if (size.ran != ran) size.samples.clear();  // of another version's choice
  size.samples.push_back(as_printed(sample));
  size.ran = ran;
  if (sample.start != 0) return;
  // Starts have large numbers.
  const auto before = static_cast<uint32_t>(size.samples.size() - 1);
  size.samples.back().start = before / kLeastSamples + 1;
  size.samples.back().turn = before % kLeastSamples;
}

uint32_t Samples::rounds_of(const Case& of, const std::set<uint64_t>& sizes) const {
  const auto found = cases_.find(of);
  uint32_t least = UINT32_MAX;
  for (const uint64_t bytes : sizes) {
    if (found == cases_.end() || !found->second.contains(bytes)) return 0;
    least = std::min(least, static_cast<uint32_t>(found->second.at(bytes).samples.size()));
  }
  return least;
}

std::string Samples::own_choice(const Case& any, uint64_t bytes) const {
  Case own = any;
  own.algorithm = kDefault;
  const auto sizes = cases_.find(own);
  if (sizes == cases_.end()) return {};
  const auto size = sizes->second.find(bytes);
  return size == sizes->second.end() ? std::string() : size->second.ran;
}

Samples::Measured Samples::measured_at(const Case& any, uint64_t bytes, const Name& name) const {
  struct Row {
    std::string algorithm;
    const Sample* sample;
  };
  std::vector<Row> rows;
  std::set<uint64_t> lines;
  std::string own;
  for (const auto& [of, sizes] : cases_) {
    const auto size = sizes.find(bytes);
    if (!is_alike(of, any) || size == sizes.end()) continue;
    const std::string algorithm = name(of, size->second.ran);
    if (of.algorithm == kDefault) own = algorithm;
    for (const Sample& sample : size->second.samples) {
      rows.push_back({algorithm, &sample});
      lines.insert(sample.line_ns);
    }
  }
  const std::vector<uint64_t> distances = topology::distances_of(lines);
  Measured all;
  for (const Row& row : rows)
    all[row.algorithm][topology::distance_at(distances, row.sample->line_ns)].push_back(*row.sample);
  drop_rare(all, own);
  return all;
}

/// Distances without the library's choice, or with few algorithms, do not count. Nor do algorithms without
/// samples at a distance that counts: where all take longer, they would seem faster.
void Samples::drop_rare(Measured& all, const std::string& own) {
  std::map<uint64_t, size_t> counts;  // of algorithms at each distance
  for (auto& [algorithm, samples] : all) {
    std::erase_if(samples, [](const auto& one) { return one.second.size() < kLeastSamples; });
    for (const auto& [distance, some] : samples) ++counts[distance];
  }
  std::erase_if(all, [](const auto& one) { return one.second.empty(); });
  size_t most = 0;
  for (const auto& [distance, count] : counts) most = std::max(most, count);
  const auto by_default = all.find(own);
  std::erase_if(counts, [&](const auto& one) {
    const bool lacks_default = by_default != all.end() && !by_default->second.contains(one.first);
    return 2 * one.second < most || lacks_default;
  });
  for (auto& [algorithm, samples] : all)
    std::erase_if(samples, [&](const auto& one) { return !counts.contains(one.first); });
  std::erase_if(all, [&](const auto& one) { return counts.empty() || one.second.size() < counts.size(); });
}

PairedTimes Samples::paired_times(const Case& any, uint64_t bytes, const Name& name) const {
  PairedTimes paired;
  for (const auto& [algorithm, distances] : measured_at(any, bytes, name)) {
    for (const auto& [distance, samples] : distances) {
      for (const Sample& sample : samples)
        paired.add(algorithm, {distance, sample.start, sample.turn}, sample.us);
    }
  }
  return paired;
}

Samples::Times Samples::times_of(const Case& any, uint64_t bytes) const {
  Times times{.us = {}, .starts = {}, .by_default = own_choice(any, bytes)};
  for (const auto& [algorithm, distances] : measured_at(any, bytes, by_what_ran)) {
    double log_sum = 0;
    uint32_t fewest = UINT32_MAX;
    for (const auto& [distance, samples] : distances) {
      std::vector<double> us;
      uint32_t starts = 0;
      for (const Sample& sample : samples) {
        us.push_back(sample.us);
        starts = std::max(starts, sample.starts);
      }
      log_sum += std::log(middle(std::move(us)));
      fewest = std::min(fewest, starts);
    }
    times.us[algorithm] = std::exp(log_sum / static_cast<double>(distances.size()));
    times.starts[algorithm] = fewest;
  }
  return times;
}

Samples::Known Samples::known_of(const Case& any, uint64_t bytes, const std::string& before) const {
  const PairedTimes paired = paired_times(any, bytes, by_what_ran);
  const std::string own = own_choice(any, bytes);
  const std::string fastest = paired.fastest();
  Known known{bytes, {.us = paired.us(), .starts = {}, .by_default = own}, ""};
  const auto& us = known.times.us;
  if (us.empty() || (!own.empty() && !us.contains(own))) return known;
  const auto kept = paired.lead(before, fastest);
  const auto gain = paired.lead(own, fastest);
  if (kept && us.contains(before) && kept->mean <= std::log(kKeepsNextSize))
    known.winner = before;
  else if (own.empty() || own == fastest || (gain && gain->is_surely_above(0, paired.count() - 1)))
    known.winner = fastest;
  else
    known.winner = own;
  return known;
}

std::string Samples::clear_winner_of(const Times& times, const std::string& before, double noise) {
  const auto own = times.us.find(times.by_default);
  if (own == times.us.end()) return {};
  const auto is_clear = [&](const auto& one) {
    const double starts = std::min(times.starts.at(one.first), times.starts.at(own->first));
    return one.second * (1 + noise / std::sqrt(starts)) < own->second;
  };
  auto fastest = own;
  for (auto one = times.us.begin(); one != times.us.end(); ++one) {
    if (one->second < fastest->second && is_clear(*one)) fastest = one;
  }
  const auto kept = times.us.find(before);
  const bool stays = kept != times.us.end() && fastest != own && is_clear(*kept) &&
                     kept->second < fastest->second * kKeepsNextGain;
  return stays ? before : fastest->first;
}

/// The last size of the first one's winner: where both times are equal, by the logarithms of times and sizes,
/// or in the middle of the sizes' ratio where the samples do not show it. An algorithm that the library
/// itself chooses at one of the sizes only has all sizes between them.
uint64_t Samples::limit_between(const Known& low, const Known& high) {
  if (low.winner == high.winner && low.is_own() != high.is_own())
    return low.is_own() ? low.bytes : high.bytes - 1;
  const auto lead = [&](const Times& times) -> std::optional<double> {
    const auto first = times.us.find(low.winner);
    const auto second = times.us.find(high.winner);
    if (first == times.us.end() || second == times.us.end()) return std::nullopt;
    return std::log(second->second / first->second);
  };
  const auto at_low = lead(low.times);
  const auto at_high = lead(high.times);
  const bool crosses = at_low && at_high && *at_low > 0 && *at_high < 0;
  const double part = crosses ? *at_low / (*at_low - *at_high) : 0.5;
  const auto bytes = static_cast<double>(std::max<uint64_t>(low.bytes, 1));
  const double limit = bytes * std::pow(static_cast<double>(high.bytes) / bytes, part);
  // Each size keeps its winner, whatever is lost in rounding.
  if (limit >= static_cast<double>(high.bytes)) return high.bytes - 1;
  return std::clamp(static_cast<uint64_t>(limit), low.bytes, high.bytes - 1);
}

std::vector<Samples::Known> Samples::known_sizes(const Case& any, const Judge& judge) const {
  std::set<uint64_t> sizes;
  for (const auto& [of, measured] : cases_) {
    if (!is_alike(of, any)) continue;
    for (const auto& [bytes, size] : measured) sizes.insert(bytes);
  }
  std::vector<Known> known;
  for (const uint64_t bytes : sizes) {
    Known size = judge(bytes, known.empty() ? "" : known.back().winner);
    if (!size.winner.empty()) known.push_back(std::move(size));
  }
  return known;
}

std::vector<Samples::Range> Samples::all_ranges(const std::vector<Known>& known) {
  std::vector<Range> ranges;
  uint64_t from = 0;
  for (size_t first = 0, i = 0; i < known.size(); ++i) {
    const bool is_last = i + 1 == known.size();
    if (!is_last && known[i + 1].winner == known[i].winner) continue;
    const uint64_t longest = known[i].bytes >= kLongCall ? UINT64_MAX : 2 * known[i].bytes;
    ranges.push_back({from, is_last ? longest : limit_between(known[i], known[i + 1]), &known[first]});
    from = ranges.back().to + 1;
    first = i + 1;
  }
  return ranges;
}

std::vector<Samples::Range> Samples::ranges_of_gains(const std::vector<Known>& known) {
  std::vector<Range> ranges;
  for (size_t i = 0; i < known.size(); ++i) {
    const Known& size = known[i];
    if (size.is_own()) continue;
    const uint64_t from = i == 0 ? size.bytes / 2 : limit_between(known[i - 1], size) + 1;
    const uint64_t twice = size.bytes > UINT64_MAX / 2 ? UINT64_MAX : 2 * size.bytes;
    const uint64_t to = i + 1 == known.size() ? twice : limit_between(size, known[i + 1]);
    const bool goes_on = i > 0 && known[i - 1].winner == size.winner && !known[i - 1].is_own();
    if (goes_on)
      ranges.back().to = to;
    else
      ranges.push_back({from, to, &size});
  }
  return ranges;
}

std::string Samples::print_rows(const Case& any, ChoiceRow::Condition of_hosts,
                                const std::vector<Range>& ranges) {
  std::string out;
  for (const Range& range : ranges) {
    const ChoiceRow row{.collective = any.collective,
                        .ranks_min = any.ranks,
                        .ranks_max = any.ranks,
                        .bytes_min = range.from,
                        .bytes_max = range.to,
                        .condition = any.hosts > 1 ? of_hosts : ChoiceRow::Condition::kPublish,
                        .algorithm = range.first->winner};
    out += print_row(row) + note_of(*range.first) + "\n";
  }
  return out;
}

std::string Samples::note_of(const Known& size) {
  const double us = size.times.us.at(size.winner);
  const auto by_default = size.times.us.find(size.times.by_default);
  if (by_default == size.times.us.end() || by_default->second <= us) return format("  # %.4g us", us);
  return format("  # %.4g us, default %.4g us", us, by_default->second);
}

std::vector<Case> Samples::kinds() const {
  std::vector<Case> kinds;
  for (const auto& [of, sizes] : cases_) {
    const auto is_own = [&of = of](const Case& other) { return is_alike(of, other); };
    if (std::ranges::none_of(kinds, is_own)) kinds.push_back(of);
  }
  return kinds;
}

std::string Samples::table(bool are_containers) const {
  const auto of_hosts = are_containers ? ChoiceRow::Condition::kContainers : ChoiceRow::Condition::kHosts;
  std::string out = topology::tuned_title();
  for (const Case& any : kinds()) {
    const auto judge = [&](uint64_t bytes, const std::string& before) {
      return known_of(any, bytes, before);
    };
    out += print_rows(any, of_hosts, all_ranges(known_sizes(any, judge)));
  }
  return out;
}

std::string Samples::table_of_gains(const Noise& noise) const {
  std::string out = topology::tuned_title();
  for (const Case& any : kinds()) {
    const bool share_cores = (any.ranks + any.hosts - 1) / any.hosts > noise.cores;
    const double part = share_cores ? noise.shared_cores : noise.own_cores;
    const auto judge = [&](uint64_t bytes, const std::string& before) {
      Times times = times_of(any, bytes);
      std::string winner = clear_winner_of(times, before, part);
      return Known{bytes, std::move(times), std::move(winner)};
    };
    out += print_rows(any, ChoiceRow::Condition::kHosts, ranges_of_gains(known_sizes(any, judge)));
  }
  return out;
}

}  // namespace tutti::tool
