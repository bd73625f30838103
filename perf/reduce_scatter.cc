// reduce_scatter_perf. The size column is the reduced buffer; count is one rank's block.
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
  return tutti_reduce_scatter(call.send, call.recv, test.shape.count, test.type, call.op, call.comm,
                              call.stream);
}

void expect(const Case& test, size_t first, size_t count, void* out) {
  fill_reduced(test.reduction(), static_cast<size_t>(test.rank) * test.shape.count + first, count, out);
}

constexpr CollectiveTest kTest = {.name = "reduce_scatter_perf",
                                  .reduces = true,
                                  .shape = shape,
                                  .factors = blockwise_factors,
                                  .run = run,
                                  .fill = fill_reduction_operand,
                                  .result_count = all_received,
                                  .expect = expect};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
