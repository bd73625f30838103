// Fuzz target: the environment. Lines NAME=VALUE; whatever they say, the configuration is read or refused
// with the variable's name.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "core/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  std::string_view rest(reinterpret_cast<const char*>(data), data_bytes);
  std::map<std::string, std::string, std::less<>> variables;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const size_t equals = line.find('=');
    if (equals != line.npos) variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  const auto config = tutti::read_config([&](const char* name) {
    const auto found = variables.find(std::string_view(name));
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  if (!config && config.status().text().find("TUTTI_") == std::string_view::npos) std::abort();
  return 0;
}
