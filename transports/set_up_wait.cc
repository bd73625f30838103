#include "transports/set_up_wait.h"

#include <poll.h>

#include <algorithm>
#include <vector>

#include "core/clock.h"

namespace tutti {

Status wait_for_set_up(Transport& transport, const SetUpWatch& watch,
                       const std::function<Result<size_t>()>& greet, const std::function<Status()>& late) {
  for (;;) {
    const auto waiting = greet();
    TUTTI_TRY(waiting.status());
    if (*waiting == 0) return Status::ok();
    const uint64_t now = now_ns();
    if (now >= watch.deadline_ns) return late();
    std::vector<pollfd> polls = {{.fd = watch.descriptor, .events = POLLIN, .revents = 0}};
    if (!transport.arm_wait(polls)) {
      const uint64_t left_ms = std::min<uint64_t>((watch.deadline_ns - now) / 1'000'000 + 1, 60'000);
      poll(polls.data(), polls.size(), static_cast<int>(left_ms));  // returning early does no harm
    }
    TUTTI_TRY(watch.check());
  }
}

}  // namespace tutti
