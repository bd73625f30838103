// Plan: an algorithm as data. One rank's part of a collective is a list of steps, each of which
// reduces all of its sources and writes the result to all of its sinks.
//
// Life: algorithms/ makes a Plan, plan/verify proves it together with the other ranks' plans, plan/price
// gives its predicted time, engine/ runs it. Every field is agreed or local to the rank; nothing here
// knows pointers, sockets or devices.
//
// Geometry. A collective's buffers consist of *blocks*: one block (all_reduce, reduce, broadcast; the
// input of all_gather and gather; the output of reduce_scatter and scatter) or one block a rank (the
// rest). A plan cuts every block into `chunks_per_block` chunks; a chunk is named by
// block * chunks_per_block + index. Block b of the input and block b of the output of a collective
// mean what tutti.h says. The engine turns chunks into bytes (plan/geometry.h) when a call is bound.
//
// Execution. A lane runs its steps in order for round 0, then for round 1, ...: a message is cut so
// that within one round no link carries more than `slots` slices a step, so a send of one round
// completes when the receiver has released the previous round. Within a step, slices flow one by one.
// Lanes of one rank are independent: any order between them is by messages alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"

namespace tutti {

/// Most sources and most sinks a step may have; larger fan-in is several steps.
inline constexpr int kMaxStepSources = 8;
inline constexpr int kMaxStepSinks = 8;

/// What a step reads from or writes to.
enum class EndKind : uint8_t {
  kInput,   ///< chunks of the send buffer; source only
  kOutput,  ///< chunks of the receive buffer
  /// Chunks of the plan's scratch. A chunk of scratch holds one round of the largest chunk: every round finds
  /// there what the one before it left.
  kScratch,
  kLink,  ///< the ordered path to (sink) or from (source) `peer` on `channel`
  /// Sink only: written once, read by every other rank of the communicator, each of which has a kLink source
  /// with channel kPublishChannel and this rank as peer. Needs Facts::can_publish.
  kPublish,
  /// Source only, and a step's only one: what every rank of the communicator, this one included, has sent on
  /// a kLink sink with channel kCollectChannel and this rank as peer, reduced in an order that nobody knows.
  /// The dual of kPublish. Needs Facts::can_multicast.
  kCollect,
};

/// Ordinary channels are 0..kPlanChannels-1: so many links has every pair of ranks for a plan.
inline constexpr uint32_t kPlanChannels = 4;
/// The channel of published messages.
inline constexpr uint8_t kPublishChannel = 255;
/// The channel of contributions to a kCollect; the one channel on which a rank sends to itself.
inline constexpr uint8_t kCollectChannel = 254;

struct End {
  EndKind kind = EndKind::kInput;
  /// On a link or publish sink, or on the one buffer source of a step that copies: the engine may send a
  /// reference instead of bytes, to that source or to what the step writes to the receive buffer (never to
  /// scratch). The plan promises that these chunks are not written until something that happens after the
  /// receiver's step. On a link source it says the same of what arrives, and changes nothing.
  bool reference_ok = false;
  /// On a link or publish sink that has reference_ok, of a step that also writes the receive buffer: the
  /// engine may also store the step's result straight into the receivers' receive buffers, at the chunks
  /// where the step writes it in its own. The plan promises that every receiver's step copies the message
  /// just there, and that whatever else touches these chunks of the receiver comes after that step, or before
  /// this one.
  bool direct_write_ok = false;
  uint8_t channel = 0;       ///< links
  uint32_t peer = 0;         ///< links: the other rank
  uint32_t first_chunk = 0;  ///< buffers
  uint32_t chunk_count = 0;  ///< buffers: consecutive chunks; links: 0, the step's chunks travel

  friend bool operator==(const End&, const End&) = default;
};

/// Reduce all sources, write the result to all sinks. All buffer ends of a step cover the same number
/// of chunks with pairwise equal sizes; a step whose ends are all links (forwarding) names them in
/// `chunks`.
struct Step {
  std::vector<End> sources;  ///< 1..kMaxStepSources; order matters: the association is left to right
  std::vector<End> sinks;    ///< 1..kMaxStepSinks
  /// The chunks whose sizes this step's data has, in the numbering of the *geometry* buffer
  /// (Geometry::kLargest: output for all_gather, gather, all_to_all, broadcast, all_reduce; input for
  /// reduce_scatter, scatter, reduce). Always set; for a step with buffer ends it is the chunk range
  /// of the data, e.g. for an all_gather forward of rank 3's block: that block's chunks.
  uint32_t first_chunk = 0;
  uint32_t chunk_count = 0;
  /// The result is complete here: kAvg divides. Exactly once on the way to each output chunk.
  bool finish = false;

  friend bool operator==(const Step&, const Step&) = default;
};

/// A sequence of steps. Every (peer, channel) is read by at most one lane and written by at most one
/// lane of a plan.
struct Lane {
  std::vector<Step> steps;

  friend bool operator==(const Lane&, const Lane&) = default;
};

/// How a plan associates the operands of a reduction; what the verifier has found must be this.
enum class PlanAssociation : uint8_t {
  kNone,       ///< nothing is reduced
  kAny,        ///< correct, but in an order of its own
  kCanonical,  ///< the canonical tree over ranks: legal in reproducible mode
};

struct Plan {
  std::string algorithm;  ///< e.g. "ring"; the entry of the registry that made it
  Collective collective = Collective::kAllReduce;
  uint32_t rank_count = 1;
  uint32_t rank = 0;
  uint32_t root = 0;  ///< collectives with a root
  uint32_t chunks_per_block = 1;
  uint32_t scratch_chunks = 0;
  /// Least number of slots per link with which the plan makes progress when a chunk of a round is one
  /// slot; a step of k chunks needs k.
  uint32_t slots_needed = 1;
  PlanAssociation association = PlanAssociation::kNone;
  std::vector<Lane> lanes;

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// What an algorithm is asked for; agreed by all ranks.
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
  /// Blocks may differ in size (all_gather_v, reduce_scatter_v, all_to_all_v); block_bytes is the largest.
  bool variable_counts = false;
};

/// Facts about the communicator that every rank knows and agrees on. On several hosts nobody can publish and
/// not every pair can reference.
struct Facts {
  bool can_publish = true;  ///< every rank reads every other rank's published slots (one host)
  bool can_multicast =
      false;  ///< hardware stores to all ranks' memory at once, and reduces what it loads from it
  bool can_reference = false;  ///< every pair can load and store the call's buffers (threads, symmetric heap)
  uint32_t host_count = 1;
  /// Each rank's host, 0..host_count-1, numbered in the order of their lowest rank; empty: one host, or it is
  /// not known who shares one. Borrowed: must outlive the facts.
  std::span<const uint32_t> host_of = {};
  uint32_t cores = 1;  ///< cores that the ranks of a host share
  uint32_t slots = 8;  ///< slots a link has for one round
  uint64_t slot_bytes = 16384;
};

/// Facts::host_of from one label a rank: ranks with equal labels share a host. Rank 0 is on host 0.
std::vector<uint32_t> number_hosts(std::span<const uint64_t> labels);

/// Blocks of the send and receive buffers: 1 or rank_count.
uint32_t input_blocks(Collective collective, uint32_t rank_count);
uint32_t output_blocks(Collective collective, uint32_t rank_count);

}  // namespace tutti
