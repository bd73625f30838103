// sendrecv_perf. Each rank sends to the next rank and receives from the previous rank, in one group. There is
// no in-place form, because the receive would overwrite the buffer during the send.
#include "perf/collective.h"

namespace tutti::perf {
namespace {

int next(const Case& test) {
  return (test.rank + 1) % test.rank_count;
}
int previous(const Case& test) {
  return (test.rank + test.rank_count - 1) % test.rank_count;
}

tutti_result_t run(const Case& test, const Call& call) {
  tutti_result_t result = tutti_group_start();
  if (result != TUTTI_SUCCESS) return result;
  result = tutti_send(call.send, test.shape.count, test.type, next(test), 0, call.comm, call.stream);
  const tutti_result_t received =
      tutti_recv(call.recv, test.shape.count, test.type, previous(test), 0, call.comm, call.stream);
  const tutti_result_t ended = tutti_group_end();
  if (result == TUTTI_SUCCESS) result = received;
  return result == TUTTI_SUCCESS ? ended : result;
}

void expect(const Case& test, size_t first, size_t count, void* out) {
  const size_t start = static_cast<size_t>(previous(test)) * test.shape.count;
  fill_stream(test.type, test.seed, start + first, count, out);
}

constexpr CollectiveTest kTest = {.name = "sendrecv_perf",
                                  .in_place = false,
                                  .messages = true,
                                  .shape = whole_shape,
                                  .factors = unit_factors,
                                  .run = run,
                                  .fill = fill_own_block,
                                  .result_count = all_received,
                                  .expect = expect};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
