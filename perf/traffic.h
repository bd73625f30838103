// How much each rank sends to each peer in alltoallv_perf.
//
// As in nccl-tests, traffic grows with the distance to the peer, counted upwards around the ranks. Every rank
// sends and receives the same total. With spread s, a peer at distance d gets
// (1 - s)/n + s * d / (sum of distances) of the total. s is NCCL_TESTS_ALLTOALLV_SPREAD; at 1, the default, a
// rank sends nothing to itself.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::perf {

/// Elements that any rank sends to the peer `distance` ranks further on. `total` is about the sum that one
/// rank sends. The sum over distances 0..rank_count-1 does not exceed total.
std::vector<size_t> traffic_by_distance(size_t total, int rank_count, double spread);

}  // namespace tutti::perf
