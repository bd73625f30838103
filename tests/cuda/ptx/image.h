// PTX in what programs give the driver: a fat binary as nvcc makes it, plain or compressed, or PTX itself.
#pragma once

#include <cstdint>
#include <string>

namespace fake_cuda::ptx {

/// The PTX for the newest architecture up to 9.0. Throws Unknown: there is none, or it cannot be unpacked.
std::string find_ptx(const void* image);

/// Why a driver of a CUDA version does not load an image for a device. `capability`: without the dot.
enum class Refusal { kLoads, kImage, kNoCode, kPtxVersion };
/// Only fat binaries are judged.
Refusal judge(const void* image, int version, uint32_t capability);

}  // namespace fake_cuda::ptx
