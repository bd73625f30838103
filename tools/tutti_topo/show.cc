#include "tools/tutti_topo/show.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "topology/paths.h"
#include "topology/units.h"

namespace tutti::tool {

using namespace topology;

namespace {

constexpr size_t kMatrixMax = 256;

std::string fact_text(const Fact& fact) {
  std::string text = round_speed(fact.value) + " " + std::string(origin_name(fact.origin));
  if (fact.spread_percent > 0) text += format(" (varies by %u %%)", fact.spread_percent);
  return text;
}

std::string node_text(const Graph& graph, uint32_t index) {
  const Node& node = graph.node(index);
  std::string text = node.name;
  if (node.kind == NodeKind::kCore && node.count > 1) text += format(", %u threads", node.count);
  if (node.kind == NodeKind::kNic && node.count > 1) text += format(", %u ports", node.count);
  if (node.kind == NodeKind::kNvswitch && node.count > 1) text += format(", %u switches", node.count);
  if (!node.model.empty()) text += " (" + node.model + ")";
  if (node.memory_bytes > 0) text += ", " + print_bytes(node.memory_bytes / 1'000'000'000 * 1'000'000'000);
  if (!node.bus_id.empty() && node.name.find(node.bus_id) == std::string::npos) text += ", " + node.bus_id;
  if (node.bytes_per_s.value > 0) text += ", port " + fact_text(node.bytes_per_s);
  const Edge* up = link_up(graph, index);
  if (up != nullptr) text += ", " + std::string(kind_name(up->kind)) + " " + fact_text(up->bytes_per_s);
  return text;
}

class TreeWriter {
 public:
  explicit TreeWriter(const Graph& graph) : graph_(graph) {}

  std::string run() {
    const auto tops = graph_.children_of(kNoNode);
    write_children(tops, "", true);
    write_links();
    return out_;
  }

 private:
  /// Runs of parts that look alike: the first is shown, the others are counted.
  void write_children(std::span<const uint32_t> children, const std::string& indent, bool is_top) {
    for (size_t first = 0; first < children.size();) {
      const std::string look = signature(graph_, children[first]);
      size_t end = first + 1;
      while (end < children.size() && signature(graph_, children[end]) == look) ++end;
      const bool has_parts = !graph_.children_of(children[first]).empty();
      // Two or three GPUs are worth a line each.
      const bool folds =
          end - first > 3 || (end - first > 1 && graph_.node(children[first]).kind == NodeKind::kCore);
      if (!folds) end = first + 1;
      hidden_.insert(children.begin() + static_cast<ptrdiff_t>(first) + 1,
                     children.begin() + static_cast<ptrdiff_t>(end));
      const bool is_last = end == children.size();
      out_ += is_top ? "" : indent + (is_last ? "`- " : "|- ");
      if (folds) {
        out_ += graph_.node(children[first]).name + " ... " + graph_.node(children[end - 1]).name +
                format(", %zu alike: ", end - first);
      }
      out_ += node_text(graph_, children[first]) + "\n";
      if (has_parts) {
        write_children(graph_.children_of(children[first]), is_top ? "" : indent + (is_last ? "   " : "|  "),
                       false);
      }
      first = end;
    }
  }

  /// Links that the tree does not show, those of one node, kind and speed in one line.
  void write_links() {
    std::map<std::string, std::vector<std::string>> lines;
    std::vector<std::string> order;
    for (uint32_t i = 0; i < graph_.edges().size(); ++i) {
      const Edge& edge = graph_.edge(i);
      if (graph_.node(edge.b).parent == edge.a) continue;
      const uint32_t host = graph_.around(edge.a, NodeKind::kHost);
      if (hidden_.contains(host) && host == graph_.around(edge.b, NodeKind::kHost)) continue;
      const bool switch_first =
          graph_.node(edge.a).kind == NodeKind::kNvswitch || graph_.node(edge.a).kind == NodeKind::kFabric;
      const std::string from = graph_.node(switch_first ? edge.a : edge.b).name;
      std::string key = from + ": " + std::string(kind_name(edge.kind));
      if (edge.count > 1) key += " x" + std::to_string(edge.count);
      key += ", " + fact_text(edge.bytes_per_s);
      auto& names = lines[key];
      if (names.empty()) order.push_back(key);
      names.push_back(graph_.node(switch_first ? edge.b : edge.a).name);
    }
    constexpr size_t kLinesMax = 40;
    if (!order.empty()) out_ += "links\n";
    for (size_t i = 0; i < order.size() && i < kLinesMax; ++i) {
      const auto& names = lines[order[i]];
      out_ += "  " + order[i] + " to " + names.front();
      if (names.size() > 2) out_ += format(" ... %s (%zu)", names.back().c_str(), names.size());
      if (names.size() == 2) out_ += ", " + names.back();
      out_ += "\n";
    }
    if (order.size() > kLinesMax)
      out_ += format("  and %zu more lines; --format topo has all\n", order.size() - kLinesMax);
  }

  const Graph& graph_;
  std::string out_;
  std::set<uint32_t> hidden_;  // folded into a part that is shown
};

}  // namespace

const Edge* link_up(const Graph& graph, uint32_t node) {
  const uint32_t parent = graph.node(node).parent;
  for (const Link& link : graph.links_of(node)) {
    if (parent != kNoNode && link.other == parent) return &graph.edge(link.edge);
  }
  return nullptr;
}

std::string signature(const Graph& graph, uint32_t index) {
  const Node& node = graph.node(index);
  std::string text = std::string(kind_name(node.kind)) + "|" + node.model + "|" + std::to_string(node.count) +
                     "|" + std::to_string(node.bytes_per_s.value);
  if (const Edge* up = link_up(graph, index)) text += "|" + std::to_string(up->bytes_per_s.value);
  for (const uint32_t child : graph.children_of(index)) text += "(" + signature(graph, child) + ")";
  return text;
}

std::string processor_summary(const Graph& graph, uint32_t node) {
  uint32_t cores = 0;
  uint32_t threads = 0;
  uint32_t caches = 0;
  std::vector<uint32_t> open = {node};
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    const NodeKind kind = graph.node(at).kind;
    if (kind == NodeKind::kCore) {
      ++cores;
      threads += graph.node(at).count;
    }
    caches += kind == NodeKind::kL3 ? 1 : 0;
    const auto children = graph.children_of(at);
    open.insert(open.end(), children.begin(), children.end());
  }
  std::string text;
  if (cores > 0) text = format("%u core%s", cores, cores == 1 ? "" : "s");
  if (threads > cores) text += format(", %u threads", threads);
  if (caches > 0) text += format("%s%u L3", text.empty() ? "" : ", ", caches);
  return text;
}

std::string show_tree(const Graph& graph) {
  return TreeWriter(graph).run();
}

Result<std::string> show_matrix(const Graph& graph) {
  std::vector<uint32_t> parts = graph.of_kind(NodeKind::kGpu);
  for (const uint32_t nic : graph.of_kind(NodeKind::kNic)) parts.push_back(nic);
  if (graph.of_kind(NodeKind::kGpu).empty() && parts.size() < 2) parts = graph.of_kind(NodeKind::kCore);
  if (parts.size() > kMatrixMax) {
    return Status(Code::kInvalidArgument,
                  format("a matrix of %zu parts; at most %zu are shown", parts.size(), kMatrixMax));
  }
  size_t width = 4;
  for (const uint32_t part : parts) width = std::max(width, graph.node(part).name.size());
  const auto cell = [&](const std::string& text) { return text + std::string(width + 2 - text.size(), ' '); };
  std::string out = cell("");
  for (const uint32_t column : parts) out += cell(graph.node(column).name);
  std::set<std::string> used;
  std::string rows;
  for (const uint32_t row : parts) {
    std::string line = cell(graph.node(row).name);
    for (const uint32_t column : parts) {
      const std::string distance = distance_text(graph, row, column);
      used.insert(distance.substr(0, 2) == "NV" || distance.substr(0, 2) == "XG" ? distance.substr(0, 2)
                                                                                 : distance);
      line += cell(distance);
    }
    rows += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  out = out.substr(0, out.find_last_not_of(' ') + 1) + "\n" + rows + "\n";
  constexpr std::pair<const char*, const char*> kLegend[] = {
      {"NV", "NV#  joined by # NVLinks, directly or over one switch"},
      {"XG", "XG#  joined by # xGMI links"},
      {"L3", "L3   below one L3 cache"},
      {"PIX", "PIX  at most one PCI switch between"},
      {"PXB", "PXB  several PCI switches between, but not the processor"},
      {"PHB", "PHB  over the processor's PCI host bridge"},
      {"NODE", "NODE over several host bridges of one NUMA node, or inside it"},
      {"SYS", "SYS  between NUMA nodes or processors"},
      {"NET", "NET  on another host"},
  };
  for (const auto& [name, text] : kLegend) {
    if (used.contains(name)) out += std::string(text) + "\n";
  }
  return out;
}

std::string show_json(const Imported& machine) {
  using Json = nlohmann::ordered_json;
  const Graph& graph = machine.graph;
  const auto fact = [](const Fact& f) {
    Json json = {{"value", f.value}, {"origin", origin_name(f.origin)}};
    if (f.spread_percent > 0) json["spread_percent"] = f.spread_percent;
    return json;
  };
  Json root = {{"digest", format("%016llx", static_cast<unsigned long long>(graph.digest()))},
               {"nodes", Json::array()},
               {"links", Json::array()},
               {"notes", machine.notes}};
  for (const Node& node : graph.nodes()) {
    Json json = {{"name", node.name}, {"kind", kind_name(node.kind)}};
    if (node.parent != kNoNode) json["in"] = graph.node(node.parent).name;
    if (!node.bus_id.empty()) json["bus"] = node.bus_id;
    if (!node.model.empty()) json["model"] = node.model;
    if (node.os_index >= 0) json["index"] = node.os_index;
    if (node.count != 1) json["count"] = node.count;
    if (node.memory_bytes > 0) json["memory_bytes"] = node.memory_bytes;
    if (node.bytes_per_s.value > 0) json["bytes_per_s"] = fact(node.bytes_per_s);
    root["nodes"].push_back(std::move(json));
  }
  for (const Edge& edge : graph.edges()) {
    root["links"].push_back({{"ends", {graph.node(edge.a).name, graph.node(edge.b).name}},
                             {"kind", kind_name(edge.kind)},
                             {"count", edge.count},
                             {"bytes_per_s", fact(edge.bytes_per_s)},
                             {"latency_ns", fact(edge.latency_ns)}});
  }
  return root.dump(2) + "\n";
}

std::string assumptions(const Graph& graph) {
  std::map<std::string_view, std::pair<size_t, size_t>> speeds;  // of each kind of link: assumed, all
  size_t latencies = 0;
  for (const Edge& edge : graph.edges()) {
    auto& [assumed, all] = speeds[kind_name(edge.kind)];
    assumed += edge.bytes_per_s.origin == Origin::kAssumed ? 1 : 0;
    ++all;
    latencies += edge.latency_ns.origin == Origin::kAssumed ? 1 : 0;
  }
  std::string text;
  for (const auto& [kind, counts] : speeds) {
    if (counts.first == 0) continue;
    text += format("%sthe speeds of %zu of %zu %s links", text.empty() ? "" : ", ", counts.first,
                   counts.second, std::string(kind).c_str());
  }
  if (latencies > 0)
    text += format("%s%zu of %zu latencies", text.empty() ? "" : ", ", latencies, graph.edges().size());
  return text.empty() ? text : "assumed, not known: " + text;
}

}  // namespace tutti::tool
