// ShrinkState: what a rank shows the others while they look for a next communicator, and what follows for a
// rank that has looked at all of them. docs/decisions/0016-shrink.md has the protocol and its invariants.
//
// Pure: tests/sim/shrink_model_test.cc tries every order of events with it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "bootstrap/unique_id.h"

namespace tutti {

struct ShrinkState {
  enum Phase : uint32_t {
    kAway = 0,      ///< in no shrink, or out of one that has failed
    kAgreeing = 1,  ///< it looks for what to do next
    kMeeting = 2,   ///< it has followed a decision, and sets the next communicator up
    kThrough = 3,   ///< it goes on in `held`, whatever becomes of the others
  };

  Phase phase = kAway;
  /// The next communicator that it has ready, by its tag; 0: none. Whoever has one knows that all its members
  /// have set up theirs, though not that they know.
  uint64_t held = 0;

  uint64_t pack() const { return held | phase; }
  static ShrinkState unpack(uint64_t word) { return {static_cast<Phase>(word & 3), word & ~uint64_t{3}}; }
  friend bool operator==(const ShrinkState&, const ShrinkState&) = default;
};

/// The tag of the communicator that is met under an id: 62 bits of its nonce, which is random.
uint64_t shrink_tag(const UniqueId& id);

enum class ShrinkStep {
  kWait,    ///< for report of the others, or for the decision of the rank that leads
  kTake,    ///< go on in the held communicator: nobody who lives can ever do otherwise
  kDecide,  ///< who leads decides on a new one
};

/// What a rank that agrees may do. `held`: its own. `others`: every other rank that lives and is not
/// excluded, each as it was at some moment since this rank began to agree; none where that is not known yet.
ShrinkStep shrink_step(uint64_t held, bool leads, std::span<const std::optional<ShrinkState>> others);

}  // namespace tutti
