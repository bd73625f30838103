// Fuzz target: the launcher's environment, and addresses as users write them. Lines NAME=VALUE; whatever they
// say, the place is consistent or refused with a variable's name.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "bootstrap/launcher.h"
#include "net/endpoint.h"
#include "tests/fuzz/environment_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), data_bytes);
  const auto place = tutti::find_launch_context(tutti::test::EnvironmentLines(text));
  if (!place && place.status().text().find("environment") == std::string_view::npos) std::abort();
  if (place && *place && (*place)->rank >= (*place)->rank_count) std::abort();
  (void)tutti::first_host_of(text);
  const auto where = tutti::parse_host_port(text);
  if (where) {
    const auto again = tutti::parse_host_port(where->text());
    if (!again || *again != *where) std::abort();
  }
  return 0;
}
