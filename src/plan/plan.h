// Plan: an algorithm as data. One rank's part of a collective is a list of steps. Each step reduces all its
// sources and writes the result to all its sinks.
//
// algorithms/ makes plans, plan/verify checks them, plan/price predicts their time, engine/ runs them. A plan
// holds no pointers, sockets or devices.
//
// Geometry. A buffer of a collective has one *block* (all_reduce, reduce, broadcast; the input of all_gather
// and gather; the output of reduce_scatter and scatter) or one block for each rank (all others). tutti.h says
// what block b means. A plan cuts every block into `chunks_per_block` chunks. A chunk's number is block *
// chunks_per_block + index. The engine turns chunks into bytes when a call is bound (engine/geometry.h).
//
// Execution. A message runs in rounds: a lane runs all its steps for round 0, then for round 1, and so on. In
// one round a step puts at most `slots` slices on a link, so a send completes when the receiver has released
// the previous round. Within a step, slices flow one by one. Only messages order the lanes of one rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"

namespace tutti {

/// Most sources and most sinks of a step. A larger fan-in takes several steps.
inline constexpr int kMaxStepSources = 8;
inline constexpr int kMaxStepSinks = 8;

/// What a step reads from or writes to.
enum class EndKind : uint8_t {
  kInput,   ///< chunks of the send buffer; source only
  kOutput,  ///< chunks of the receive buffer
  /// Chunks of the plan's scratch. A chunk of scratch holds one round of the largest chunk, and keeps its
  /// contents until a later round overwrites them.
  kScratch,
  kLink,  ///< the ordered path to (sink) or from (source) `peer` on `channel`
  /// Sink only: written once, read by every other rank of the communicator. Each reader has a kLink source
  /// with channel kPublishChannel and this rank as peer. Needs Facts::can_publish.
  kPublish,
  /// Source only, and the step's only source: the reduction, in unknown order, of what every rank (this rank
  /// too) has sent on a kLink sink with channel kCollectChannel and this rank as peer. The dual of kPublish.
  /// Needs Facts::can_multicast.
  kCollect,
};

/// Ordinary channels are 0..kPlanChannels-1. A plan has this many links for each pair of ranks.
inline constexpr uint32_t kPlanChannels = 4;
/// The channel of published messages.
inline constexpr uint8_t kPublishChannel = 255;
/// The channel of contributions to a kCollect. Only on this channel does a rank send to itself.
inline constexpr uint8_t kCollectChannel = 254;

struct End {
  EndKind kind = EndKind::kInput;
  /// On a link or publish sink, or on the only source of a step that copies from a buffer: the engine may
  /// send, on all such sinks of the step, a reference to the copied source, or to what the step writes to the
  /// receive buffer, never to scratch. The plan promises that nothing writes these chunks until something
  /// that happens after the receiver's step. On a link source the flag describes the arriving message and
  /// changes nothing.
  bool reference_ok = false;
  /// On a link or publish sink with reference_ok, of a step that also writes the receive buffer: the engine
  /// may store the result at the same chunks of the receivers' receive buffers. The plan promises that every
  /// receiver's step copies the message to these chunks, and that any other access to them there happens
  /// after the receiver's step or before this step.
  bool direct_write_ok = false;
  uint8_t channel = 0;       ///< links
  uint32_t peer = 0;         ///< links: the other rank
  uint32_t first_chunk = 0;  ///< buffers
  uint32_t chunk_count = 0;  ///< buffers: consecutive chunks; links: 0, the step's chunks travel

  friend bool operator==(const End&, const End&) = default;
};

/// Reduces all sources and writes the result to all sinks. All buffer ends of a step cover the same number of
/// chunks, with equal sizes in pairs. A step with only links (forwarding) names its data in first_chunk and
/// chunk_count.
struct Step {
  std::vector<End> sources;  ///< 1..kMaxStepSources; reduced left to right (kAny) or in the canonical tree
  std::vector<End> sinks;    ///< 1..kMaxStepSinks
  /// The chunks whose sizes the step's data has. Numbered as in the *geometry* buffer (Geometry::kLargest):
  /// the input for reduce_scatter, scatter and reduce, else the output. Always set. Example: a step that
  /// forwards rank 3's block in an all_gather names the chunks of block 3.
  uint32_t first_chunk = 0;
  uint32_t chunk_count = 0;
  /// The result is complete here, and kAvg divides. Exactly one step on the way to each output chunk
  /// finishes.
  bool finish = false;

  friend bool operator==(const Step&, const Step&) = default;
};

/// A sequence of steps. At most one lane of a plan reads a (peer, channel), and at most one lane writes it.
struct Lane {
  std::vector<Step> steps;

  friend bool operator==(const Lane&, const Lane&) = default;
};

/// How a plan associates the operands of a reduction. Must equal what the verifier finds.
enum class PlanAssociation : uint8_t {
  kNone,       ///< nothing is reduced
  kAny,        ///< correct, in the plan's own order
  kCanonical,  ///< the canonical tree over ranks: legal in reproducible mode
};

struct Plan {
  std::string algorithm;  ///< the name of the algorithm in the registry, e.g. "ring"
  Collective collective = Collective::kAllReduce;
  uint32_t rank_count = 1;
  uint32_t rank = 0;
  uint32_t root = 0;  ///< collectives with a root
  uint32_t chunks_per_block = 1;
  uint32_t scratch_chunks = 0;
  /// Fewest slots per link with which the plan makes progress, if one chunk of a round is one slot. A step of
  /// k chunks needs k slots.
  uint32_t slots_needed = 1;
  PlanAssociation association = PlanAssociation::kNone;
  std::vector<Lane> lanes;

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The request to an algorithm. Equal on all ranks.
struct Request {
  Collective collective = Collective::kAllReduce;
  uint32_t rank_count = 1;
  uint32_t root = 0;
  /// Bytes of the geometry buffer's block (all_reduce: the message; all_gather: one rank's part).
  uint64_t block_bytes = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool reproducible = false;
  bool in_place = false;
  /// Blocks may differ in size (all_gather_v, reduce_scatter_v, all_to_all_v). block_bytes is then the
  /// largest.
  bool variable_counts = false;
};

/// Facts about the communicator, equal on all ranks. On several hosts no rank can publish, and not every pair
/// can reference.
struct Facts {
  bool can_publish = true;  ///< every rank reads every other rank's published slots (one host)
  bool can_multicast =
      false;  ///< hardware stores to all ranks' memory at once, and reduces what it loads from it
  bool can_reference = false;  ///< every pair can load and store the call's buffers (threads, symmetric heap)
  uint32_t host_count = 1;
  /// Each rank's host, 0..host_count-1. Hosts are numbered in the order of their lowest ranks. Empty: one
  /// host, or the hosts are unknown. Borrowed: must outlive the facts.
  std::span<const uint32_t> host_of = {};
  bool are_containers = false;  ///< all hosts are parts of one machine, so no network joins them
  /// Groups of ranks that are near each other, from small groups (a cache, a NUMA node, a package) to large
  /// ones (hosts, hosts below one switch). Each level numbers its groups as host_of numbers hosts. Empty: not
  /// known, or there are none. Borrowed.
  std::span<const std::vector<uint32_t>> levels = {};
  /// All ranks from neighbour to neighbour, as rings, chains and trees visit them. More than one order, one
  /// after another: rings share the message, because each uses another network card. Empty: in rank order.
  /// Borrowed.
  std::span<const uint32_t> order = {};
  uint32_t cores = 1;  ///< cores that the ranks of a host share
  uint32_t slots = 8;  ///< slots a link has for one round
  uint64_t slot_bytes = 16384;
};

/// Facts::host_of from one label for each rank. Ranks with equal labels share a host. Rank 0 is on host 0.
std::vector<uint32_t> number_hosts(std::span<const uint64_t> labels);

/// Number of blocks in the send and receive buffers: 1 or rank_count.
uint32_t input_blocks(Collective collective, uint32_t rank_count);
uint32_t output_blocks(Collective collective, uint32_t rank_count);

}  // namespace tutti
