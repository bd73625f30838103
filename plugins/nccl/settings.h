// Settings: the NCCL_* variables that this plugin uses, read once. docs/nccl.md lists them all.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/config.h"

namespace tutti::nccl {

/// NCCL_DEBUG: how much goes to the log. Each level includes the levels before it.
enum class LogLevel : int { kNone, kVersion, kWarn, kInfo };

struct Settings {
  LogLevel log_level = LogLevel::kNone;  ///< NCCL_DEBUG
  std::string log_file;                  ///< NCCL_DEBUG_FILE; %h: host, %p: process. Empty: standard output
  std::optional<bool> blocking;          ///< NCCL_COMM_BLOCKING; stronger than ncclConfig_t.blocking
  std::string comm_id;                   ///< NCCL_COMM_ID: host:port where rank 0 hands out the unique id
};

/// Ignores values without a meaning, as NCCL does.
Settings read_settings(const Environment& environment);

/// This process's settings, read at the first use and kept, because a C interface has no other place for
/// them.
const Settings& settings();

/// A variable that the plugin or tutti reads, for ncclParamBind and the other parameter calls.
struct Parameter {
  const char* name;
};
/// All of them, sorted by name.
std::span<const Parameter> parameters();
/// The variable's value when the process started; "" if unset.
std::string parameter_value(const Parameter& parameter);

}  // namespace tutti::nccl
