// Search: what a job's graph offers to collectives: the order of ranks in rings and trees, the network card
// of each rank, the levels of a hierarchy, and bounds that no algorithm can exceed.
//
// A rank is a GPU, or a core if the graph has no GPU. Hosts of equal shape are searched once, so the work
// grows with the number of ranks only in writing the result. Same graph, same result, on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/levels.h"

namespace tutti::topology {

/// Speeds are bus bandwidths of all-reduce: the bytes of the message per second, times 2 (P - 1) / P. A ring
/// whose every link runs at 50 GB/s has a bus bandwidth of 50 GB/s. They hold for long messages: latency does
/// not count.
struct Offers {
  std::vector<uint32_t> ranks;               ///< the node of each rank
  std::vector<uint32_t> nic_of;              ///< the node of each rank's card; kNoNode: none
  std::vector<Level> levels;                 ///< from small groups to large ones
  std::vector<std::vector<uint32_t>> rings;  ///< a channel each: ranks in order
  std::vector<std::vector<uint32_t>> trees;  ///< a channel each: the parent of each rank; kNoNode: the root
  uint64_t ring_bytes_per_s = 0;             ///< all rings at once; 0: something is not joined
  uint64_t tree_bytes_per_s = 0;             ///< all trees at once, reducing and broadcasting
  uint64_t hierarchy_bytes_per_s = 0;        ///< stages within hosts, then between hosts, one after the other
  uint64_t bound_bytes_per_s = 0;            ///< of any algorithm whose ranks reduce
  uint64_t bisection_bytes_per_s = 0;        ///< between the first and the second half of the ranks, each way
  std::string ring_limit;                    ///< the link that limits the rings
  std::string bound_at;                      ///< what limits every algorithm: "each rank", or a level
  bool complete = true;                      ///< no search was cut short
};

/// Errors: kInvalidArgument if there are less than two ranks.
Result<Offers> search(const Graph& graph);

}  // namespace tutti::topology
