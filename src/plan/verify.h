// Verify: one symbolic execution of all ranks' plans decides whether they are right.
//
// Plans have no wildcard waits (a Kahn network), so the outcome does not depend on scheduling: if one
// execution ends, all end, with the same values. Each chunk holds a hash-consed expression over
// (rank, input chunk); each message carries one. Checked, in this order:
//  - shape (plan/shape.h): ranks, chunk ranges, ends, one reading and one writing lane per link, limits,
//    buffers that a rank does not have;
//  - every send is met by a receive of the same chunk count, and nothing is left in a link at the end
//    (plan/graph.h);
//  - no deadlock with `slots_needed` slots per link, over four rounds, for chunks of S and S+1
//    slices, S = 1, 2, 4 (plan/slots.h);
//  - the post-condition of the collective: every output chunk holds exactly its operands, each
//    once, finished exactly once (kAvg); barrier: every rank's end depends on every rank's start; the input
//    is read only while it is the input (plan/symbolic.h);
//  - races: no chunk is read before it is written, or written while it may be read, judged by
//    happens-before over lane order and messages (never over credits); with `reference_ok` ends taken
//    as copies and as references (a referenced source chunk is read until the receiver's step is done and
//    must not be written until something that happens after it); out of place and in place; scratch over
//    rounds (plan/races.h);
//  - scratch inside its bound;
//  - the association of every reduction: `association` is what was found.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

struct VerifyOptions {
  /// Also prove the plan when send and receive buffers are the same memory (as tutti.h defines in place).
  bool in_place = true;
  /// Also prove it with every reference_ok end carried by reference.
  bool by_reference = true;
  /// Also prove it for blocks of different sizes: every step names the very block that its data belongs to.
  /// False: any block of the same index in its cut is as good.
  bool variable_counts = false;
};

/// `plans` holds one plan per rank, in rank order. Ok, or kInvalidArgument with the first defect: rank,
/// lane, step, what is wrong.
Status verify_plans(std::span<const Plan> plans, const VerifyOptions& options = {});

/// The association that the symbolic execution finds, with the sources of each step associated in the
/// canonical tree over their positions: kNone (nothing is reduced, or there is one rank), kAny or kCanonical;
/// for tests and tools. Errors: as verify_plans, out of place; races and slots are not looked at.
Result<PlanAssociation> find_association(std::span<const Plan> plans);

}  // namespace tutti
