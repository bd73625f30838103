// Scope of a test run, from the environment that `./dev test full` sets.
#include "tests/support/scope.h"

#include <string_view>

#include "core/config.h"

namespace tutti::test {

bool full_run() {
  const char* value = process_environment()("TUTTI_TEST_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace tutti::test
