// Settings: the NCCL_* variables that mean something to this plugin, read once. docs/nccl.md lists them all.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/config.h"

namespace tutti::nccl {

/// NCCL_DEBUG: how much is written to the log; each level includes the ones before it.
enum class LogLevel : int { kNone, kVersion, kWarn, kInfo };

struct Settings {
  LogLevel log_level = LogLevel::kNone;  ///< NCCL_DEBUG
  std::string log_file;                  ///< NCCL_DEBUG_FILE; %h: host, %p: process. Empty: standard output
  std::optional<bool> blocking;          ///< NCCL_COMM_BLOCKING; stronger than ncclConfig_t.blocking
  std::string comm_id;                   ///< NCCL_COMM_ID: host:port where rank 0 hands out the unique id
};

/// Values that mean nothing are taken for absent, as NCCL takes them.
Settings read_settings(const Environment& environment);

/// This process's settings, read at the first use and kept: a C interface has nowhere else to keep them.
const Settings& settings();

/// A variable that the plugin or the library below it reads, for ncclParamBind and its kin.
struct Parameter {
  const char* name;
};
/// All of them, sorted by name.
std::span<const Parameter> parameters();
/// The value that the process was started with; "" where it is not set.
std::string parameter_value(const Parameter& parameter);

}  // namespace tutti::nccl
