// What the calls of the C API return, as a Status.
#pragma once

#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// Of the last call of this thread: its code and the library's text, after `what`.
inline Status check(tutti_result_t result, const char* what) {
  if (result == TUTTI_SUCCESS) return Status::ok();
  return Status(static_cast<Code>(result), format("%s: %s", what, tutti_last_error()));
}

}  // namespace tutti::perf
