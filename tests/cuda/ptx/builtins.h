// Functions that a device's system provides: printf, assert, malloc and free in kernels.
#pragma once

#include <string>

#include "tests/cuda/ptx/machine.h"

namespace fake_cuda::ptx {

/// The handler of a call of a function without a body; null: there is no such function.
Handler find_builtin(const std::string& name);

}  // namespace fake_cuda::ptx
