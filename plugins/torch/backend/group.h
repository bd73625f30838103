// Several calls of tutti as one operation.
#pragma once

#include <tutti/tutti.h>

namespace tutti_torch {

/// Runs `calls`, which returns a tutti_result_t, in a group.
template <class Calls>
tutti_result_t together(const Calls& calls) {
  tutti_result_t result = tutti_group_start();
  if (result != TUTTI_SUCCESS) return result;
  result = calls();
  const tutti_result_t ended = tutti_group_end();
  return result != TUTTI_SUCCESS ? result : ended;
}

}  // namespace tutti_torch
