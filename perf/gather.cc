// gather_perf. Like all_gather, but only the root's result is defined.
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
  return tutti_gather(call.send, call.recv, test.shape.count, test.type, test.root, call.comm, call.stream);
}

constexpr CollectiveTest kTest = {.name = "gather_perf",
                                  .has_root = true,
                                  .shape = shape,
                                  .factors = blockwise_factors,
                                  .run = run,
                                  .fill = fill_own_block,
                                  .result_count = received_at_root,
                                  .expect = expect_stream_from_start};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
