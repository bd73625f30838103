// reduce_perf. Only the root's result is defined.
#include "perf/collective.h"

namespace tutti::perf {
namespace {

tutti_result_t run(const Case& test, const Call& call) {
  return tutti_reduce(call.send, call.recv, test.shape.count, test.type, call.op, test.root, call.comm,
                      call.stream);
}

constexpr CollectiveTest kTest = {.name = "reduce_perf",
                                  .reduces = true,
                                  .has_root = true,
                                  .shape = whole_shape,
                                  .factors = unit_factors,
                                  .run = run,
                                  .fill = fill_reduction_operand,
                                  .result_count = received_at_root,
                                  .expect = expect_reduction};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
