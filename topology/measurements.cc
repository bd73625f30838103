#include "topology/measurements.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/hash.h"
#include "topology/slice_text.h"
#include "topology/units.h"

namespace tutti::topology {
namespace {

constexpr std::string_view kTitle = "tutti measurements 1";
constexpr size_t kPairsMax = 1u << 16;
/// An EPYC of Zen 3 has 22 to 33 ns (one physical core), 54 to 80 (one cache) and 215 to 280 (two), a Xeon
/// 160 to 245 at one place (docs/measurements/topology.md, shared_memory.md).
constexpr double kSameDistance = 1.6;

struct NamedFact {
  std::string_view name;
  Fact Measurements::*field;
  bool is_time;
};
constexpr std::array<NamedFact, 6> kFacts = {{{"copy_alone", &Measurements::copy_alone, false},
                                              {"copy_together", &Measurements::copy_together, false},
                                              {"staged_copy", &Measurements::staged_copy, false},
                                              {"wake", &Measurements::wake_ns, true},
                                              {"socket", &Measurements::socket_ns, true},
                                              {"socket_speed", &Measurements::socket_speed, false}}};

class Parser {
 public:
  Result<std::vector<Measurements>> run(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_number_;
      Scanner scanner(line.substr(0, line.find('#')));
      if (scanner.at_end()) continue;
      const bool is_title = scanner.take("tutti");
      if (!is_title && all_.empty()) return expected("'" + std::string(kTitle) + "'", scanner);
      TUTTI_TRY(is_title ? parse_title(scanner) : parse_line(scanner));
      if (!scanner.at_end()) return expected("the end of the line", scanner);
    }
    if (all_.empty()) return Status(Code::kInvalidArgument, "line 1: an empty file of measurements");
    return std::move(all_);
  }

 private:
  Status error(const std::string& text) const {
    return {Code::kInvalidArgument, format("line %zu: ", line_number_) + text};
  }
  Status expected(std::string_view what, const Scanner& scanner) const {
    return error("expected " + std::string(what) + ", found " + scanner.quote());
  }

  /// Behind "tutti".
  Status parse_title(Scanner& scanner) {
    if (!scanner.take("measurements") || !scanner.number(1, 1))
      return expected("'" + std::string(kTitle) + "'", scanner);
    if (all_.size() == kDistancesMax)
      return error(format("more than %zu titles: one for each distance of the cores", kDistancesMax));
    all_.emplace_back();
    return {};
  }

  Status parse_line(Scanner& scanner) {
    if (scanner.take("machine")) {
      const Scanner start = scanner;
      const std::string_view word = scanner.word();
      const auto [stop, failure] =
          std::from_chars(word.data(), word.data() + word.size(), result().machine, 16);
      if (failure != std::errc() || stop != word.data() + word.size())
        return expected("16 hexadecimal digits", start);
      return {};
    }
    if (scanner.take("pair")) return parse_pair(scanner);
    for (const NamedFact& fact : kFacts) {
      if (scanner.take(fact.name)) return parse_fact(result().*fact.field, fact.is_time, scanner);
    }
    if (const auto taken = take_slice_line(scanner, result().slices); !taken || *taken)
      return taken ? Status() : error(std::string(taken.status().text()));
    if (const auto taken = take_call_line(scanner, result().calls); !taken || *taken)
      return taken ? Status() : error(std::string(taken.status().text()));
    return expected("machine, pair, copy_alone, copy_together, staged_copy, wake, socket, socket_speed, " +
                        std::string(kSliceLines),
                    scanner);
  }

  Status parse_pair(Scanner& scanner) {
    if (result().pairs.size() >= kPairsMax) return expected("at most 65536 pairs", scanner);
    PairLatency pair;
    const auto a = scanner.number(0, UINT32_MAX);
    const auto b = scanner.number(0, UINT32_MAX);
    if (!a || !b) return expected("two numbers of cores", scanner);
    pair.core_a = static_cast<uint32_t>(*a);
    pair.core_b = static_cast<uint32_t>(*b);
    TUTTI_TRY(parse_fact(pair.latency_ns, true, scanner));
    result().pairs.push_back(pair);
    return {};
  }

  Status parse_fact(Fact& fact, bool is_time, Scanner& scanner) const {
    const auto taken = take_measured(scanner, is_time);
    if (!taken) return error(std::string(taken.status().text()));
    fact = *taken;
    return {};
  }

  Measurements& result() { return all_.back(); }

  std::vector<Measurements> all_;
  size_t line_number_ = 0;
};

/// Where two cores meet: the nearer, the fewer links.
enum class Meeting : uint8_t { kCache, kNuma, kPackage, kFar };
constexpr size_t kMeetings = 4;

Meeting meeting_of(const Graph& graph, uint32_t a, uint32_t b) {
  constexpr std::pair<NodeKind, Meeting> kPlaces[] = {{NodeKind::kL3, Meeting::kCache},
                                                      {NodeKind::kNuma, Meeting::kNuma},
                                                      {NodeKind::kPackage, Meeting::kPackage}};
  for (const auto& [kind, meeting] : kPlaces) {
    const uint32_t place = graph.around(a, kind);
    if (place != kNoNode && place == graph.around(b, kind)) return meeting;
  }
  return Meeting::kFar;
}

/// One fact for all pairs at one distance: the middle, and a spread that covers all of them.
std::array<Fact, kMeetings> by_distance(const Graph& graph, const Measurements& measurements) {
  std::map<uint32_t, uint32_t> node_of;
  for (const uint32_t core : graph.of_kind(NodeKind::kCore)) {
    const int32_t index = graph.node(core).os_index;
    if (index >= 0) node_of.emplace(static_cast<uint32_t>(index), core);
  }
  std::array<std::vector<double>, kMeetings> samples;
  std::array<uint32_t, kMeetings> spread = {};
  for (const PairLatency& pair : measurements.pairs) {
    const auto a = node_of.find(pair.core_a);
    const auto b = node_of.find(pair.core_b);
    if (a == node_of.end() || b == node_of.end() || a == b) continue;
    const auto at = static_cast<size_t>(meeting_of(graph, a->second, b->second));
    samples[at].push_back(static_cast<double>(pair.latency_ns.value));
    spread[at] = std::max(spread[at], pair.latency_ns.spread_percent);
  }
  std::array<Fact, kMeetings> result = {};
  for (size_t i = 0; i < kMeetings; ++i) {
    result[i] = middle_of(samples[i]);
    result[i].spread_percent = std::max(result[i].spread_percent, spread[i]);
  }
  return result;
}

}  // namespace

Fact middle_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t last = samples.size() - 1;
  const double middle = (samples[last / 2] + samples[(last + 1) / 2]) / 2;
  // Eight of ten samples lie between these.
  const double low = samples[last / 10];
  const double high = samples[last - last / 10];
  Fact fact;
  fact.value = static_cast<uint64_t>(std::llround(std::max(middle, 1.0)));
  fact.origin = Origin::kMeasured;
  const double away = std::max(high - middle, middle - low) / std::max(middle, 1.0) * 100;
  fact.spread_percent = static_cast<uint32_t>(std::min(away, static_cast<double>(kSpreadMax)));
  return fact;
}

Fact mean_of(const std::vector<double>& samples) {
  Fact fact = middle_of(samples);
  if (samples.empty()) return fact;
  const double most = 2 * static_cast<double>(fact.value);
  double sum = 0;
  for (const double sample : samples) sum += std::min(sample, most);
  fact.value = static_cast<uint64_t>(std::llround(std::max(sum / static_cast<double>(samples.size()), 1.0)));
  return fact;
}

bool is_same_distance(uint64_t line_ns, uint64_t other_line_ns) {
  const auto less = static_cast<double>(std::min(line_ns, other_line_ns));
  const auto more = static_cast<double>(std::max(line_ns, other_line_ns));
  return less == 0 || more <= kSameDistance * less;
}

std::vector<uint64_t> distances_of(const std::set<uint64_t>& lines_ns) {
  std::vector<uint64_t> distances;
  for (const uint64_t line_ns : lines_ns) {
    if (distances.empty() || distances.back() == 0 || !is_same_distance(distances.back(), line_ns))
      distances.push_back(line_ns);
  }
  return distances;
}

uint64_t distance_at(const std::vector<uint64_t>& distances, uint64_t line_ns) {
  return *std::prev(std::ranges::upper_bound(distances, line_ns));
}

const Measurements& nearest(const std::vector<Measurements>& all, uint64_t line_ns) {
  const auto steps = [&](const Measurements& one) {
    const uint64_t apart_ns = one.slices.apart_ns.value;
    if (line_ns == 0) return 0.0;
    if (apart_ns == 0) return std::numeric_limits<double>::infinity();
    return std::abs(std::log(static_cast<double>(apart_ns) / static_cast<double>(line_ns)));
  };
  return *std::ranges::min_element(all, {}, steps);
}

void set_distance(Measurements& measurements, const std::vector<uint32_t>& cores, const Fact& apart_ns) {
  measurements.slices.apart_ns = apart_ns;
  for (PairLatency& pair : measurements.pairs) {
    if (std::minmax(pair.core_a, pair.core_b) == std::minmax(cores[0], cores[1])) pair.latency_ns = apart_ns;
  }
}

uint64_t fingerprint(const Graph& graph) {
  uint64_t hash = kHashSeed;
  const auto add = [&](std::string_view text) {
    const uint64_t size = text.size();
    hash = hash_bytes(&size, sizeof size, hash);
    hash = hash_bytes(text.data(), text.size(), hash);
  };
  for (const Node& node : graph.nodes()) {
    add(kind_name(node.kind));
    add(std::to_string(node.parent) + " " + std::to_string(node.count));
    add(node.model);
  }
  return hash;
}

std::string print_measurements(const std::vector<Measurements>& all) {
  std::string out;
  for (const Measurements& one : all) {
    out += std::string(kTitle) + "\nmachine " +
           format("%016llx", static_cast<unsigned long long>(one.machine)) + "\n";
    for (const PairLatency& pair : one.pairs) {
      out += format("pair %u %u ", pair.core_a, pair.core_b) + print_time(pair.latency_ns.value) +
             print_spread(pair.latency_ns) + "\n";
    }
    for (const NamedFact& named : kFacts) {
      const Fact& fact = one.*named.field;
      if (fact.value == 0) continue;
      out += std::string(named.name) + " " +
             (named.is_time ? print_time(fact.value) : print_speed(fact.value)) + print_spread(fact) + "\n";
    }
    out += print_slices(one.slices) + print_calls(one.calls);
  }
  return out;
}

Result<std::vector<Measurements>> parse_measurements(std::string_view text) {
  return Parser().run(text);
}

Graph with_measurements(const Graph& graph, const Measurements& measurements) {
  const auto distances = by_distance(graph, measurements);
  const auto at = [&](Meeting meeting) { return distances[static_cast<size_t>(meeting)]; };
  const size_t cores = graph.of_kind(NodeKind::kCore).size();
  GraphBuilder builder(graph);
  if (measurements.slices.are_known()) builder.slices() = measurements.slices;
  if (!measurements.calls.empty()) builder.calls() = measurements.calls;
  // What a pair needs beyond the next nearer one, on each of its two sides.
  const auto half = [](const Fact& whole, uint64_t nearer) {
    Fact fact = whole;
    fact.value = std::max<uint64_t>(1, (whole.value > nearer ? whole.value - nearer : 0) / 2);
    return fact;
  };
  const uint64_t cache = at(Meeting::kCache).value;
  const uint64_t numa = std::max(at(Meeting::kNuma).value, cache);
  const uint64_t package = std::max(at(Meeting::kPackage).value, numa);
  for (Edge& edge : builder.edges()) {
    const NodeKind below = graph.node(edge.b).kind;
    if (edge.kind == LinkKind::kPackages) {
      if (at(Meeting::kFar).value == 0) continue;
      edge.latency_ns = at(Meeting::kFar);
      edge.latency_ns.value =
          std::max<uint64_t>(1, at(Meeting::kFar).value > package ? at(Meeting::kFar).value - package : 1);
    } else if (edge.kind == LinkKind::kInside && below == NodeKind::kCore) {
      if (cache > 0) edge.latency_ns = half(at(Meeting::kCache), 0);
      if (measurements.copy_alone.value > 0) edge.bytes_per_s = measurements.copy_alone;
    } else if (edge.kind == LinkKind::kInside && below == NodeKind::kL3) {
      if (at(Meeting::kNuma).value > 0) edge.latency_ns = half(at(Meeting::kNuma), cache);
      // All cores together share the caches' ways to memory evenly.
      if (measurements.copy_together.value == 0 || cores == 0) continue;
      const size_t caches = graph.of_kind(NodeKind::kL3).size();
      edge.bytes_per_s = measurements.copy_together;
      edge.bytes_per_s.value = std::max<uint64_t>(1, measurements.copy_together.value / caches);
    } else if (edge.kind == LinkKind::kInside && below == NodeKind::kNuma) {
      if (at(Meeting::kPackage).value > 0) edge.latency_ns = half(at(Meeting::kPackage), numa);
    }
  }
  return std::move(builder).finish();
}

}  // namespace tutti::topology
