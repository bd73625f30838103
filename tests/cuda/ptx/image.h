// PTX in what programs give the driver: a fat binary as nvcc makes it, plain or compressed, or PTX itself.
#pragma once

#include <string>

namespace fake_cuda::ptx {

/// The PTX for the newest architecture up to 9.0. Throws Unknown: there is none, or it cannot be unpacked.
std::string find_ptx(const void* image);

}  // namespace fake_cuda::ptx
