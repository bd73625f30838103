// ShrinkState: what a rank shows during a shrink, and what it does after seeing all others.
// docs/decisions/0016-shrink.md has the protocol and its invariants. A pure function:
// tests/sim/shrink_model_test.cc tries every order of events.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "bootstrap/unique_id.h"

namespace tutti {

struct ShrinkState {
  enum Phase : uint32_t {
    kAway = 0,       ///< in no shrink, or its shrink has failed
    kAgreeing = 1,   ///< looking for its next step
    kBootstrap = 2,  ///< follows a decision, and sets up the next communicator
    kThrough = 3,    ///< goes on in `held`, whatever happens to the others
  };

  Phase phase = kAway;
  /// Tag of the next communicator that this rank has ready; 0: none. All its members have set it up, but need
  /// not know that.
  uint64_t held = 0;

  uint64_t pack() const { return held | phase; }
  static ShrinkState unpack(uint64_t word) { return {static_cast<Phase>(word & 3), word & ~uint64_t{3}}; }
  friend bool operator==(const ShrinkState&, const ShrinkState&) = default;
};

/// 62 bits of the id's random nonce.
uint64_t shrink_tag(const UniqueId& id);

enum class ShrinkStep {
  kWait,    ///< for other ranks, or for the leader's decision
  kTake,    ///< go on in the held communicator: no live rank can do otherwise
  kDecide,  ///< the leader decides on a new communicator
};

/// The next step of an agreeing rank that holds `held`. `others`: the state of every other live, not excluded
/// rank since this rank began to agree; empty if not known yet.
ShrinkStep shrink_step(uint64_t held, bool leads, std::span<const std::optional<ShrinkState>> others);

}  // namespace tutti
