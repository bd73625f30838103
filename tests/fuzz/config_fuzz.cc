// Fuzz target: the environment. Lines NAME=VALUE; whatever they say, the configuration is read or refused
// with the variable's name.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/config.h"
#include "tests/fuzz/environment_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), data_bytes);
  const auto config = tutti::read_config(tutti::test::EnvironmentLines(text));
  if (!config && config.status().text().find("TUTTI_") == std::string_view::npos) std::abort();
  return 0;
}
