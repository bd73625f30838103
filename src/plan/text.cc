// The text form of plans, parsed line by line by recursive descent.
//
// Header lines ("ranks 4") set fields of the plans that follow. "rank N" begins a plan, and "lane" begins a
// lane. Every other line is a step. One table of header keys serves printing and parsing.
#include "plan/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace tutti {
namespace {

// Limits of a text. Every generated plan is far below them, and their sums do not overflow.
constexpr uint64_t kMaxRanks = 1 << 16;
constexpr uint64_t kMaxChunks = 1 << 24;
constexpr uint64_t kMaxSlots = 1 << 16;
constexpr size_t kMaxSteps = 1 << 24;
constexpr size_t kMaxNameLength = 64;
constexpr size_t kMaxQuoteLength = 24;
constexpr std::string_view kTitle = "tutti plan 1";

constexpr std::array<std::string_view, 3> kAssociationNames = {"none", "any", "canonical"};

/// A header key that holds a number.
struct NumberKey {
  std::string_view name;
  uint32_t Plan::*field;
  uint64_t least;
  uint64_t most;
};
constexpr std::array<NumberKey, 5> kNumberKeys = {{
    {"ranks", &Plan::rank_count, 1, kMaxRanks},
    {"root", &Plan::root, 0, kMaxRanks - 1},
    {"chunks_per_block", &Plan::chunks_per_block, 1, kMaxChunks},
    {"scratch_chunks", &Plan::scratch_chunks, 0, kMaxChunks},
    {"slots_needed", &Plan::slots_needed, 1, kMaxSlots},
}};

void print_range(std::string& out, uint32_t first, uint32_t count) {
  out += std::to_string(first);
  if (count != 1) out += ".." + std::to_string(uint64_t{first} + count);
}

void print_end(std::string& out, const End& end) {
  switch (end.kind) {
    case EndKind::kInput: out += "input "; break;
    case EndKind::kOutput: out += "output "; break;
    case EndKind::kScratch: out += "scratch "; break;
    case EndKind::kLink: out += "link " + std::to_string(end.peer) + "@" + std::to_string(end.channel); break;
    case EndKind::kPublish: out += "publish"; break;
    case EndKind::kCollect: out += "collect"; break;
  }
  if (end.kind < EndKind::kLink) print_range(out, end.first_chunk, end.chunk_count);
  if (end.reference_ok) out += " ref";
  if (end.direct_write_ok) out += " direct";
}

void print_ends(std::string& out, const std::vector<End>& ends) {
  for (size_t i = 0; i < ends.size(); ++i) {
    if (i > 0) out += " + ";
    print_end(out, ends[i]);
  }
}

/// The chunks of a step without a "chunks" clause: the chunks of its first output end, or else of its first
/// input end.
std::optional<std::pair<uint32_t, uint32_t>> implied_chunks(const Step& step) {
  for (const EndKind kind : {EndKind::kOutput, EndKind::kInput}) {
    for (const auto* ends : {&step.sinks, &step.sources}) {
      for (const End& end : *ends) {
        if (end.kind == kind) return std::pair(end.first_chunk, end.chunk_count);
      }
    }
  }
  return std::nullopt;
}

/// The header lines of `plan`, or those in which it differs from `previous`.
void print_header(std::string& out, const Plan& plan, const Plan* previous) {
  if (previous == nullptr ? !plan.algorithm.empty() : previous->algorithm != plan.algorithm) {
    out += "algorithm " + plan.algorithm + "\n";
  }
  if (previous == nullptr || previous->collective != plan.collective) {
    out += "collective " + std::string(collective_name(plan.collective)) + "\n";
  }
  for (const NumberKey& key : kNumberKeys) {
    if (previous == nullptr || previous->*key.field != plan.*key.field) {
      out += std::string(key.name) + " " + std::to_string(plan.*key.field) + "\n";
    }
  }
  if (previous == nullptr || previous->association != plan.association) {
    out += "association " + std::string(kAssociationNames[static_cast<size_t>(plan.association)]) + "\n";
  }
}

/// The unread rest of one line.
class Scanner {
 public:
  explicit Scanner(std::string_view line) : rest_(line) { skip_blanks(); }

  bool at_end() const { return rest_.empty(); }

  /// Takes `symbol` if `symbol` comes next. A word must end there.
  bool take(std::string_view symbol) {
    if (rest_.substr(0, symbol.size()) != symbol) return false;
    const bool is_word = is_word_char(symbol.back());
    if (is_word && rest_.size() > symbol.size() && is_word_char(rest_[symbol.size()])) return false;
    rest_.remove_prefix(symbol.size());
    skip_blanks();
    return true;
  }

  /// Takes a run of letters, digits, '_' and '-'. Empty if something else comes next.
  std::string_view word() {
    size_t length = 0;
    while (length < rest_.size() && (is_word_char(rest_[length]) || rest_[length] == '-')) ++length;
    const std::string_view result = rest_.substr(0, length);
    rest_.remove_prefix(length);
    skip_blanks();
    return result;
  }

  /// A decimal number in [least, most].
  std::optional<uint32_t> number(uint64_t least, uint64_t most) {
    uint64_t value = 0;
    const char* end = rest_.data() + rest_.size();
    const auto [stop, error] = std::from_chars(rest_.data(), end, value);
    if (error != std::errc() || value < least || value > most) return std::nullopt;
    if (stop != end && is_word_char(*stop)) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
    skip_blanks();
    return static_cast<uint32_t>(value);
  }

  /// The next characters, printable and short, for messages.
  std::string quote() const {
    if (rest_.empty()) return "the end of the line";
    std::string text = "'";
    for (const char c : rest_.substr(0, kMaxQuoteLength)) text += c >= ' ' && c <= '~' ? c : '?';
    return text + (rest_.size() > kMaxQuoteLength ? "...'" : "'");
  }

 private:
  static bool is_word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  void skip_blanks() {
    const size_t start = rest_.find_first_not_of(" \t\r");
    rest_ = start == std::string_view::npos ? std::string_view() : rest_.substr(start);
  }

  std::string_view rest_;
};

class Parser {
 public:
  Result<std::vector<Plan>> run(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_number_;
      line = line.substr(0, line.find('#'));
      Scanner scanner(line);
      if (scanner.at_end()) continue;
      TUTTI_TRY(parse_line(scanner));
    }
    if (!titled_) return error("expected '" + std::string(kTitle) + "' in a first line, found an empty text");
    if (plans_.empty()) return error("expected 'rank N' and its lanes, found the end of the text");
    return std::move(plans_);
  }

 private:
  Status error(const std::string& text) const {
    return {Code::kInvalidArgument, "line " + std::to_string(line_number_) + ": " + text};
  }
  Status expected(std::string_view what, const Scanner& scanner) const {
    return error("expected " + std::string(what) + ", found " + scanner.quote());
  }

  Status parse_line(Scanner& scanner) {
    if (!titled_) {
      if (!scanner.take("tutti") || !scanner.take("plan") || !scanner.number(1, 1) || !scanner.at_end()) {
        return expected("'" + std::string(kTitle) + "'", scanner);
      }
      titled_ = true;
      return {};
    }
    if (scanner.take("rank")) return parse_rank(scanner);
    if (scanner.take("lane")) return parse_lane(scanner);
    return parse_end_kind(Scanner(scanner)) ? parse_step(scanner) : parse_header(scanner);
  }

  Status parse_header(Scanner& scanner) {
    if (scanner.take("algorithm")) {
      const std::string_view name = scanner.word();
      if (name.empty() || name.size() > kMaxNameLength)
        return expected("a name of at most 64 letters", scanner);
      header_.algorithm = name;
    } else if (scanner.take("collective")) {
      const Scanner start = scanner;
      const auto collective = collective_from_name(scanner.word());
      if (!collective) return expected("a collective such as all_reduce", start);
      header_.collective = *collective;
      has_collective_ = true;
    } else if (scanner.take("association")) {
      const Scanner start = scanner;
      const auto name = std::find(kAssociationNames.begin(), kAssociationNames.end(), scanner.word());
      if (name == kAssociationNames.end()) return expected("none, any or canonical", start);
      header_.association = static_cast<PlanAssociation>(name - kAssociationNames.begin());
    } else {
      TUTTI_TRY(parse_number_key(scanner));
    }
    return finish_line(scanner);
  }

  Status parse_number_key(Scanner& scanner) {
    for (const NumberKey& key : kNumberKeys) {
      if (!scanner.take(key.name)) continue;
      const auto value = scanner.number(key.least, key.most);
      if (!value) {
        return expected("a number from " + std::to_string(key.least) + " to " + std::to_string(key.most),
                        scanner);
      }
      header_.*key.field = *value;
      return {};
    }
    return expected("a header key, 'rank', 'lane' or a step", scanner);
  }

  Status parse_rank(Scanner& scanner) {
    if (!has_collective_) return error("expected 'collective NAME' before the first 'rank'");
    const auto rank = scanner.number(0, header_.rank_count - 1);
    if (!rank) return expected("a rank below " + std::to_string(header_.rank_count), scanner);
    if (!ranks_.insert(*rank).second) return error("rank " + std::to_string(*rank) + " occurs twice");
    plans_.push_back(header_);
    plans_.back().rank = *rank;
    return finish_line(scanner);
  }

  Status parse_lane(Scanner& scanner) {
    if (plans_.empty()) return error("expected 'rank N' before the first 'lane'");
    plans_.back().lanes.emplace_back();
    return finish_line(scanner);
  }

  /// Takes the first word of an end, which gives its kind.
  static std::optional<EndKind> parse_end_kind(Scanner& scanner) {
    if (scanner.take("input")) return EndKind::kInput;
    if (scanner.take("output")) return EndKind::kOutput;
    if (scanner.take("scratch")) return EndKind::kScratch;
    if (scanner.take("link")) return EndKind::kLink;
    if (scanner.take("publish")) return EndKind::kPublish;
    if (scanner.take("collect")) return EndKind::kCollect;
    return std::nullopt;
  }
  static std::optional<EndKind> parse_end_kind(Scanner&& scanner) { return parse_end_kind(scanner); }

  Status parse_step(Scanner& scanner) {
    if (plans_.empty() || plans_.back().lanes.empty()) return error("expected 'lane' before the first step");
    if (++step_count_ > kMaxSteps) return error("expected at most " + std::to_string(kMaxSteps) + " steps");
    Step step;
    TUTTI_TRY(parse_ends(scanner, kMaxStepSources, step.sources));
    if (!scanner.take("->")) return expected("'+' or '->'", scanner);
    TUTTI_TRY(parse_ends(scanner, kMaxStepSinks, step.sinks));
    bool has_chunks = false;
    while (scanner.take(",")) {
      if (!step.finish && scanner.take("finish")) {
        step.finish = true;
      } else if (!has_chunks && scanner.take("chunks")) {
        TUTTI_TRY(parse_range(scanner, step.first_chunk, step.chunk_count));
        has_chunks = true;
      } else {
        return expected("'finish' or 'chunks A..B', each once", scanner);
      }
    }
    TUTTI_TRY(finish_line(scanner));
    if (!has_chunks) {
      const auto implied = implied_chunks(step);
      if (!implied) return error("expected ', chunks A..B' in a step without input and output");
      std::tie(step.first_chunk, step.chunk_count) = *implied;
    }
    plans_.back().lanes.back().steps.push_back(std::move(step));
    return {};
  }

  Status parse_ends(Scanner& scanner, int most, std::vector<End>& ends) const {
    do {
      if (ends.size() == static_cast<size_t>(most)) {
        return error("expected at most " + std::to_string(most) + " ends a side; make several steps");
      }
      TUTTI_TRY(parse_end(scanner, ends.emplace_back()));
    } while (scanner.take("+"));
    return {};
  }

  Status parse_end(Scanner& scanner, End& end) const {
    const auto kind = parse_end_kind(scanner);
    if (!kind) return expected("input, output, scratch, link, publish or collect", scanner);
    end.kind = *kind;
    if (end.kind == EndKind::kLink) {
      TUTTI_TRY(parse_link(scanner, end));
    } else if (end.kind < EndKind::kLink) {
      return parse_range(scanner, end.first_chunk, end.chunk_count);
    }
    end.reference_ok = scanner.take("ref");
    end.direct_write_ok = end.reference_ok && scanner.take("direct");
    return {};
  }

  Status parse_link(Scanner& scanner, End& end) const {
    const auto peer = scanner.number(0, kMaxRanks - 1);
    if (!peer) return expected("PEER@CHANNEL", scanner);
    if (!scanner.take("@")) return expected("'@CHANNEL'", scanner);
    const auto channel = scanner.number(0, kPublishChannel);
    if (!channel) return expected("a channel from 0 to 255", scanner);
    end.peer = *peer;
    end.channel = static_cast<uint8_t>(*channel);
    return {};
  }

  /// "A": one chunk; "A..B": chunks A to B - 1.
  Status parse_range(Scanner& scanner, uint32_t& first, uint32_t& count) const {
    const auto begin = scanner.number(0, UINT32_MAX - 1);
    if (!begin) return expected("a chunk or a range A..B", scanner);
    uint32_t end = *begin + 1;
    if (scanner.take("..")) {
      const auto bound = scanner.number(*begin, UINT32_MAX);
      if (!bound) return expected("the end of the range, at least " + std::to_string(*begin), scanner);
      end = *bound;
    }
    first = *begin;
    count = end - *begin;
    return {};
  }

  Status finish_line(const Scanner& scanner) const {
    return scanner.at_end() ? Status::ok() : expected("the end of the line", scanner);
  }

  Plan header_;
  std::vector<Plan> plans_;
  std::set<uint32_t> ranks_;
  size_t line_number_ = 0;
  size_t step_count_ = 0;
  bool titled_ = false;
  bool has_collective_ = false;
};

}  // namespace

std::string print_step(const Step& step) {
  std::string out;
  print_ends(out, step.sources);
  out += " -> ";
  print_ends(out, step.sinks);
  if (step.finish) out += ", finish";
  if (implied_chunks(step) != std::pair(step.first_chunk, step.chunk_count)) {
    out += ", chunks ";
    print_range(out, step.first_chunk, step.chunk_count);
  }
  return out;
}

std::string print_plans(std::span<const Plan> plans) {
  std::string out(kTitle);
  out += "\n";
  const Plan* previous = nullptr;
  for (const Plan& plan : plans) {
    print_header(out, plan, previous);
    previous = &plan;
    out += "\nrank " + std::to_string(plan.rank) + "\n";
    for (const Lane& lane : plan.lanes) {
      out += "lane\n";
      for (const Step& step : lane.steps) out += "  " + print_step(step) + "\n";
    }
  }
  return out;
}

Result<std::vector<Plan>> parse_plans(std::string_view text) {
  return Parser().run(text);
}

}  // namespace tutti
