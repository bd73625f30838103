// PriceGraph: the steps of a set of plans as numbers, for pricing: how long each takes, what waits for it.
//
// Ranks may be folded (plan/fold.h): then the steps of the first host stand for those of all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "plan/fold.h"
#include "plan/plan.h"
#include "plan/price.h"

namespace tutti {

class PriceGraph {
 public:
  enum class Way : uint8_t {
    kNone,  ///< the follower is the next step of the lane, or belongs to the same rank
    kLink,
    kNetwork,
  };
  struct Follower {
    uint32_t step = 0;
    Way way = Way::kNone;
  };

  /// `ranks`: those whose plans are added, from 0 on; all `rank_count`, or those of the first of equal hosts.
  /// `costs` is borrowed.
  PriceGraph(uint32_t rank_count, uint32_t ranks, uint64_t block_bytes, const Costs& costs,
             HostShift shift = HostShift::kAdd)
      : rank_count_(rank_count), ranks_(ranks), block_bytes_(block_bytes), costs_(costs), shift_(shift) {}

  /// The next rank's plan. Errors: kInvalidArgument: too many steps.
  Status add(const Plan& plan);
  /// All plans are there. Errors: kInvalidArgument: a send without a receive, or the reverse.
  Status finish();

  uint32_t rank_count() const { return ranks_; }
  uint32_t host_of(uint32_t rank) const { return costs_.host_of.empty() ? 0 : costs_.host_of[rank]; }
  size_t step_count() const { return steps_.size(); }
  uint32_t rank_of(uint32_t step) const { return steps_[step].rank; }
  double duration_us(uint32_t step) const { return steps_[step].duration_us; }
  /// Bytes of each message that the step sends.
  uint64_t message_bytes(uint32_t step) const { return steps_[step].bytes; }
  std::span<const Follower> followers(uint32_t step) const {
    return std::span(followers_)
        .subspan(followers_first_[step], followers_first_[step + 1] - followers_first_[step]);
  }
  /// By step: how many others it waits for.
  const std::vector<uint32_t>& waits() const { return waits_; }

  uint64_t link_bytes() const { return link_bytes_; }
  /// Bytes that the ranks send to other hosts.
  uint64_t network_bytes() const { return network_bytes_; }
  uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Step {
    uint32_t rank = 0;
    bool is_first = false;  ///< of its lane
    uint64_t bytes = 0;
    double duration_us = 0;
  };
  /// One end of a message. Those with equal keys meet in their order.
  struct MessageEnd {
    uint64_t key = 0;
    uint32_t step = 0;
    Way way = Way::kLink;
  };

  void add_step(const Plan& plan, const tutti::Step& step, bool is_first);
  uint32_t add_receives(uint32_t number, uint32_t rank, const tutti::Step& step);
  uint32_t add_sends(uint32_t number, uint32_t rank, const tutti::Step& step, uint64_t bytes);
  uint64_t key(uint32_t from, uint32_t to, uint8_t channel) const;
  static std::vector<uint32_t> by_key(const std::vector<MessageEnd>& ends);
  Way way(uint32_t from, uint32_t to) const;
  uint64_t step_bytes(const Plan& plan, const tutti::Step& step) const;

  uint32_t rank_count_;
  uint32_t ranks_;
  uint64_t block_bytes_;
  const Costs& costs_;
  HostShift shift_;
  uint32_t added_ = 0;
  std::vector<Step> steps_;
  std::vector<MessageEnd> sends_;
  std::vector<MessageEnd> receives_;
  std::vector<uint32_t> waits_;
  std::vector<Follower> followers_;
  std::vector<uint32_t> followers_first_;
  uint64_t link_bytes_ = 0;
  uint64_t network_bytes_ = 0;
  uint64_t memory_bytes_ = 0;
};

}  // namespace tutti
