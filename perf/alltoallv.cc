// alltoallv_perf. Counts differ by peer (traffic.h). The size column is the largest total that a rank sends
// or receives. By distance, count is this total divided by the ranks; by matrix it is 0. There is no in-place
// form.
#include <algorithm>
#include <numeric>

#include "perf/collective.h"
#include "perf/traffic.h"

namespace tutti::perf {
namespace {

/// Turns counts by distance into counts by peer. The peer at distance x is `direction` x steps after `rank`.
std::vector<size_t> by_peer(const std::vector<size_t>& by_distance, int rank, int direction) {
  const int rank_count = static_cast<int>(by_distance.size());
  std::vector<size_t> result(by_distance.size());
  for (int step = 0; step < rank_count; ++step) {
    const int peer = (rank + direction * step + rank_count) % rank_count;
    result[static_cast<size_t>(peer)] = by_distance[static_cast<size_t>(step)];
  }
  return result;
}

/// Every rank gets the largest counts of any rank, so that all have equal buffers and streams of data.
Shape shape_by_matrix(const Case& test) {
  const TrafficMatrix& traffic = *test.traffic;
  const size_t largest = traffic.largest_total(test.rank_count) / test.type_bytes();
  Shape made{.send_count = largest, .recv_count = largest};
  for (int peer = 0; peer < test.rank_count; ++peer) {
    made.send_counts.push_back(traffic.bytes(test.rank, peer) / test.type_bytes());
    made.recv_counts.push_back(traffic.bytes(peer, test.rank) / test.type_bytes());
  }
  return made;
}

Shape shape(const Case& test, size_t count) {
  if (test.traffic != nullptr) return shape_by_matrix(test);
  const size_t block = block_count(test, count);
  const std::vector<size_t> by_distance =
      traffic_by_distance(block * static_cast<size_t>(test.rank_count), test.rank_count, test.spread);
  const size_t whole = std::accumulate(by_distance.begin(), by_distance.end(), size_t{0});
  return {.count = block,
          .send_count = whole,
          .recv_count = whole,
          .send_counts = by_peer(by_distance, test.rank, 1),
          .recv_counts = by_peer(by_distance, test.rank, -1)};
}

tutti_result_t run(const Case& test, const Call& call) {
  return tutti_all_to_all_v(call.send, test.shape.send_counts.data(), nullptr, call.recv,
                            test.shape.recv_counts.data(), nullptr, test.type, call.comm, call.stream);
}

/// Elements from one rank to another.
size_t sent_elements(const Case& test, int from, int to) {
  if (test.traffic != nullptr) return test.traffic->bytes(from, to) / test.type_bytes();
  // Counts depend on distances, not on ranks. So the counts of `from` are this rank's counts, rotated by the
  // difference.
  const int same_distance = (to - from + test.rank + test.rank_count) % test.rank_count;
  return test.shape.send_counts[static_cast<size_t>(same_distance)];
}

/// Elements that `rank` has sent to peers below `peer`: the block for `peer` begins there.
size_t send_displacement(const Case& test, int rank, int peer) {
  size_t elements = 0;
  for (int lower = 0; lower < peer; ++lower) elements += sent_elements(test, rank, lower);
  return elements;
}

/// A matrix may leave the end of the receive buffer unused.
size_t received_elements(const Case& test) {
  return std::accumulate(test.shape.recv_counts.begin(), test.shape.recv_counts.end(), size_t{0});
}

void expect(const Case& test, size_t first, size_t count, void* out) {
  char* cursor = static_cast<char*>(out);
  size_t begin = 0;
  for (int source = 0; source < test.rank_count && count > 0; ++source) {
    const size_t end = begin + test.shape.recv_counts[static_cast<size_t>(source)];
    if (first < end) {
      const size_t part = std::min(count, end - first);
      const size_t block =
          static_cast<size_t>(source) * test.shape.send_count + send_displacement(test, source, test.rank);
      fill_stream(test.type, test.seed, block + first - begin, part, cursor);
      cursor += part * test.type_bytes();
      first += part;
      count -= part;
    }
    begin = end;
  }
}

constexpr CollectiveTest kTest = {.name = "alltoallv_perf",
                                  .in_place = false,
                                  .uneven_traffic = true,
                                  .shape = shape,
                                  .factors = blockwise_factors,
                                  .run = run,
                                  .fill = fill_own_block,
                                  .result_count = received_elements,
                                  .expect = expect};

}  // namespace

const CollectiveTest& collective_test() {
  return kTest;
}

}  // namespace tutti::perf
