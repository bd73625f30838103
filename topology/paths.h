// Paths: how bytes go from one node to another, and how near two devices are.
//
// The path between two nodes is the widest one: its slowest link is as fast as possible. Among equally wide
// paths the one with the least latency counts, then the one with the fewest links, then the one over the
// nodes with the lowest numbers. So all ranks find the same path. Bytes pass through buses, caches and
// switches, but not through cores, GPUs or other end points; and a path inside a host does not leave the
// host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

struct Path {
  std::vector<uint32_t> nodes;  ///< both ends included
  std::vector<uint32_t> edges;
  uint64_t bytes_per_s = 0;  ///< of the slowest link; a path without links: UINT64_MAX
  uint64_t latency_ns = 0;
};

/// The widest paths from one node. Borrows the graph.
class WidestPaths {
 public:
  WidestPaths(const Graph& graph, uint32_t source);

  /// 0 if there is no path.
  uint64_t bytes_per_s(uint32_t target) const;
  /// Paths as wide as the last one take no further search.
  std::optional<Path> to(uint32_t target);

 private:
  /// A node and whether bytes have come to it from the network: 2 * node, and one more for a card that they
  /// have entered from the network. Such a card passes them to its host, another one to the network.
  using Place = uint32_t;

  /// The last link of the best way to a place.
  struct Way {
    uint64_t latency = UINT64_MAX;
    uint32_t links = 0;
    Place before = kNoNode;
    uint32_t edge = 0;

    bool is_better_than(const Way& other) const {
      return std::tie(latency, links, before, edge) <
             std::tie(other.latency, other.links, other.before, other.edge);
    }
  };

  /// The best ways to all places over links of this width.
  void find_ways(uint64_t width, bool inside_host);
  /// Whether bytes may go on from `at` to the node `next`.
  bool passes(Place at, uint32_t next, bool inside_host) const;
  /// Where bytes are that go from the node `at` to the node `next`.
  Place place_at(uint32_t next, uint32_t at) const;
  std::vector<uint64_t> widths(bool inside_host) const;
  bool is_inside_host(uint32_t target) const;

  const Graph& graph_;
  uint32_t source_;
  std::vector<uint64_t> inside_;  // widths of paths that stay in the host
  std::vector<uint64_t> anywhere_;
  std::vector<Way> ways_;
  uint64_t ways_width_ = 0;  // of ways_; 0: there are none
  bool ways_inside_host_ = false;
};

/// How near two nodes are, with the words of `nvidia-smi topo -m`, from near to far.
enum class Distance : uint8_t {
  kSelf,
  kNvlink,  ///< direct links, or one switch between GPUs
  kL3,      ///< cores below one cache
  kPix,     ///< one PCI switch between them
  kPxb,     ///< several PCI switches, but not the processor
  kPhb,     ///< the processor's PCI host bridge
  kNode,    ///< the same NUMA node
  kSys,     ///< another NUMA node or another package
  kNet,     ///< another host
};

/// Where nodes lie decides, not how fast the links are.
Distance distance_between(const Graph& graph, uint32_t a, uint32_t b);

/// "X", "NV18", "XG1", "L3", "PIX", "PXB", "PHB", "NODE", "SYS" or "NET".
std::string distance_text(const Graph& graph, uint32_t a, uint32_t b);

}  // namespace tutti::topology
