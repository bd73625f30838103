// The library's kernels, compiled for devices and embedded.
#pragma once

#include <vector>

#include "cuda/kernel_image.h"

namespace tutti::cuda {

/// Runs the Programs of its one argument, a Launch.
inline constexpr const char* kRunKernel = "tutti_run";
/// The same for Programs of short calls.
inline constexpr const char* kShortKernel = "tutti_short";

/// Each holds all kernels.
std::vector<KernelImage> kernel_images();

}  // namespace tutti::cuda
