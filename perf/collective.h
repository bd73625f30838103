// What a perf tool must know of the collective it measures. Each tool is one small file that defines
// `collective_test()`; everything else is shared.
//
// Sizes, in-place offsets and bandwidth factors are nccl-tests' (PERFORMANCE.md of that project explains the
// factors: bus bandwidth is what the busiest link would carry with an ideal algorithm).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/data.h"
#include "perf/element.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// Elements of one operation on one rank. In-place offsets are counted from the receive buffer's start.
struct Shape {
  size_t count = 0;  ///< the argument of the call, and the table's count column
  size_t send_count = 0;
  size_t recv_count = 0;
  size_t send_offset_in_place = 0;
  size_t recv_offset_in_place = 0;
  std::vector<size_t> send_counts = {};  ///< by peer, for variable counts only
  std::vector<size_t> recv_counts = {};
};

/// One row of the table as one rank sees it, without memory.
struct Case {
  tutti_type_t type = TUTTI_FLOAT32;
  TestOp op = TestOp::kSum;
  int root = -1;
  int rank = 0;
  int rank_count = 1;
  uint64_t seed = 0;
  double spread = 1.0;  ///< alltoallv: 0 uniform, 1 by distance
  Shape shape = {};

  size_t type_bytes() const { return test_type_bytes(type); }
  Reduction reduction() const { return {.type = type, .op = op, .rank_count = rank_count, .seed = seed}; }
};

/// The memory and handles of one operation.
struct Call {
  const void* send;
  void* recv;
  tutti_op_t op;
  tutti_comm_t* comm;
  tutti_stream_t stream;
  int phase = 0;  ///< of CollectiveTest::phases
};

/// algorithm bandwidth = size column x algorithm / time; bus bandwidth = that x bus.
struct BandwidthFactors {
  double algorithm = 1.0;
  double bus = 1.0;
};

/// Of operations that are one call, or one group.
inline int one_phase(int) {
  return 1;
}

struct CollectiveTest {
  const char* name;  ///< of the tool
  bool reduces = false;
  bool has_root = false;
  bool in_place = true;             ///< whether the in-place columns can be measured
  bool power_of_two_ranks = false;  ///< other rank counts are skipped
  bool fusible = true;              ///< whether several operations may share a group (-m)
  bool messages = false;            ///< made of sends and receives, for which the library has no algorithm

  /// `count`: elements of the size asked for. Rounds down where blocks must be equal. Same on every rank but
  /// for the in-place offsets.
  Shape (*shape)(const Case& test, size_t count);
  BandwidthFactors (*factors)(int rank_count);
  /// Of an operation made of several groups: how many. All ranks of a thread issue one before any issues the
  /// next.
  int (*phases)(int rank_count) = one_phase;
  /// Issues phase call.phase of the operation once.
  tutti_result_t (*run)(const Case& test, const Call& call);
  /// Writes this rank's input, shape.send_count elements, to host memory.
  void (*fill)(const Case& test, void* send);
  /// Elements of the receive buffer that are defined on this rank after the call.
  size_t (*result_count)(const Case& test);
  /// Writes elements [first, first + count) of the expected result.
  void (*expect)(const Case& test, size_t first, size_t count, void* out);
};

/// The collective of this executable.
const CollectiveTest& collective_test();

// Parts that several collectives share.

/// shape.count = `count` on both sides, in place at the start.
Shape whole_shape(const Case& test, size_t count);
/// Elements of a block when `count` is cut into rank_count equal blocks: rounded down to 16 bytes as in
/// nccl-tests, except that blocks below 16 bytes are kept whole (rounding would leave nothing to measure).
size_t block_count(const Case& test, size_t count);
BandwidthFactors unit_factors(int rank_count);
/// Bus factor (n - 1) / n: a rank's own block never travels.
BandwidthFactors blockwise_factors(int rank_count);

void fill_reduction_operand(const Case& test, void* send);
void expect_reduction(const Case& test, size_t first, size_t count, void* out);
size_t all_received(const Case& test);
size_t received_at_root(const Case& test);

/// Data of collectives that move blocks: one stream of elements, of which rank r contributes
/// [r * send_count, (r + 1) * send_count).
void fill_own_block(const Case& test, void* send);
void expect_stream_from_start(const Case& test, size_t first, size_t count, void* out);

}  // namespace tutti::perf
