#include "health/loss.h"

#include <string>

#include "health/heartbeat_clock.h"

namespace tutti {
namespace {

// For a loss when memory is short. Made when the library is loaded, and never destroyed.
const auto* const kEnded =
    new Status(Code::kPeerLost,
               "the process of a rank has ended: shrink the communicator to go on without it, or abort it");
const auto* const kSilent =
    new Status(Code::kPeerLost,
               "a rank has given no sign of life: its process is stopped, or its host cannot be reached");

}  // namespace

Status ended_status(uint32_t rank) noexcept {
  return made_or(*kEnded, [rank] {
    return Status(
        Code::kPeerLost,
        format("the process of rank %u has ended: shrink the communicator to go on without it, or abort it",
               rank));
  });
}

Status hung_up_status(uint32_t rank, const Status& how) noexcept {
  return made_or(*kEnded, [&] {
    return Status(Code::kPeerLost, format("the process of rank %u has ended, or its host is gone (%s)", rank,
                                          std::string(how.text()).c_str()));
  });
}

Status silent_status(uint32_t rank) noexcept {
  return made_or(*kSilent, [rank] {
    return Status(
        Code::kPeerLost,
        format("rank %u has given no sign of life: its process is stopped, or its host cannot be reached",
               rank));
  });
}

Status silent_status(uint32_t rank, uint64_t silent_ns, const char* cause) noexcept {
  return made_or(*kSilent, [&] {
    return Status(Code::kPeerLost, format("rank %u has given no sign of life for %.1f s: %s", rank,
                                          HeartbeatClock::seconds(silent_ns), cause));
  });
}

}  // namespace tutti
