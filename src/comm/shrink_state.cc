#include "comm/shrink_state.h"

#include <algorithm>
#include <cstring>

namespace tutti {

uint64_t shrink_tag(const UniqueId& id) {
  uint64_t tag = 0;
  static_assert(sizeof(id.nonce) >= sizeof(tag));
  std::memcpy(&tag, id.nonce.data(), sizeof(tag));
  // 0 stands for no communicator.
  return std::max<uint64_t>(tag & ~uint64_t{3}, 4);
}

ShrinkStep shrink_step(uint64_t held, bool leads, std::span<const std::optional<ShrinkState>> others) {
  const auto is_through = [held](const std::optional<ShrinkState>& other) {
    return other == ShrinkState{ShrinkState::kThrough, held};
  };
  if (held != 0 && std::any_of(others.begin(), others.end(), is_through)) return ShrinkStep::kTake;
  const auto agrees = [](const std::optional<ShrinkState>& other) {
    return other && other->phase == ShrinkState::kAgreeing;
  };
  if (!std::all_of(others.begin(), others.end(), agrees)) return ShrinkStep::kWait;
  const bool all_hold_it =
      held != 0 && std::all_of(others.begin(), others.end(), [held](const std::optional<ShrinkState>& other) {
        return other->held == held;
      });
  if (all_hold_it) return ShrinkStep::kTake;
  return leads ? ShrinkStep::kDecide : ShrinkStep::kWait;
}

}  // namespace tutti
