// Results that are stored straight into the receivers' buffers.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/operation.h"
#include "tests/engine/raw_links.h"

namespace tutti::test {
namespace {

constexpr uint64_t kCount = 2000;
constexpr uint64_t kCall = 7;
constexpr RingShape kShape{.slots = 16, .slot_bytes = 4096};

/// Two ranks of a direct two-shot all_reduce that may write directly, out of place, one turn each at a time.
class DirectWritesTest : public testing::Test {
 protected:
  DirectWritesTest() {
    const Request request{.collective = Collective::kAllReduce,
                          .rank_count = 2,
                          .block_bytes = kCount * sizeof(uint32_t),
                          .type = DataType::kUint32};
    const Algorithm* algorithm = find_algorithm(Collective::kAllReduce, "direct_two_shot");
    for (uint32_t rank = 0; rank < 2; ++rank) {
      input_[rank].assign(kCount, rank + 1);
      output_[rank].assign(kCount, 0);
      const Plan plan = algorithm->make(request, {.can_publish = false}, rank);
      operation_[rank] = Operation::bind(plan, Geometry::uniform(plan, request.block_bytes),
                                         {.type = DataType::kUint32,
                                          .reference_bytes = 1,
                                          .direct_writes = true,
                                          .slots = kShape.slots,
                                          .slot_bytes = kShape.slot_bytes},
                                         links_[rank]);
    }
  }

  void expose_buffer(uint32_t rank, uint64_t call) {
    store_shared(network_.exposed_buffer(rank).address, reinterpret_cast<uint64_t>(output_[rank].data()));
    store_shared(network_.exposed_buffer(rank).call, call);
  }
  void start() {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      operation_[rank]->start({.input = input_[rank].data(), .output = output_[rank].data(), .call = kCall},
                              1);
    }
  }
  /// Rank 0 shows its part of the input; rank 1 then reduces its chunk, the second, and shows the result.
  void reduce_on_rank_1() {
    EXPECT_EQ(operation_[0]->advance(1), Progress::kMoved);
    EXPECT_EQ(operation_[1]->advance(1), Progress::kMoved);
  }
  void finish() {
    for (const uint32_t rank : {0, 1, 0, 1}) last_[rank] = operation_[rank]->advance(1);
    EXPECT_EQ(last_[0], Progress::kDone);
    EXPECT_EQ(last_[1], Progress::kDone);
    EXPECT_EQ(output_[0], std::vector<uint32_t>(kCount, 3));
    EXPECT_EQ(output_[1], std::vector<uint32_t>(kCount, 3));
  }

  RawNetwork network_{kShape};
  RawLinks links_[2] = {RawLinks(network_, 0), RawLinks(network_, 1)};
  std::vector<uint32_t> input_[2];
  std::vector<uint32_t> output_[2];
  std::unique_ptr<Operation> operation_[2];
  Progress last_[2] = {};
};

TEST_F(DirectWritesTest, AResultLiesInTheReceiversBufferBeforeItsTurn) {
  expose_buffer(0, kCall);
  expose_buffer(1, kCall);
  start();
  reduce_on_rank_1();
  EXPECT_EQ(output_[0].back(), 3u);
  finish();
}

TEST_F(DirectWritesTest, ABufferOfAnotherCallIsLeftAlone) {
  expose_buffer(0, kCall - 1);
  start();
  reduce_on_rank_1();
  EXPECT_EQ(output_[0].back(), 0u);
  finish();
}

}  // namespace
}  // namespace tutti::test
