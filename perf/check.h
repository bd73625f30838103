// Turns results of the C API into a Status.
#pragma once

#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// The result of this thread's last call: its code, and `what` followed by the library's text.
inline Status check(tutti_result_t result, const char* what) {
  if (result == TUTTI_SUCCESS) return Status::ok();
  return Status(static_cast<Code>(result), format("%s: %s", what, tutti_last_error()));
}

}  // namespace tutti::perf
