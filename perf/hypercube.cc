// hypercube_perf. An all-gather made by the user out of groups of one send and one receive: in step k a rank
// exchanges all it has with the rank whose number differs in bit k. Algorithm bandwidth counts the n-1 blocks
// that arrive. A step needs the one before, so operations cannot be fused into one group (-m).
#include <cstring>

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

tutti_result_t exchange(const Case& test, const Call& call, int bit) {
  const size_t block_bytes = test.shape.count * test.type_bytes();
  const int mine = test.rank & ~(bit - 1);
  const int theirs = mine ^ bit;
  const int peer = test.rank ^ bit;
  const size_t count = test.shape.count * static_cast<size_t>(bit);
  char* recv = static_cast<char*>(call.recv);
  tutti_result_t result = tutti_group_start();
  if (result != TUTTI_SUCCESS) return result;
  result = tutti_send(recv + static_cast<size_t>(mine) * block_bytes, count, test.type, peer, 0, call.comm,
                      call.stream);
  const tutti_result_t received = tutti_recv(recv + static_cast<size_t>(theirs) * block_bytes, count,
                                             test.type, peer, 0, call.comm, call.stream);
  const tutti_result_t ended = tutti_group_end();
  if (result == TUTTI_SUCCESS) result = received;
  return result == TUTTI_SUCCESS ? ended : result;
}

tutti_result_t run(const Case& test, const Call& call) {
  const size_t block_bytes = test.shape.count * test.type_bytes();
  char* own = static_cast<char*>(call.recv) + static_cast<size_t>(test.rank) * block_bytes;
  if (own != call.send) std::memcpy(own, call.send, block_bytes);
  for (int bit = 1; bit < test.rank_count; bit <<= 1)
    if (const tutti_result_t result = exchange(test, call, bit); result != TUTTI_SUCCESS) return result;
  return TUTTI_SUCCESS;
}

constexpr CollectiveTest kTest = {.name = "hypercube_perf",
                                  .power_of_two_ranks = true,
                                  .fusible = false,
                                  .shape = shape,
                                  .factors = factors,
                                  .run = run,
                                  .fill = fill_own_block,
                                  .result_count = all_received,
                                  .expect = expect_stream_from_start};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
