// KernelImage: one of the forms in which this binary holds its kernels: native code for a kind of device, or
// PTX, which the driver translates. load_kernels picks the best that device and driver run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "cuda/context.h"
#include "cuda/library.h"

namespace tutti::cuda {

struct KernelImage {
  bool is_ptx = false;
  int architecture = 0;    ///< compute capability without the dot: 90 is 9.0
  int driver_version = 0;  ///< that a driver must support, in CUDA's notation
  std::span<const std::byte> bytes;
};

/// Those that the device and a driver of this version run, best first: native code before PTX, and the newer
/// architecture before the older. A pure function.
std::vector<KernelImage> usable_images(std::span<const KernelImage> images, int compute_capability,
                                       int driver_version);

/// What keeps the device from running the images, and what would run them. A pure function.
std::string describe_need(std::span<const KernelImage> images, const DeviceFacts& device, int driver_version);

struct LoadedKernels {
  Library library;
  std::vector<Kernel> kernels;  ///< by name
  int architecture = 0;         ///< of the image
};

/// Loads all kernels of the best image. An image that the driver refuses makes room for the next. Errors:
/// kUnsupported: no image is left; kOutOfMemory, kSystemError.
Result<LoadedKernels> load_kernels(const Context& context, std::span<const KernelImage> images,
                                   std::span<const char* const> names);

}  // namespace tutti::cuda
