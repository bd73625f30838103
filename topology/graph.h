// Graph: what is connected to what, as immutable data.
//
// A node is a part of a machine or of a network. Each node may lie inside another one (its parent). An edge
// is a link that carries bytes in both directions at once, at the same speed each way. Speeds and latencies
// are facts: a number, and where the number comes from. Numbers are integers, so that all ranks compute the
// same from the same graph.
//
// GraphBuilder checks every node and every edge. So a Graph always has unique names, parents before children,
// and positive speeds.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "topology/call_times.h"
#include "topology/fact.h"
#include "topology/slice_costs.h"

namespace tutti::topology {

enum class NodeKind : uint8_t {
  kHost,
  kPackage,
  kNuma,
  kL3,
  kCore,
  kBridge,     ///< where PCI devices join the processor: a PCI host bridge
  kPciSwitch,  ///< a PCI Express switch
  kGpu,
  kNvswitch,  ///< also other switches between GPUs
  kNic,
  kDevice,  ///< a PCI device of unknown kind
  kFabric,  ///< a switch of the network between hosts
};
inline constexpr size_t kNodeKinds = 12;

enum class LinkKind : uint8_t {
  kInside,    ///< between parts of one processor
  kPackages,  ///< between processors
  kPci,
  kNvlink,
  kXgmi,
  kNetwork,
};
inline constexpr size_t kLinkKinds = 6;

std::string_view kind_name(NodeKind kind);
std::string_view kind_name(LinkKind kind);
std::string_view origin_name(Origin origin);

inline constexpr uint32_t kNoNode = UINT32_MAX;
inline constexpr uint32_t kNodesMax = 1u << 18;
inline constexpr uint32_t kEdgesMax = 1u << 20;
inline constexpr size_t kNameBytesMax = 64;

struct Node {
  NodeKind kind = NodeKind::kHost;
  std::string name;           ///< unique; letters, digits and _ . : + / -
  uint32_t parent = kNoNode;  ///< the node that this one lies in
  std::string bus_id;         ///< PCI address, as 0000:4f:00.0; empty: none
  std::string model;          ///< printable text without quotes; may be empty
  int32_t os_index = -1;      ///< the system's number of a NUMA node, a GPU, a core's first CPU; -1: unknown
  uint32_t count = 1;         ///< threads of a core, ports of a NIC, switches behind one kNvswitch
  uint64_t memory_bytes = 0;  ///< 0: none or unknown
  Fact bytes_per_s = {};      ///< a NIC's ports together, each way; 0: unknown or no NIC

  friend bool operator==(const Node&, const Node&) = default;
};

struct Edge {
  uint32_t a = 0;
  uint32_t b = 0;
  LinkKind kind = LinkKind::kInside;
  uint32_t count = 1;     ///< parallel wires that the speed sums up, e.g. 18 NVLinks
  Fact bytes_per_s = {};  ///< each way
  Fact latency_ns = {};

  friend bool operator==(const Edge&, const Edge&) = default;
};

/// An edge as one of its nodes sees the edge.
struct Link {
  uint32_t edge;
  uint32_t other;
};

class Graph {
 public:
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Edge> edges() const { return edges_; }
  const Node& node(uint32_t index) const { return nodes_[index]; }
  const Edge& edge(uint32_t index) const { return edges_[index]; }
  /// Of ranks on cores, if probes have measured them.
  const SliceCosts& slices() const { return slices_; }
  /// Of ranks on cores, if trials have measured them. Not part of the digest: no decision depends on them.
  const CallTimes& calls() const { return calls_; }

  /// The links of a node, in the order of edges.
  std::span<const Link> links_of(uint32_t node) const;
  /// The nodes inside a node, in the order of nodes. kNoNode: the nodes without a parent.
  std::span<const uint32_t> children_of(uint32_t node) const;
  /// All nodes of a kind, in the order of nodes.
  std::vector<uint32_t> of_kind(NodeKind kind) const;
  /// kNoNode if no node has this name.
  uint32_t find(std::string_view name) const;
  /// The nearest node of this kind among the node and the nodes around it; kNoNode if there is none.
  uint32_t around(uint32_t node, NodeKind kind) const;
  /// Equal graphs have equal digests, on every machine.
  uint64_t digest() const;

  friend bool operator==(const Graph& a, const Graph& b) {
    return a.nodes_ == b.nodes_ && a.edges_ == b.edges_ && a.slices_ == b.slices_ && a.calls_ == b.calls_;
  }

 private:
  friend class GraphBuilder;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  SliceCosts slices_;
  CallTimes calls_;
  std::vector<Link> links_;
  std::vector<uint32_t> links_begin_;
  std::vector<uint32_t> children_;
  std::vector<uint32_t> children_begin_;  ///< of node n at n + 1; those without a parent at 0
  std::map<std::string, uint32_t, std::less<>> by_name_;
};

/// Collects nodes and edges. A refused one changes nothing.
class GraphBuilder {
 public:
  /// Continues from a graph.
  explicit GraphBuilder(const Graph& start);
  GraphBuilder() = default;

  /// Errors: kInvalidArgument with the reason: a name that is taken or malformed, a parent that does not
  /// exist or cannot hold this kind, too many nodes.
  Result<uint32_t> add(Node node);
  /// Errors: kInvalidArgument with the reason: an end that does not exist, a link to itself, a second link of
  /// the same kind between two nodes, no speed, too many edges.
  Status connect(const Edge& edge);

  uint32_t find(std::string_view name) const;
  /// `name`, or `name` with the first number that makes it unique.
  std::string unused_name(std::string_view name) const;
  std::span<const Node> nodes() const { return nodes_; }
  /// For facts that become known later. Name, parent and kind must stay.
  Node& node(uint32_t index) { return nodes_[index]; }
  /// The edge between two nodes, or null.
  Edge* edge_between(uint32_t a, uint32_t b, LinkKind kind);
  std::vector<Edge>& edges() { return edges_; }
  SliceCosts& slices() { return slices_; }
  CallTimes& calls() { return calls_; }

  Graph finish() &&;

 private:
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  SliceCosts slices_;
  CallTimes calls_;
  std::map<std::string, uint32_t, std::less<>> by_name_;
  std::map<std::pair<uint64_t, LinkKind>, uint32_t> by_ends_;
  mutable std::map<std::string, uint32_t, std::less<>> next_number_;
};

/// `name` with every character that no name may have replaced by '_', cut to a name's length.
std::string as_name(std::string_view name);
/// `text` without quotes and control characters, cut to a short line.
std::string as_model(std::string_view text);

}  // namespace tutti::topology
