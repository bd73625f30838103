// How much each rank sends to each peer in alltoallv_perf, as in nccl-tests.
//
// By distance: the distance to the peer is counted upwards around the ranks. Every rank sends and receives
// the same total. With spread s, a peer at distance d gets (1 - s)/n + s * d / (sum of distances) of the
// total. s is NCCL_TESTS_ALLTOALLV_SPREAD; at 1, the default, a rank sends nothing to itself.
//
// By matrix: NCCL_TESTS_ALLTOALLV_MATRIX_FILE names a file with the bytes that each rank sends to each peer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/result.h"

namespace tutti::perf {

/// Elements that any rank sends to the peer `distance` ranks further on. `total` is about the sum that one
/// rank sends. The sum over distances 0..rank_count-1 does not exceed total.
std::vector<size_t> traffic_by_distance(size_t total, int rank_count, double spread);

/// Bytes by sender and receiver, multiples of 16.
class TrafficMatrix {
 public:
  /// A line for each sender, with a number for each receiver. Numbers are multiplied by `scale`, then rounded
  /// down. Errors: kInvalidArgument, with line and column: not a square of numbers that are at least 0.
  static Result<TrafficMatrix> parse(const std::string& text, double scale);
  /// Errors: kSystemError, and errors of `parse`, with the path.
  static Result<TrafficMatrix> read(const std::string& path, double scale);

  int dimension() const { return dimension_; }
  size_t bytes(int from, int to) const {
    return bytes_[static_cast<size_t>(from) * static_cast<size_t>(dimension_) + static_cast<size_t>(to)];
  }
  /// The sum over peers below `peer_count`.
  size_t sent(int rank, int peer_count) const;
  size_t received(int rank, int peer_count) const;
  /// The largest sum that one of the first `rank_count` ranks sends or receives.
  size_t largest_total(int rank_count) const;

 private:
  int dimension_ = 0;
  std::vector<size_t> bytes_;
};

}  // namespace tutti::perf
