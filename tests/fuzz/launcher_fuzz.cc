// Fuzz target: the launcher's environment, and addresses as users write them. Lines NAME=VALUE; whatever they
// say, the place is consistent or refused with a variable's name.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "meet/endpoint.h"
#include "meet/launcher.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), data_bytes);
  std::string_view rest = text;
  std::map<std::string, std::string, std::less<>> variables;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const size_t equals = line.find('=');
    if (equals != line.npos) variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  const auto place = tutti::find_launch_place([&](const char* name) {
    const auto found = variables.find(std::string_view(name));
    return found == variables.end() ? nullptr : found->second.c_str();
  });
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
