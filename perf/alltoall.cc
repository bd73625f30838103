// alltoall_perf. The size column is a rank's whole buffer; count is the block for one peer.
#include <algorithm>

#include "perf/collective.h"

namespace tutti::perf {
namespace {

Shape shape(const Case& test, size_t count) {
  const size_t block = block_count(test, count);
  const size_t whole = block * static_cast<size_t>(test.rank_count);
  return {.count = block, .send_count = whole, .recv_count = whole};
}

tutti_result_t run(const Case& test, const Call& call) {
  return tutti_all_to_all(call.send, call.recv, test.shape.count, test.type, call.comm, call.stream);
}

void expect(const Case& test, size_t first, size_t count, void* out) {
  const size_t block = test.shape.count;
  char* cursor = static_cast<char*>(out);
  while (count > 0) {
    const size_t source = first / block;
    const size_t inside = first % block;
    const size_t part = std::min(count, block - inside);
    const size_t source_start = source * test.shape.send_count + static_cast<size_t>(test.rank) * block;
    fill_stream(test.type, test.seed, source_start + inside, part, cursor);
    cursor += part * test.type_bytes();
    first += part;
    count -= part;
  }
}

constexpr CollectiveTest kTest = {.name = "alltoall_perf",
                                  .shape = shape,
                                  .factors = blockwise_factors,
                                  .run = run,
                                  .fill = fill_own_block,
                                  .result_count = all_received,
                                  .expect = expect};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
