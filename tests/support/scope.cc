// Scope of a test run, from the environment that `./dev test full` sets, and from compiler flags.
#include "tests/support/scope.h"

#include <algorithm>
#include <string_view>

#include "core/config.h"

namespace tutti::test {

bool full_run() {
  const char* value = process_environment()("TUTTI_TEST_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

bool thread_sanitized() {
#if defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
  return __has_feature(thread_sanitizer);
#else
  return false;
#endif
}

bool sanitized() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(__has_feature)
  return __has_feature(address_sanitizer) || thread_sanitized();
#else
  return thread_sanitized();
#endif
}

uint32_t runs_of_scope(uint32_t usual, uint32_t full) {
  if (full_run()) return full;
  return sanitized() ? std::max(1u, usual / 4) : usual;
}

}  // namespace tutti::test
