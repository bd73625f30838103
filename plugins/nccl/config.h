// CommConfig: what an ncclConfig_t says, read by NCCL's rules: its size and version tell which fields the
// caller knows, undefined ones keep their default, the environment is stronger than both.
#pragma once

#include <string>

#include "core/result.h"
#include "plugins/nccl/nccl.h"

namespace tutti::nccl {

/// What has an effect.
struct CommConfig {
  bool blocking = true;
  std::string name;  ///< for messages; may be empty
};

/// `given` may be null: `defaults` then. Errors: kInvalidArgument: not made by NCCL_CONFIG_INITIALIZER, or a
/// field out of range.
Result<CommConfig> read_comm_config(const ncclConfig_t* given, const CommConfig& defaults);

}  // namespace tutti::nccl
