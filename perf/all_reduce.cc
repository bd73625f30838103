// all_reduce_perf. Bus factor 2(n-1)/n: each element is reduced over n-1 hops and sent out over n-1 more.
#include "perf/collective.h"

namespace tutti::perf {
namespace {

BandwidthFactors factors(int rank_count) {
  return {.bus = 2.0 * static_cast<double>(rank_count - 1) / rank_count};
}

tutti_result_t run(const Case& test, const Call& call) {
  return tutti_all_reduce(call.send, call.recv, test.shape.count, test.type, call.op, call.comm, call.stream);
}

constexpr CollectiveTest kTest = {.name = "all_reduce_perf",
                                  .reduces = true,
                                  .shape = whole_shape,
                                  .factors = factors,
                                  .run = run,
                                  .fill = fill_reduction_operand,
                                  .result_count = all_received,
                                  .expect = expect_reduction};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
