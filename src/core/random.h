// Random bytes of the kernel. They may be secrets.
#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"

namespace tutti {

/// Errors: kSystemError. std::random_device throws instead.
Status fill_random(std::span<std::byte> bytes);

}  // namespace tutti
