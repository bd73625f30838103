// The wait of Transport::complete() for transports whose connections become usable while they make progress.
#pragma once

#include <cstddef>
#include <functional>

#include "core/result.h"
#include "transports/transport.h"

namespace tutti {

/// Waits until `greet` returns 0: it moves all connections, and returns how many are not usable yet. `late`
/// is the error at the deadline. Errors: those of `greet`, of `late`, and of the watch.
Status wait_for_set_up(Transport& transport, const SetUpWatch& watch,
                       const std::function<Result<size_t>()>& greet, const std::function<Status()>& late);

}  // namespace tutti
