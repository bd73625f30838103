// Loss: the errors for ranks that are lost. A loss is told also when memory is short: then its error does not
// name the rank.
#pragma once

#include <cstdint>

#include "core/result.h"

namespace tutti {

/// For a rank whose process has ended.
Status ended_status(uint32_t rank) noexcept;
/// For a rank on another host. `how`: how its connection ended.
Status hung_up_status(uint32_t rank, const Status& how) noexcept;
/// For a rank without a sign of life.
Status silent_status(uint32_t rank) noexcept;
/// The same, with the time and its cause.
Status silent_status(uint32_t rank, uint64_t silent_ns, const char* cause) noexcept;

}  // namespace tutti
