// Verify: checks all ranks' plans by one symbolic execution.
//
// Plans have no wildcard waits (a Kahn network). So if one execution ends, all end with the same values.
// Chunks and messages hold hash-consed expressions over (rank, input chunk). The checks, in this order:
// - shape (plan/shape.h): ranks, chunk ranges, ends, limits, one reading and one writing lane per link, no
//   buffers that a rank does not have;
// - messages (plan/graph.h): each send meets a receive of the same chunk count, and no message is left over;
// - slots (plan/slots.h): no deadlock with `slots_needed` slots per link, over four rounds, for chunks of S
//   and S+1 slices, S = 1, 2, 4;
// - values (plan/symbolic.h): every output chunk holds exactly its operands, each once, finished exactly once
//   (kAvg). In a barrier every rank's end depends on every rank's start. No step reads the input after
//   something overwrites it;
// - races (plan/races.h): no step reads a chunk before it is written, or writes a chunk that another step may
//   read. Lanes and messages give the order, never credits. Checked with copies and with references, out of
//   place and in place, and for scratch over rounds. A referenced chunk is read until the receiver's step is
//   done;
// - scratch stays inside its bound;
// - `association` is the association found.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

struct VerifyOptions {
  /// Also check the plan with send and receive buffers in the same memory (in place, as tutti.h defines).
  bool in_place = true;
  /// Also check the plan with every reference_ok end sent by reference.
  bool by_reference = true;
  /// Also check the plan for blocks of different sizes: then every step must name the block of its data.
  /// In an all_to_all no numbering holds for all ranks, so every step must copy from or to one buffer. False:
  /// a step may name any block, at the same index in the block's cut.
  bool variable_counts = false;
};

/// `plans` holds one plan per rank, in rank order. Returns ok, or kInvalidArgument with the first error:
/// rank, lane, step, what is wrong.
Status verify_plans(std::span<const Plan> plans, const VerifyOptions& options = {});

/// The association that the symbolic execution finds: kNone (no reduction, or one rank), kAny or kCanonical.
/// The sources of each step count as associated in the canonical tree over their positions. For tests and
/// tools. Errors: as verify_plans, out of place, without the checks of races and slots.
Result<PlanAssociation> find_association(std::span<const Plan> plans);

}  // namespace tutti
