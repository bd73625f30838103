// What a graph offers to collectives, as text and as a row of the table in docs/measurements/topology.md.
#include <algorithm>

#include "tools/tutti_topo/show.h"
#include "topology/search.h"
#include "topology/units.h"

namespace tutti::tool {

using namespace topology;

namespace {

constexpr size_t kShownRanks = 16;
constexpr size_t kShownChannels = 8;

std::string speed_text(uint64_t bytes_per_s) {
  return bytes_per_s == 0 ? "-" : round_speed(bytes_per_s);
}

/// "host: 64 groups of 8".
std::string level_text(const Level& level) {
  const auto count = level.group_of.size();
  std::string text = std::string(kind_name(level.kind)) + format(": %u groups", level.group_count);
  std::vector<size_t> sizes(level.group_count, 0);
  for (const uint32_t group : level.group_of) ++sizes[group];
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  if (count > 0 && *least == *most) return text + format(" of %zu", *least);
  return text + format(" of %zu to %zu", *least, *most);
}

std::string orders(const Graph& graph, const Offers& offers) {
  std::string out;
  for (size_t channel = 0; channel < offers.rings.size() && channel < kShownChannels; ++channel) {
    out += format("  ring %zu:", channel);
    for (size_t i = 0; i < offers.rings[channel].size() && i < kShownRanks; ++i) {
      out += " " + graph.node(offers.ranks[offers.rings[channel][i]]).name;
    }
    out += offers.rings[channel].size() > kShownRanks ? " ...\n" : "\n";
  }
  if (offers.rings.size() > kShownChannels)
    out += format("  and %zu more\n", offers.rings.size() - kShownChannels);
  return out;
}

}  // namespace

Result<std::string> show_offers(const Graph& graph) {
  const auto found = search(graph);
  if (!found) return found.status();
  const Offers& offers = *found;
  std::string out = format("%zu ranks; bus bandwidth of all_reduce, long messages\n", offers.ranks.size());
  out += "bound: " + speed_text(offers.bound_bytes_per_s) + ", because of " + offers.bound_at + "\n";
  out += format("rings: %s in %zu channels, limited by %s\n", speed_text(offers.ring_bytes_per_s).c_str(),
                offers.rings.size(), offers.ring_limit.c_str());
  out += "trees: " + speed_text(offers.tree_bytes_per_s) + "\n";
  if (offers.hierarchy_bytes_per_s > 0) {
    out +=
        "hierarchy of hosts, stages one after the other: " + speed_text(offers.hierarchy_bytes_per_s) + "\n";
  }
  out += "between the two halves of the ranks: " + speed_text(offers.bisection_bytes_per_s) + "\n";
  for (const Level& level : offers.levels) out += "level " + level_text(level) + "\n";
  if (!offers.complete) out += "the search was cut short: orders may not be the best\n";
  out += orders(graph, offers);
  for (size_t rank = 0; rank < offers.ranks.size() && rank < kShownRanks; ++rank) {
    if (offers.nic_of[rank] == kNoNode) continue;
    out +=
        "  " + graph.node(offers.ranks[rank]).name + " uses " + graph.node(offers.nic_of[rank]).name + "\n";
  }
  return out;
}

std::string table_head() {
  return "| machine | ranks | levels | bound, because of | rings (channels) | trees | hierarchy | rings are "
         "limited by |\n"
         "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
}

std::string table_row(const std::string& name, const Graph& graph) {
  const auto found = search(graph);
  if (!found) return "| " + name + " | " + std::string(found.status().text()) + " | | | | | | |\n";
  std::string levels;
  for (const Level& level : found->levels)
    add_to_list(levels, format("%u x %s", level.group_count, std::string(kind_name(level.kind)).c_str()));
  return "| " + name + " | " + std::to_string(found->ranks.size()) + " | " + (levels.empty() ? "-" : levels) +
         " | " + speed_text(found->bound_bytes_per_s) + ", " + found->bound_at + " | " +
         speed_text(found->ring_bytes_per_s) + format(" (%zu) | ", found->rings.size()) +
         speed_text(found->tree_bytes_per_s) + " | " + speed_text(found->hierarchy_bytes_per_s) + " | " +
         found->ring_limit + " |\n";
}

}  // namespace tutti::tool
