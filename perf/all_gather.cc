// all_gather_perf. The size column is the gathered buffer; count is one rank's block.
#include "perf/collective.h"

namespace tutti::perf {
namespace {

Shape shape(const Case& test, size_t count) {
  const size_t block = block_count(test, count);
  return {.count = block,
          .send_count = block,
          .recv_count = block * static_cast<size_t>(test.rank_count),
          .send_offset_in_place = block * static_cast<size_t>(test.rank)};
}

tutti_result_t run(const Case& test, const Call& call) {
  return tutti_all_gather(call.send, call.recv, test.shape.count, test.type, call.comm, call.stream);
}

constexpr CollectiveTest kTest = {.name = "all_gather_perf",
                                  .shape = shape,
                                  .factors = blockwise_factors,
                                  .run = run,
                                  .fill = fill_own_block,
                                  .result_count = all_received,
                                  .expect = expect_stream_from_start};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
