#include "topology/flow.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace tutti::topology {
namespace {

/// Arc 2e goes from a to b of edge e, arc 2e + 1 back. Both have the link's speed.
class Flow {
 public:
  Flow(const Graph& graph, std::span<const uint32_t> sources, std::span<const uint32_t> sinks)
      : graph_(graph), sources_(sources), is_sink_(graph.nodes().size(), false) {
    for (const uint32_t sink : sinks) is_sink_[sink] = true;
    rest_.reserve(2 * graph.edges().size());
    for (const Edge& edge : graph.edges()) rest_.insert(rest_.end(), 2, edge.bytes_per_s.value);
  }

  uint64_t run() {
    uint64_t total = 0;
    while (label()) {
      next_.assign(graph_.nodes().size(), 0);
      for (const uint32_t source : sources_) {
        while (const uint64_t more = push_from(source)) total += more;
      }
    }
    return total;
  }

 private:
  uint32_t arc_of(uint32_t from, const Link& link) const {
    return 2 * link.edge + (graph_.edge(link.edge).a == from ? 0 : 1);
  }

  /// Distances from the sources over arcs with room. False if no sink is reached.
  bool label() {
    level_.assign(graph_.nodes().size(), kFar);
    std::vector<uint32_t> queue(sources_.begin(), sources_.end());
    for (const uint32_t source : sources_) level_[source] = 0;
    bool reached = false;
    for (size_t head = 0; head < queue.size(); ++head) {
      const uint32_t at = queue[head];
      if (is_sink_[at]) {
        reached = true;
        continue;
      }
      for (const Link& link : graph_.links_of(at)) {
        if (level_[link.other] != kFar || rest_[arc_of(at, link)] == 0) continue;
        level_[link.other] = level_[at] + 1;
        queue.push_back(link.other);
      }
    }
    return reached;
  }

  /// One way from a source to a sink, level by level; its width is taken. 0 if there is none left. A stack of
  /// its own: ways may be as long as the graph.
  uint64_t push_from(uint32_t source) {
    std::vector<uint32_t> nodes = {source};
    std::vector<uint32_t> arcs;
    while (!is_sink_[nodes.back()]) {
      const uint32_t at = nodes.back();
      const auto links = graph_.links_of(at);
      uint32_t& next = next_[at];
      while (next < links.size() &&
             (level_[links[next].other] != level_[at] + 1 || rest_[arc_of(at, links[next])] == 0)) {
        ++next;
      }
      if (next < links.size()) {
        arcs.push_back(arc_of(at, links[next]));
        nodes.push_back(links[next].other);
        continue;
      }
      nodes.pop_back();
      if (nodes.empty()) return 0;
      arcs.pop_back();
      ++next_[nodes.back()];
    }
    uint64_t width = std::numeric_limits<uint64_t>::max();
    for (const uint32_t arc : arcs) width = std::min(width, rest_[arc]);
    for (const uint32_t arc : arcs) {
      rest_[arc] -= width;
      rest_[arc ^ 1] += width;
    }
    return width;
  }

  static constexpr uint32_t kFar = UINT32_MAX;
  const Graph& graph_;
  std::span<const uint32_t> sources_;
  std::vector<bool> is_sink_;
  std::vector<uint64_t> rest_;
  std::vector<uint32_t> level_;
  std::vector<uint32_t> next_;
};

}  // namespace

uint64_t max_flow(const Graph& graph, std::span<const uint32_t> sources, std::span<const uint32_t> sinks) {
  return Flow(graph, sources, sinks).run();
}

}  // namespace tutti::topology
