// The library's kernels, compiled for devices and embedded.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::cuda {

/// Runs the Programs of its one argument, a Launch.
inline constexpr const char* kRunKernel = "tutti_run";
/// The same for Programs of short calls.
inline constexpr const char* kShortKernel = "tutti_short";

/// A fat binary with all kernels, for cuLibraryLoadData; empty: this build has no kernels.
std::span<const std::byte> kernel_image();

}  // namespace tutti::cuda
