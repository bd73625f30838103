// broadcast_perf. Ranks other than the root start with other data, so that a lost broadcast is seen.
#include "perf/collective.h"

namespace tutti::perf {
namespace {

tutti_result_t run(const Case& test, const Call& call) {
  return tutti_broadcast(call.send, call.recv, test.shape.count, test.type, test.root, call.comm,
                         call.stream);
}

uint64_t rank_seed(const Case& test, int rank) {
  return test.seed * 8191 + static_cast<uint64_t>(rank);
}

void fill(const Case& test, void* send) {
  fill_stream(test.type, rank_seed(test, test.rank), 0, test.shape.send_count, send);
}

void expect(const Case& test, size_t first, size_t count, void* out) {
  fill_stream(test.type, rank_seed(test, test.root), first, count, out);
}

constexpr CollectiveTest kTest = {.name = "broadcast_perf",
                                  .has_root = true,
                                  .shape = whole_shape,
                                  .factors = unit_factors,
                                  .run = run,
                                  .fill = fill,
                                  .result_count = all_received,
                                  .expect = expect};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
