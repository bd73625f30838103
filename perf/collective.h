// The properties of the measured collective. Each tool is one small file that defines `collective_test()`.
//
// Sizes, in-place offsets and bandwidth factors are those of nccl-tests, explained in its PERFORMANCE.md. Bus
// bandwidth is the load of the busiest link under an ideal algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/data.h"
#include "perf/element.h"
#include "perf/traffic.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// Elements of one operation on one rank. In-place offsets count from the start of the receive buffer.
struct Shape {
  size_t count = 0;  ///< the argument of the call, and the table's count column
  size_t send_count = 0;
  size_t recv_count = 0;
  size_t send_offset_in_place = 0;
  size_t recv_offset_in_place = 0;
  std::vector<size_t> send_counts = {};  ///< by peer, for variable counts only
  std::vector<size_t> recv_counts = {};
};

/// One row of the table for one rank, without memory.
struct Case {
  tutti_type_t type = TUTTI_FLOAT32;
  TestOp op = TestOp::kSum;
  int root = -1;
  int rank = 0;
  int rank_count = 1;
  uint64_t seed = 0;
  double spread = 1.0;                     ///< alltoallv: 0 uniform, 1 by distance
  const TrafficMatrix* traffic = nullptr;  ///< alltoallv by matrix; null: by distance
  Shape shape = {};

  size_t type_bytes() const { return test_type_bytes(type); }
  Reduction reduction() const { return {.type = type, .op = op, .rank_count = rank_count, .seed = seed}; }
};

struct Call {
  const void* send;
  void* recv;
  tutti_op_t op;
  tutti_comm_t* comm;
  tutti_stream_t stream;
  int phase = 0;  ///< below CollectiveTest::phases
};

/// algorithm bandwidth = size column x algorithm / time; bus bandwidth = that x bus.
struct BandwidthFactors {
  double algorithm = 1.0;
  double bus = 1.0;
};

/// For operations that are one call, or one group.
inline int one_phase(int) {
  return 1;
}

struct CollectiveTest {
  const char* name;  ///< the tool's name
  bool reduces = false;
  bool has_root = false;
  bool in_place = true;             ///< whether there is an in-place form
  bool power_of_two_ranks = false;  ///< other rank counts are skipped
  bool fusible = true;              ///< whether several operations may share a group (-m)
  bool uneven_traffic = false;      ///< nccl-tests' variables describe the traffic
  bool messages = false;  ///< consists of sends and receives, for which the library has no algorithm

  /// `count`: elements of the requested size. Rounds down if blocks must be equal. All ranks get the same
  /// shape, except for the in-place offsets.
  Shape (*shape)(const Case& test, size_t count);
  BandwidthFactors (*factors)(int rank_count);
  /// The number of groups that one operation consists of. All ranks of a thread issue one group before any
  /// rank issues the next.
  int (*phases)(int rank_count) = one_phase;
  /// Issues phase call.phase of one operation.
  tutti_result_t (*run)(const Case& test, const Call& call);
  /// Writes this rank's input, shape.send_count elements, to host memory.
  void (*fill)(const Case& test, void* send);
  /// Elements of the receive buffer that the call defines on this rank.
  size_t (*result_count)(const Case& test);
  /// Writes elements [first, first + count) of the expected result.
  void (*expect)(const Case& test, size_t first, size_t count, void* out);
};

const CollectiveTest& collective_test();

// Functions that several collectives share.

/// shape.count = `count` for send and receive; the in-place block is at the start.
Shape whole_shape(const Case& test, size_t count);
/// Elements of a block when `count` is cut into rank_count equal blocks. As in nccl-tests, rounded down to 16
/// bytes. Blocks below 16 bytes stay whole, because rounding would leave nothing to measure.
size_t block_count(const Case& test, size_t count);
BandwidthFactors unit_factors(int rank_count);
/// Bus factor (n - 1) / n: a rank's own block never travels.
BandwidthFactors blockwise_factors(int rank_count);

void fill_reduction_operand(const Case& test, void* send);
void expect_reduction(const Case& test, size_t first, size_t count, void* out);
size_t all_received(const Case& test);
size_t received_at_root(const Case& test);

/// Data for collectives that move blocks: one stream of elements, in which rank r contributes [r *
/// send_count, (r + 1) * send_count).
void fill_own_block(const Case& test, void* send);
void expect_stream_from_start(const Case& test, size_t first, size_t count, void* out);

}  // namespace tutti::perf
