// SummingRanks: the ranks of one process, whose sums a test polls in turns.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "comm/host_executor.h"
#include "tests/support/rank_pages.h"
#include "tests/support/sums.h"

namespace tutti::test {

/// Their links are rings of `shape`; nothing travels by reference.
class SummingRanks {
 public:
  explicit SummingRanks(const SegmentShape& shape) : shape_(shape) {
    heap_.reset(*SymmetricHeap::create(1 << 20));
    config_.reference_bytes = UINT64_MAX;
  }
  /// `cores`: that the ranks share.
  void make(uint32_t cores) {
    for (uint32_t rank = 0; rank < shape_.rank_count; ++rank) {
      executors_.push_back(std::make_unique<HostExecutor>(HostExecutorOptions{
          .peers = pages_.of(rank), .config = config_, .heap = *heap_, .shape = shape_, .cores = cores}));
    }
  }
  /// One call on all ranks. Its results are checked.
  void sum(uint64_t count, const char* algorithm) {
    const uint32_t ranks = shape_.rank_count;
    std::vector<Sum> numbers;
    std::vector<std::unique_ptr<BoundCall>> bound;
    for (uint32_t i = 0; i < ranks; ++i) {
      numbers.emplace_back(count, static_cast<int>(i));
      bound.push_back(bind_sum(*executors_[i], sum_of(count), ranks, false, algorithm));
      ASSERT_TRUE(executors_[i]->begin(*bound[i], numbers[i].call()));
    }
    std::vector<bool> done(ranks);
    for (int turn = 0; std::count(done.begin(), done.end(), true) < ranks; ++turn) {
      ASSERT_LT(turn, 1'000'000) << "a rank waits for ever";
      for (uint32_t i = 0; i < ranks; ++i) done[i] = done[i] || executors_[i]->poll() == Progress::kDone;
    }
    for (uint32_t i = 0; i < ranks; ++i) {
      EXPECT_TRUE(executors_[i]->finish(Progress::kDone));
      EXPECT_TRUE(numbers[i].is_right(static_cast<int>(ranks))) << count << " numbers, rank " << i;
    }
  }
  /// The memory of a rank's links.
  const Segment& segment(uint32_t rank) { return *pages_.of(0).memory()[rank].segment; }

 private:
  SegmentShape shape_;
  Config config_;
  std::unique_ptr<SymmetricHeap> heap_;
  RankPages pages_{shape_};
  std::vector<std::unique_ptr<HostExecutor>> executors_;
};

}  // namespace tutti::test
