// Who sends how much to whom in alltoallv_perf.
//
// As in nccl-tests, traffic grows with the distance between ranks on a circle, and every rank sends and
// receives the same total: with spread s a peer at distance d gets (1 - s)/n + s * d / (sum of distances) of
// it. s comes from NCCL_TESTS_ALLTOALLV_SPREAD (1 by default: nothing to oneself, most to the opposite rank).
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::perf {

/// Elements that any rank sends to the peer `distance` ranks further on; `total` is about what one rank
/// sends. The sum over distances 0..rank_count-1 does not exceed total.
std::vector<size_t> traffic_by_distance(size_t total, int rank_count, double spread);

}  // namespace tutti::perf
