// Assembly: puts one host together from the parts that a file or a detector names. It gives each part its
// link to what the part lies in, joins processors, and folds switches between GPUs into one node where they
// join the same GPUs. What the source does not tell is assumed, and each assumption that matters is a note.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

/// Sentences that tell of one source. More are counted: a wrong file has one for each of its lines.
inline constexpr size_t kNotesMax = 64;

/// A graph, and sentences about what its source lacks or has wrong.
struct Imported {
  Graph graph;
  std::vector<std::string> notes;
};

class Assembly {
 public:
  /// `origin`: of the numbers that the source gives.
  Assembly(Origin origin, std::string_view host_name);

  Origin origin() const { return origin_; }
  uint32_t host() const { return 0; }
  const Node& node(uint32_t index) const { return builder_.nodes()[index]; }
  Node& node(uint32_t index) { return builder_.node(index); }
  size_t node_count() const { return builder_.nodes().size(); }

  /// The line of the file that is being read; refusals name it.
  void set_line(size_t line) { line_ = line; }

  /// Adds the node and its link to its parent. The link's speed is `bytes_per_s`, or an assumed one if 0. A
  /// name that is taken gets a number. After a refusal all calls do nothing, and finish() reports it.
  uint32_t add(Node node, uint64_t bytes_per_s = 0);
  /// An assumption or a fault, once each, up to kNotesMax.
  void note(const std::string& text);
  const std::vector<std::string>& notes() const { return notes_; }

  /// Wires between two GPUs, a GPU and a processor, or a switch and either, for both directions; of two
  /// reports of the same wires the larger counts. A switch is named by its bus id and needs no node.
  struct Wires {
    LinkKind kind = LinkKind::kNvlink;
    uint32_t count = 1;
    Fact bytes_per_s = {};  ///< of all wires together
  };
  void connect_gpus(uint32_t a, uint32_t b, const Wires& wires);
  void connect_to_switch(uint32_t gpu, const std::string& switch_bus_id, const Wires& wires);
  void connect_switches(const std::string& a, const std::string& b, const Wires& wires);

  /// Replaces the speed of a node's link to its parent if `fact` is from a source trusted more, or equally.
  void set_link_speed(uint32_t node, const Fact& fact);

  /// The node with this PCI address, or kNoNode.
  uint32_t at_bus(std::string_view bus_id) const;

  Result<Imported> finish() &&;

 private:
  using Pair = std::pair<uint32_t, uint32_t>;

  void refuse(const Status& reason);
  void connect(const Edge& edge);
  void join_processors();
  void fold_switches();
  void check_speeds();
  Edge wire_edge(uint32_t a, uint32_t b, const Wires& wires) const;
  static void keep_larger(Wires& known, const Wires& wires);

  Origin origin_;
  size_t line_ = 0;
  GraphBuilder builder_;
  Status status_;
  std::vector<std::string> notes_;
  size_t notes_left_out_ = 0;
  uint32_t first_package_ = kNoNode;
  uint32_t first_numa_ = kNoNode;
  std::map<std::string, uint32_t, std::less<>> at_bus_;
  std::map<Pair, Wires> gpu_wires_;
  std::map<std::string, std::map<uint32_t, Wires>> switch_wires_;  // by switch, then GPU
  std::map<std::pair<std::string, std::string>, Wires> trunks_;
};

/// The speed and latency of a node's link to the node around it, if nothing is known.
Edge default_link(NodeKind child, NodeKind parent);

}  // namespace tutti::topology
