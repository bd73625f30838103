// hypercube_perf. A user-built all-gather: in step k a rank exchanges all its data with the rank that differs
// in bit k. Algorithm bandwidth counts the n-1 blocks that arrive. Each step needs the one before, so
// operations cannot share a group (-m).
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

BandwidthFactors factors(int rank_count) {
  return {.algorithm = static_cast<double>(rank_count - 1) / rank_count};
}

/// One phase copies the own block, then there is one phase for each bit of the rank numbers.
int phases(int rank_count) {
  int count = 1;
  for (int bit = 1; bit < rank_count; bit <<= 1) ++count;
  return count;
}

tutti_result_t exchange(const Case& test, const Call& call, const void* send, void* recv, size_t count,
                        int peer) {
  tutti_result_t result = tutti_group_start();
  if (result != TUTTI_SUCCESS) return result;
  result = tutti_send(send, count, test.type, peer, 0, call.comm, call.stream);
  const tutti_result_t received = tutti_recv(recv, count, test.type, peer, 0, call.comm, call.stream);
  const tutti_result_t ended = tutti_group_end();
  if (result == TUTTI_SUCCESS) result = received;
  return result == TUTTI_SUCCESS ? ended : result;
}

tutti_result_t run(const Case& test, const Call& call) {
  const size_t block_bytes = test.shape.count * test.type_bytes();
  char* recv = static_cast<char*>(call.recv);
  if (call.phase == 0) {
    char* own = recv + static_cast<size_t>(test.rank) * block_bytes;
    if (own == call.send) return TUTTI_SUCCESS;
    return exchange(test, call, call.send, own, test.shape.count, test.rank);
  }
  const int bit = 1 << (call.phase - 1);
  const int mine = test.rank & ~(bit - 1);
  const int theirs = mine ^ bit;
  return exchange(test, call, recv + static_cast<size_t>(mine) * block_bytes,
                  recv + static_cast<size_t>(theirs) * block_bytes,
                  test.shape.count * static_cast<size_t>(bit), test.rank ^ bit);
}

constexpr CollectiveTest kTest = {.name = "hypercube_perf",
                                  .power_of_two_ranks = true,
                                  .fusible = false,
                                  .messages = true,
                                  .shape = shape,
                                  .factors = factors,
                                  .phases = phases,
                                  .run = run,
                                  .fill = fill_own_block,
                                  .result_count = all_received,
                                  .expect = expect_stream_from_start};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
