// Results stored straight into the ranks' buffers, through the API: which memory, which ranks, what if some
// rank's memory cannot be reached.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

class DirectWritesApiTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  static ClusterOptions options() {
    ClusterOptions options;
    options.layout = GetParam();
    options.environment = {{"TUTTI_ALGORITHM", "direct_two_shot"},
                           {"TUTTI_DIRECT_WRITE_BYTES", "1"},
                           {"TUTTI_REFERENCE_BYTES", "1"},
                           {"TUTTI_SLOT_BYTES", "4096"},
                           {"TUTTI_SLOTS", "8"}};
    return options;
  }
};

/// `count` elements of the symmetric heap, or of the rank's own memory.
class Elements {
 public:
  Elements(Rank& rank, size_t count, bool in_heap) : rank_(rank), own_(in_heap ? 0 : count) {
    if (!in_heap) return;
    void* memory = nullptr;
    rank.expect_ok(tutti_mem_alloc(&memory, count * sizeof(int32_t)), "mem_alloc");
    heap_ = static_cast<int32_t*>(memory);
  }
  ~Elements() {
    if (heap_ != nullptr) rank_.expect_ok(tutti_mem_free(heap_), "mem_free");
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  int32_t* data() { return heap_ != nullptr ? heap_ : own_.data(); }

 private:
  Rank& rank_;
  std::vector<int32_t> own_;
  int32_t* heap_ = nullptr;
};

/// One sum over all ranks whose elements all differ; the result is checked.
void sum(Rank& rank, int32_t* send, int32_t* recv, size_t count, int32_t turn) {
  for (size_t i = 0; i < count; ++i) send[i] = static_cast<int32_t>(i) * (rank.rank() + 1) + turn;
  rank.expect_ok(tutti_all_reduce(send, recv, count, TUTTI_INT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                 "sum");
  const int32_t ranks = rank.count();
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += recv[i] != static_cast<int32_t>(i) * (ranks * (ranks + 1) / 2) + ranks * turn;
  }
  rank.expect_true(wrong == 0, std::to_string(wrong) + " of " + std::to_string(count) + " wrong, turn " +
                                   std::to_string(turn));
}

// Goal: right results in the heap and elsewhere, in place and not, whatever the other ranks use.
TEST_P(DirectWritesApiTest, SumsAreRightWhereverTheBuffersLie) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          for (const size_t count : {size_t{1}, size_t{1000}, size_t{100'003}}) {
                            for (int who = 0; who < 3; ++who) {
                              // All in the heap; rank 0 not; none.
                              const bool in_heap = who == 0 || (who == 1 && rank.rank() != 0);
                              Elements send(rank, count, in_heap);
                              Elements recv(rank, count, in_heap);
                              for (int32_t turn = 0; turn < 3; ++turn) {
                                sum(rank, send.data(), recv.data(), count, turn);
                                sum(rank, recv.data(), recv.data(), count, turn);
                              }
                              // Nobody frees what a peer might still be sent to.
                              rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                            }
                          }
                        }),
            "");
}

// Goal: a rank whose memory is offered does not come back before no peer can write there any more.
TEST_P(DirectWritesApiTest, AFailedCallWithdrawsItsPostedReceives) {
  ClusterOptions with_deadline = options();
  with_deadline.config.timeout_ms = 300;
  EXPECT_EQ(run_cluster(with_deadline,
                        [](Rank& rank) {
                          constexpr size_t kCount = 50'000;
                          Elements buffer(rank, kCount, true);
                          sum(rank, buffer.data(), buffer.data(), kCount, 1);
                          if (rank.rank() == 0) {
                            rank.wait_value(0, static_cast<uint64_t>(rank.count()) - 1);
                            return;
                          }
                          const tutti_result_t result =
                              tutti_all_reduce(buffer.data(), buffer.data(), kCount, TUTTI_INT32, TUTTI_SUM,
                                               rank.comm, TUTTI_BLOCKING);
                          rank.expect(result, TUTTI_TIMEOUT, "without rank 0");
                          rank.add(0);
                        }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, DirectWritesApiTest,
                         testing::Values(processes(2), threads(3), mixed(4), processes(5), threads(9)),
                         [](const auto& tested) {
                           return layout_name(tested.param).substr(0, 1) + std::to_string(tested.index);
                         });

}  // namespace
}  // namespace tutti::test
