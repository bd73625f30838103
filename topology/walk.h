// Walk: plans and graph as the numbers that a simulation runs on: what each step moves, which message meets
// which receive, and the way of each message over the graph's links.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/result.h"
#include "plan/fold.h"
#include "topology/key_numbers.h"
#include "topology/routes.h"

namespace tutti::topology {

/// Something that serves one slice after the other: an arc of the graph, or the memory of a rank.
struct Server {
  uint32_t arc = UINT32_MAX;  ///< UINT32_MAX: a memory
  uint32_t rank = 0;          ///< of a memory
  double us_per_byte = 0;
  double latency_us = 0;
  bool is_cores_own = false;  ///< between one core and what all around it share
};

/// A server on a way. `factor`: how many slices of all hosts meet there at once.
struct Hop {
  uint32_t server = 0;
  float factor = 1;
};

struct WalkStep {
  uint64_t bytes = 0;
  uint32_t first_end =
      0;  ///< of the links in Walk::links_of_steps: first those it reads, then those it writes
  uint16_t reads = 0;
  uint16_t writes = 0;
  uint16_t chunks = 0;
  uint8_t memory_reads = 0;   ///< of the bytes: from the rank's memory
  uint8_t memory_writes = 0;  ///< to it, slots included
  uint8_t sources = 0;
  uint8_t buffer_reads = 0;  ///< of memory_reads: from the caller's buffers, which are long
  uint8_t buffer_writes = 0;
  uint8_t slot_writes = 0;  ///< of memory_writes: to slots inside a host; a slot that all read counts once
  uint32_t stripes = 1;     ///< that do the step at once
};

struct WalkLane {
  uint32_t rank = 0;
  uint32_t memory = 0;  ///< number of Walk::memory_to
  uint32_t first_step = 0;
  uint32_t step_count = 0;
};

/// A part of a way.
struct HopRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

/// Where the messages of one (sender, receiver, channel) go.
struct WalkLink {
  uint32_t writer = UINT32_MAX;  ///< lane
  uint32_t reader = UINT32_MAX;
  HopRange own;      ///< up to the network; inside a host the whole way
  HopRange between;  ///< switches of the network
  HopRange last;     ///< from the network to the receiver
  bool is_network = false;
  bool is_collected = false;  ///< the reader loads over it; the writer's message stays in the writer's memory
  /// Inside a host of the graph, between ranks that take their hosts for different ones.
  bool is_socket = false;
  double latency_us = 0;  ///< of all hops

  bool is_between_hosts() const { return is_network || is_socket; }
};

struct WalkOptions {
  uint32_t rank_count = 0;
  uint32_t ranks = 0;  ///< whose plans are added, from 0 on: all, or with a shift those of the first host
  std::optional<HostShift> shift;          ///< hosts are alike
  uint64_t block_bytes = 0;                ///< as in Request
  double stripe_bytes_per_us = 0;          ///< of a GPU's own memory, for each stripe; 0: ranks on cores
  uint32_t stripes = 1;                    ///< of the call
  uint32_t groups = 1;                     ///< of stripes: those of a group do the same at once
  bool by_reference = false;               ///< no copy into a slot where the plan allows a reference
  std::span<const uint32_t> places = {};   ///< as in SimulateOptions
  std::span<const uint32_t> host_of = {};  ///< as in SimulateOptions
};

class Walk {
 public:
  /// Of stripes. Two keep a ring's links busy, and four the links of direct plans.
  static constexpr uint32_t kGroupsMax = 4;

  /// `routes` is borrowed.
  Walk(Routes& routes, const WalkOptions& options);

  /// The next rank's plan. Errors: kInvalidArgument: nothing joins two ranks.
  Status add(const Plan& plan);
  /// All plans are there. Errors: kInvalidArgument: a send without a receive, or the reverse.
  Status finish() const;

  uint32_t rank_count() const { return options_.ranks; }
  /// Ranks that share a core have one number.
  uint32_t core_of(uint32_t rank) const { return position_of(rank); }
  std::span<const WalkLane> lanes() const { return lanes_; }
  std::span<const WalkStep> steps() const { return steps_; }
  std::span<const uint32_t> reads_of(const WalkStep& step) const {
    return std::span(ends_).subspan(step.first_end, step.reads);
  }
  std::span<const uint32_t> writes_of(const WalkStep& step) const {
    return std::span(ends_).subspan(step.first_end + step.reads, step.writes);
  }
  std::span<const WalkLink> links() const { return links_; }
  std::span<const Hop> hops_of(const HopRange& range) const {
    return std::span(hops_).subspan(range.first, range.count);
  }
  std::span<const Server> servers() const { return servers_; }
  /// The way from memory to a lane, and back; on a GPU the lane's blocks are one server.
  std::span<const Hop> memory_to(const WalkLane& lane) const { return memory_[lane.memory].to; }
  std::span<const Hop> memory_from(const WalkLane& lane) const { return memory_[lane.memory].from; }

  uint64_t largest_chunk_bytes() const { return largest_chunk_bytes_; }
  uint32_t slots_needed() const { return slots_needed_; }
  uint64_t network_bytes() const { return network_bytes_; }
  /// The server's name: "nvlink gpu0 - nvswitch", and that of all servers of its kind.
  std::string name_of(uint32_t server) const;
  std::string kind_of(uint32_t server) const;
  /// Whether these have one name.
  bool are_of_one_kind(uint32_t a, uint32_t b) const { return kinds_of(a) == kinds_of(b); }

 private:
  struct Memory {
    std::vector<Hop> to;
    std::vector<Hop> from;
  };

  /// Of a link and its ends; nothing: a memory.
  using Kinds = std::optional<std::tuple<LinkKind, NodeKind, NodeKind>>;
  Kinds kinds_of(uint32_t server) const;
  bool on_gpu() const { return options_.stripe_bytes_per_us > 0; }
  uint32_t position_of(uint32_t rank) const {
    return options_.places.empty() ? rank % static_cast<uint32_t>(routes_.ranks().size())
                                   : options_.places[rank];
  }
  uint32_t host_of(uint32_t rank) const { return routes_.host_of()[position_of(rank)]; }
  Status add_lane(const Plan& plan, const Lane& lane);
  Status add_step(const Plan& plan, const Step& step);
  Status add_ends(const Plan& plan, const Step& step, WalkStep& walked);
  uint64_t step_bytes(const Plan& plan, const Step& step) const;
  Result<uint32_t> link(uint32_t from, uint32_t to, uint8_t channel);
  Status add_collected(const Plan& plan, WalkStep& walked);
  Status find_way(uint32_t from, uint32_t to, uint8_t channel, WalkLink& link);
  double port_share(uint8_t channel, bool is_shared) const;
  Status find_network_way(uint32_t from, uint32_t to, WalkLink& link);
  bool find_end(bool is_out, uint32_t rank, HopRange& way);
  bool find_middle(uint32_t from, uint32_t to, WalkLink& link);
  bool find_folded_middle(uint32_t from, uint32_t to, WalkLink& link);
  uint32_t card_of(uint32_t rank) const;
  HopRange add_hops(std::span<const uint32_t> arcs);
  void add_latency(const HopRange& hops, WalkLink& link) const;
  uint32_t server_of(uint32_t arc);
  uint32_t stripes() const;
  void add_blocks();
  void add_memory(uint32_t rank);

  Routes& routes_;
  WalkOptions options_;
  uint32_t added_ = 0;
  uint32_t group_ = 0;  ///< of the lane that is being added
  std::vector<WalkLane> lanes_;
  std::vector<WalkStep> steps_;
  std::vector<uint32_t> ends_;
  std::vector<WalkLink> links_;
  std::vector<Hop> hops_;
  std::vector<Server> servers_;
  std::vector<Memory> memory_;
  std::vector<uint32_t> server_of_arc_;
  KeyNumbers link_of_key_;
  uint64_t largest_chunk_bytes_ = 0;
  uint32_t slots_needed_ = 1;
  uint64_t network_bytes_ = 0;

  // Ways between hosts share what lies between a rank and the network, and between two switches.
  std::vector<HopRange> out_of_;  ///< by place; no hops: not found yet
  std::vector<HopRange> in_to_;
  KeyNumbers number_of_switches_;  ///< of a pair, in middles_
  std::vector<HopRange> middles_;
  std::vector<uint32_t> server_of_kind_;  ///< folded: by kind of FoldedNetwork
};

}  // namespace tutti::topology
