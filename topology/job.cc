#include "topology/job.h"

#include <algorithm>
#include <map>
#include <utility>

#include "topology/assumed.h"
#include "topology/measurements.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

Status in_host(size_t host, const Status& status) {
  return {status.code(), format("the graph of host %zu: ", host) + std::string(status.text())};
}

class Joiner {
 public:
  Status add_host(size_t host, const Graph& graph) {
    const std::string prefix = "h" + std::to_string(host) + "/";
    std::vector<uint32_t> index;
    bool has_card = false;
    for (Node node : graph.nodes()) {
      // Switches of the network are the same for all hosts that name them.
      const bool is_network = node.kind == NodeKind::kFabric;
      if (is_network && builder_.find(node.name) != kNoNode) {
        index.push_back(builder_.find(node.name));
        continue;
      }
      if (!is_network) node.name = (prefix + node.name).substr(0, kNameBytesMax);
      if (node.parent != kNoNode) node.parent = index[node.parent];
      has_network_ = has_network_ || is_network;
      has_card = has_card || node.kind == NodeKind::kNic;
      const auto added = builder_.add(std::move(node));
      if (!added) return in_host(host, added.status());
      index.push_back(*added);
      if (builder_.nodes()[*added].kind == NodeKind::kNic) cards_.push_back(*added);
    }
    for (Edge edge : graph.edges()) {
      edge.a = index[edge.a];
      edge.b = index[edge.b];
      // Links between switches come with every host that knows them.
      if (builder_.edge_between(edge.a, edge.b, edge.kind) != nullptr) continue;
      if (const Status connected = builder_.connect(edge); !connected) return in_host(host, connected);
    }
    return has_card ? Status() : add_card(host, prefix, index);
  }

  void set_slices(const SliceCosts& slices) { builder_.slices() = slices; }

  Result<Graph> finish() && {
    if (!has_network_) {
      Node node;
      node.kind = NodeKind::kFabric;
      node.name = builder_.unused_name("network");
      const auto network = builder_.add(std::move(node));
      if (!network) return network.status();
      for (const uint32_t card : cards_) TUTTI_TRY(connect_card(card, *network));
    }
    return std::move(builder_).finish();
  }

 private:
  Status add_card(size_t host, const std::string& prefix, const std::vector<uint32_t>& index) {
    uint32_t above = kNoNode;
    for (const NodeKind kind : {NodeKind::kHost, NodeKind::kPackage, NodeKind::kNuma}) {
      const auto found = std::find_if(index.begin(), index.end(),
                                      [&](uint32_t i) { return builder_.nodes()[i].kind == kind; });
      if (found != index.end()) above = *found;
    }
    if (above == kNoNode) return {Code::kInvalidArgument, format("the graph of host %zu has no host", host)};
    Node card;
    card.kind = NodeKind::kNic;
    card.name = builder_.unused_name(prefix + "network");
    card.parent = above;
    card.bytes_per_s = assumed::kNicSpeed;
    const auto added = builder_.add(std::move(card));
    if (!added) return in_host(host, added.status());
    Edge edge;
    edge.a = above;
    edge.b = *added;
    edge.kind = LinkKind::kPci;
    edge.bytes_per_s = assumed::kPciSpeed;
    edge.latency_ns = assumed::kPciLatency;
    cards_.push_back(*added);
    return builder_.connect(edge);
  }

  Status connect_card(uint32_t card, uint32_t network) {
    Edge edge;
    edge.a = card;
    edge.b = network;
    edge.kind = LinkKind::kNetwork;
    edge.bytes_per_s = builder_.nodes()[card].bytes_per_s;
    if (edge.bytes_per_s.value == 0) edge.bytes_per_s = assumed::kNicSpeed;
    edge.latency_ns = assumed::kNetworkLatency;
    return builder_.connect(edge);
  }

  GraphBuilder builder_;
  std::vector<uint32_t> cards_;
  bool has_network_ = false;
};

bool is_measured(const Edge& edge) {
  return edge.latency_ns.origin == Origin::kMeasured || edge.bytes_per_s.origin == Origin::kMeasured;
}

/// Hosts of one kind that were measured one by one differ by noise, and prices of equal hosts are found
/// together (topology/simulate.h). So what was measured on the first host of a kind counts for all.
void equalize(std::vector<Graph>& graphs) {
  std::map<uint64_t, const Graph*> first_of_kind;
  for (Graph& graph : graphs) {
    const auto [known, is_new] = first_of_kind.try_emplace(fingerprint(graph), &graph);
    if (is_new) continue;
    GraphBuilder builder(graph);
    for (const Edge& edge : known->second->edges()) {
      Edge* const own = builder.edge_between(edge.a, edge.b, edge.kind);
      if (own == nullptr || !(is_measured(edge) || is_measured(*own))) continue;
      own->latency_ns = edge.latency_ns;
      own->bytes_per_s = edge.bytes_per_s;
    }
    graph = std::move(builder).finish();
  }
}

}  // namespace

void JobTexts::add_host(const std::string& text) {
  const auto known = std::find(graphs.begin(), graphs.end(), text);
  graph_of_host.push_back(static_cast<uint32_t>(known - graphs.begin()));
  if (known == graphs.end()) graphs.push_back(text);
}

Result<Graph> join_hosts(const JobTexts& texts) {
  std::vector<Graph> graphs;
  for (size_t i = 0; i < texts.graphs.size(); ++i) {
    auto graph = parse_graph(texts.graphs[i]);
    if (!graph) {
      const auto host = std::find(texts.graph_of_host.begin(), texts.graph_of_host.end(), i);
      return in_host(static_cast<size_t>(host - texts.graph_of_host.begin()), graph.status());
    }
    graphs.push_back(std::move(*graph));
  }
  if (texts.graph_of_host.empty()) return Status(Code::kInvalidArgument, "a job without hosts");
  equalize(graphs);
  Joiner joiner;
  for (size_t host = 0; host < texts.graph_of_host.size(); ++host) {
    const uint32_t graph = texts.graph_of_host[host];
    if (graph >= graphs.size())
      return Status(Code::kInvalidArgument, format("host %zu names no graph", host));
    if (texts.graph_of_host.size() == 1) return std::move(graphs[graph]);
    TUTTI_TRY(joiner.add_host(host, graphs[graph]));
  }
  const Graph& first = graphs[texts.graph_of_host[0]];
  if (std::ranges::all_of(
          graphs, [kind = fingerprint(first)](const Graph& graph) { return fingerprint(graph) == kind; }))
    joiner.set_slices(first.slices());
  return std::move(joiner).finish();
}

}  // namespace tutti::topology
