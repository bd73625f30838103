// scatter_perf. The size column is the root's buffer; count is one rank's block.
#include "perf/collective.h"

namespace tutti::perf {
namespace {

Shape shape(const Case& test, size_t count) {
  const size_t block = block_count(test, count);
  return {.count = block,
          .send_count = block * static_cast<size_t>(test.rank_count),
          .recv_count = block,
          .recv_offset_in_place = block * static_cast<size_t>(test.rank)};
}

tutti_result_t run(const Case& test, const Call& call) {
  return tutti_scatter(call.send, call.recv, test.shape.count, test.type, test.root, call.comm, call.stream);
}

void fill(const Case& test, void* send) {
  // Only the root's send buffer may be read. The other ranks hold other data, so that a read of it is seen.
  const uint64_t seed = test.rank == test.root ? test.seed : ~test.seed;
  fill_stream(test.type, seed, 0, test.shape.send_count, send);
}

void expect(const Case& test, size_t first, size_t count, void* out) {
  fill_stream(test.type, test.seed, static_cast<size_t>(test.rank) * test.shape.count + first, count, out);
}

constexpr CollectiveTest kTest = {.name = "scatter_perf",
                                  .has_root = true,
                                  .shape = shape,
                                  .factors = blockwise_factors,
                                  .run = run,
                                  .fill = fill,
                                  .result_count = all_received,
                                  .expect = expect};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
