// Parses and searches the choice table: see choice.h and choice.txt.
#include "algorithms/choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "algorithms/choice_text.h"
#include "algorithms/predict.h"

namespace tutti {
namespace {

using Condition = ChoiceRow::Condition;

constexpr size_t kMaxRows = 4096;
constexpr size_t kColumns = 5;  // and the optional word below
constexpr std::string_view kEstimate = "estimate";

struct ConditionName {
  Condition condition;
  std::string_view name;
};
constexpr std::array<ConditionName, 8> kConditionNames = {{{Condition::kAny, "any"},
                                                           {Condition::kPublish, "publish"},
                                                           {Condition::kReference, "reference"},
                                                           {Condition::kMulticast, "multicast"},
                                                           {Condition::kShort, "short"},
                                                           {Condition::kHosts, "hosts"},
                                                           {Condition::kContainers, "containers"},
                                                           {Condition::kOversubscribed, "oversubscribed"}}};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

/// A word of the table for a message: short and printable.
std::string quoted(std::string_view word) {
  constexpr size_t kMaxShown = 40;
  std::string shown = "'";
  for (const char c : word.substr(0, kMaxShown)) shown += c > ' ' && c <= '~' ? c : '?';
  return shown + (word.size() > kMaxShown ? "...'" : "'");
}

/// The words of a line before '#', at most `limit` + 1.
std::vector<std::string_view> split_words(std::string_view line, size_t limit) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  while (words.size() <= limit) {
    const auto begin = std::find_if_not(line.begin(), line.end(), is_blank);
    const auto end = std::find_if(begin, line.end(), is_blank);
    if (begin == end) break;
    words.emplace_back(begin, end);
    line = std::string_view(end, line.end());
  }
  return words;
}

/// A number with an optional K, M or G. Returns nothing for other text or a number that is too large.
std::optional<uint64_t> parse_number(std::string_view word) {
  uint64_t value = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || rest == word.data()) return std::nullopt;
  const std::string_view suffix(rest, word.data() + word.size());
  if (suffix.empty()) return value;
  const size_t power = std::string_view("KMG").find(suffix);
  if (suffix.size() != 1 || power == std::string_view::npos) return std::nullopt;
  const auto shift = static_cast<unsigned>(10 * (power + 1));
  if (value > std::numeric_limits<uint64_t>::max() >> shift) return std::nullopt;
  return value << shift;
}

/// "*", "N", "A..B", "A.." or "..B", inclusive. Returns false for other text, if A > B, or if a bound is
/// above *max.
bool parse_range(std::string_view word, uint64_t* min, uint64_t* max) {
  const uint64_t limit = *max;
  if (word == "*") return true;
  const size_t dots = word.find("..");
  if (dots == std::string_view::npos) {
    const auto number = parse_number(word);
    if (!number) return false;
    *min = *max = *number;
  } else {
    const std::string_view low = word.substr(0, dots);
    const std::string_view high = word.substr(dots + 2);
    if (low.empty() && high.empty()) return false;
    if (!low.empty()) {
      const auto number = parse_number(low);
      if (!number) return false;
      *min = *number;
    }
    if (!high.empty()) {
      const auto number = parse_number(high);
      if (!number) return false;
      *max = *number;
    }
  }
  return *min <= *max && *max <= limit;
}

/// "64K" if the number is that, else all digits.
std::string exact_bytes(uint64_t bytes) {
  for (const auto& [unit, name] : {std::pair{30, "G"}, {20, "M"}, {10, "K"}}) {
    if (bytes >> unit > 0 && bytes % (uint64_t{1} << unit) == 0) return std::to_string(bytes >> unit) + name;
  }
  return std::to_string(bytes);
}

std::string known_algorithms(Collective collective) {
  std::string names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != collective) continue;
    if (!names.empty()) names += ", ";
    names += algorithm.name;
  }
  return names;
}

std::optional<Condition> parse_condition(std::string_view word) {
  for (const ConditionName& entry : kConditionNames) {
    if (entry.name == word) return entry.condition;
  }
  return std::nullopt;
}

/// Fills *row. Returns an empty text, or the error.
std::string parse_row(const std::vector<std::string_view>& words, ChoiceRow* row) {
  row->is_estimate = words.size() == kColumns + 1 && words.back() == kEstimate;
  if (words.size() != kColumns && !row->is_estimate)
    return "expected 5 columns: collective ranks bytes condition algorithm, and after them nothing or "
           "\"estimate\"";
  const auto collective = collective_from_name(words[0]);
  if (!collective || *collective == Collective::kSendRecv) return "no collective " + quoted(words[0]);
  row->collective = *collective;

  uint64_t ranks_min = row->ranks_min;
  uint64_t ranks_max = row->ranks_max;
  if (!parse_range(words[1], &ranks_min, &ranks_max) || ranks_min == 0)
    return "expected ranks as N, A..B, A.., ..B or *, from 1, not " + quoted(words[1]);
  row->ranks_min = static_cast<uint32_t>(ranks_min);
  row->ranks_max = static_cast<uint32_t>(ranks_max);

  if (!parse_range(words[2], &row->bytes_min, &row->bytes_max))
    return "expected bytes as N, A..B, A.., ..B or *, with K, M or G, not " + quoted(words[2]);

  const auto condition = parse_condition(words[3]);
  if (!condition)
    return "expected any, publish, reference, multicast, short, hosts, containers or oversubscribed as "
           "condition, not " +
           quoted(words[3]);
  row->condition = *condition;

  if (find_algorithm(row->collective, words[4]) == nullptr) {
    return "no algorithm " + quoted(words[4]) + " for " + std::string(words[0]) +
           "; the algorithms are: " + known_algorithms(row->collective);
  }
  row->algorithm = std::string(words[4]);
  return {};
}

bool holds(Condition condition, const Request& request, const Facts& facts, bool is_short) {
  switch (condition) {
    case Condition::kAny: return true;
    case Condition::kPublish: return facts.can_publish;
    case Condition::kReference: return facts.can_reference;
    case Condition::kMulticast: return facts.can_multicast;
    case Condition::kShort: return is_short;
    case Condition::kHosts: return facts.host_count > 1;
    case Condition::kContainers: return facts.host_count > 1 && facts.are_containers;
    case Condition::kOversubscribed: {
      const uint32_t hosts = std::max(1u, facts.host_count);
      return (request.rank_count + hosts - 1) / hosts > facts.cores;
    }
  }
  return false;
}

}  // namespace

Result<ChoiceTable> ChoiceTable::parse(std::string_view text) {
  ChoiceTable table;
  uint32_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = split_words(text.substr(0, end), kColumns + 1);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    ChoiceRow row;
    std::string defect = parse_row(words, &row);
    if (defect.empty() && table.rows_.size() == kMaxRows) defect = format("more than %zu rows", kMaxRows);
    if (!defect.empty())
      return Status(Code::kInvalidArgument, format("choice table line %u: ", line_number) + defect);
    table.rows_.push_back(std::move(row));
  }
  return table;
}

std::string print_row(const ChoiceRow& row) {
  const auto range = [](uint64_t min, uint64_t max, uint64_t least, uint64_t most) -> std::string {
    if (min <= least && max >= most) return "*";
    if (min == max) return exact_bytes(min);
    return (min <= least ? "" : exact_bytes(min)) + ".." + (max >= most ? "" : exact_bytes(max));
  };
  std::string_view condition;
  for (const ConditionName& entry : kConditionNames) {
    if (entry.condition == row.condition) condition = entry.name;
  }
  return format("%-15s %-6s %-9s %-8s %s%s", std::string(collective_name(row.collective)).c_str(),
                range(row.ranks_min, row.ranks_max, 1, UINT32_MAX).c_str(),
                range(row.bytes_min, row.bytes_max, 0, UINT64_MAX).c_str(), std::string(condition).c_str(),
                row.algorithm.c_str(), row.is_estimate ? " estimate" : "");
}

ChoiceTable ChoiceTable::behind(const ChoiceTable& first) const {
  ChoiceTable both = first;
  both.rows_.insert(both.rows_.end(), rows_.begin(), rows_.end());
  return both;
}

const ChoiceTable& ChoiceTable::built_in() {
  // The embedded text is part of the program, and as constant as the registry.
  static const ChoiceTable kTable = [] {
    auto parsed = parse(built_in_choice_text());
    return parsed.is_ok() ? std::move(*parsed) : ChoiceTable();
  }();
  return kTable;
}

const Algorithm* ChoiceTable::choose(const Request& request, const Facts& facts, uint32_t* row,
                                     uint64_t short_bytes) const {
  const uint64_t bytes = message_bytes(request);
  const bool is_short =
      short_bytes > 0 && !request.variable_counts && request.block_bytes / request.rank_count <= short_bytes;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const ChoiceRow& candidate = rows_[i];
    if (candidate.collective != request.collective || request.rank_count < candidate.ranks_min ||
        request.rank_count > candidate.ranks_max || bytes < candidate.bytes_min ||
        bytes > candidate.bytes_max || !holds(candidate.condition, request, facts, is_short)) {
      continue;
    }
    const Algorithm* algorithm = find_algorithm(candidate.collective, candidate.algorithm);
    if (!algorithm->supports(request, facts)) continue;
    if (candidate.condition == Condition::kShort &&
        most_bytes_to_a_peer(*algorithm, request, facts) > short_bytes)
      continue;
    if (row != nullptr) *row = static_cast<uint32_t>(i);
    return algorithm;
  }
  if (row != nullptr) *row = static_cast<uint32_t>(rows_.size());
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == request.collective && algorithm.supports(request, facts)) return &algorithm;
  }
  return nullptr;
}

}  // namespace tutti
