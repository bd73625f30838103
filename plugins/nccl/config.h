// CommConfig: the values of an ncclConfig_t, read by NCCL's rules. The size and the version tell which fields
// the caller knows. Undefined fields keep their default. The environment overrides both.
#pragma once

#include <string>

#include "core/result.h"
#include "plugins/nccl/nccl.h"

namespace tutti::nccl {

/// The fields that have an effect.
struct CommConfig {
  bool blocking = true;
  std::string name;  ///< for messages; may be empty
};

/// `given` may be null: returns `defaults`. Errors: kInvalidArgument: not made by NCCL_CONFIG_INITIALIZER, or
/// a field out of range.
Result<CommConfig> read_comm_config(const ncclConfig_t* given, const CommConfig& defaults);

/// `given` may be null. No field has an effect. Errors: kInvalidArgument: not made by
/// NCCL_COLLCONFIG_INITIALIZER, a field out of range, or an algorithm that must be NCCL's. kUnsupported: an
/// event to record.
Status check_coll_config(const ncclCollConfig_t* given);

}  // namespace tutti::nccl
