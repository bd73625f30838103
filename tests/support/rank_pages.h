// RankPages: the ranks of one host, whose memory lies in one process: what each of them knows of the others,
// without a communicator.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "health/peers.h"
#include "transports/shm/memory.h"
#include "transports/shm/segment.h"

namespace tutti::test {

/// The ranks' segments, each with its Peers. Every rank is a thread of this process to the others.
class RankPages {
 public:
  explicit RankPages(SegmentShape shape) : shape_(shape) {
    for (uint32_t rank = 0; rank < shape.rank_count; ++rank) {
      auto memory = map_plain(shape.bytes());
      EXPECT_TRUE(memory.is_ok()) << memory.status().text();
      memory_.push_back(
          {.segment = std::make_shared<Segment>(std::move(*memory), shape), .same_process = true});
    }
    for (uint32_t rank = 0; rank < shape.rank_count; ++rank) {
      peers_.push_back(std::make_unique<Peers>(rank, shape.rank_count));
      peers_.back()->set_hosts(std::vector<uint32_t>(shape.rank_count, 0));
      peers_.back()->set_own_page(memory_[rank].segment->header());
      peers_.back()->set_memory(memory_);
    }
  }
  explicit RankPages(uint32_t rank_count)
      : RankPages(SegmentShape{.rank_count = rank_count, .slots = 8, .slot_bytes = 256}) {}

  const SegmentShape& shape() const { return shape_; }
  /// What that rank knows.
  Peers& of(uint32_t rank) { return *peers_[rank]; }
  SegmentHeader& header(uint32_t rank) { return memory_[rank].segment->header(); }
  StatusPage& status(uint32_t rank) { return header(rank).status; }
  /// As a rank does that looks whether `peer` can still come.
  void show_wait(uint32_t rank, uint32_t peer, uint32_t step) {
    StatusPage& page = status(rank);
    page.waits_for.store(peer + 1);
    page.step.store(step);
    page.beat.fetch_add(1);
  }

 private:
  SegmentShape shape_;
  std::vector<PeerSegment> memory_;
  std::vector<std::unique_ptr<Peers>> peers_;
};

}  // namespace tutti::test
