#include "perf/collective.h"

namespace tutti::perf {

Shape whole_shape(const Case&, size_t count) {
  return {.count = count, .send_count = count, .recv_count = count};
}

size_t block_count(const Case& test, size_t count) {
  constexpr size_t kAlignBytes = 16;
  const size_t block = count / static_cast<size_t>(test.rank_count);
  const size_t unit = kAlignBytes / test.type_bytes();
  return block < unit ? block : block / unit * unit;
}

BandwidthFactors unit_factors(int) {
  return {};
}

BandwidthFactors blockwise_factors(int rank_count) {
  return {.bus = static_cast<double>(rank_count - 1) / rank_count};
}

void fill_reduction_operand(const Case& test, void* send) {
  fill_operand(test.reduction(), test.rank, 0, test.shape.send_count, send);
}

void expect_reduction(const Case& test, size_t first, size_t count, void* out) {
  fill_reduced(test.reduction(), first, count, out);
}

size_t all_received(const Case& test) {
  return test.shape.recv_count;
}

size_t received_at_root(const Case& test) {
  return test.rank == test.root ? test.shape.recv_count : 0;
}

void fill_own_block(const Case& test, void* send) {
  const size_t block = test.shape.send_count;
  fill_stream(test.type, test.seed, static_cast<size_t>(test.rank) * block, block, send);
}

void expect_stream_from_start(const Case& test, size_t first, size_t count, void* out) {
  fill_stream(test.type, test.seed, first, count, out);
}

}  // namespace tutti::perf
