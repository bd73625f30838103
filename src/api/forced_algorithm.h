// Names the algorithm of a communicator while it lives, for the perf tools: algorithms that are compared on
// one communicator use the same links.
#pragma once

#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti {

/// From now on, calls that `name` supports run by it; null: by what the communicator was made with. Does not
/// communicate: every rank names the same algorithm between the same two calls. Waits for operations on host
/// streams. Errors: kInvalidArgument (no such algorithm); as check_ready; the communicator's error.
Status force_algorithm(tutti_comm_t* comm, const char* name);

}  // namespace tutti
