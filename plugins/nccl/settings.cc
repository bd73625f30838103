#include "plugins/nccl/settings.h"

#include <strings.h>

#include <array>
#include <string_view>
#include <utility>

namespace tutti::nccl {
namespace {

// Sorted by name.
constexpr std::array<Parameter, 5> kParameters = {
    {{"NCCL_COMM_BLOCKING"}, {"NCCL_COMM_ID"}, {"NCCL_DEBUG"}, {"NCCL_DEBUG_FILE"}, {"NCCL_SOCKET_IFNAME"}}};

std::string text_of(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text == nullptr ? "" : text;
}

LogLevel log_level_of(const std::string& word) {
  constexpr std::array<std::pair<const char*, LogLevel>, 5> kLevels = {{{"VERSION", LogLevel::kVersion},
                                                                        {"WARN", LogLevel::kWarn},
                                                                        {"INFO", LogLevel::kInfo},
                                                                        {"ABORT", LogLevel::kInfo},
                                                                        {"TRACE", LogLevel::kInfo}}};
  for (const auto& [name, level] : kLevels) {
    if (strcasecmp(word.c_str(), name) == 0) return level;
  }
  return LogLevel::kNone;
}

}  // namespace

Settings read_settings(const Environment& environment) {
  Settings result;
  result.log_level = log_level_of(text_of(environment, "NCCL_DEBUG"));
  result.log_file = text_of(environment, "NCCL_DEBUG_FILE");
  const std::string blocking = text_of(environment, "NCCL_COMM_BLOCKING");
  if (blocking == "0" || blocking == "1") result.blocking = blocking == "1";
  result.comm_id = text_of(environment, "NCCL_COMM_ID");
  return result;
}

const Settings& settings() {
  // Never destroyed: a thread may call during exit.
  static const auto* read = new Settings(read_settings(process_environment()));
  return *read;
}

std::span<const Parameter> parameters() {
  return kParameters;
}

std::string parameter_value(const Parameter& parameter) {
  return text_of(process_environment(), parameter.name);
}

}  // namespace tutti::nccl
