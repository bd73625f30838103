// The kernels of this library, compiled for devices and embedded.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::cuda {

/// Runs the Programs of a Launch, its one argument.
inline constexpr const char* kRunKernel = "tutti_run";
/// The same for Programs of short calls.
inline constexpr const char* kShortKernel = "tutti_short";

/// A fat binary with all kernels, as cuLibraryLoadData takes it; empty: this build has none.
std::span<const std::byte> kernel_image();

}  // namespace tutti::cuda
