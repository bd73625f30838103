#include "engine/cuda/kernels.h"

// embed.py makes these symbols from nvcc's output.
extern "C" const std::byte tutti_cuda_image[];
extern "C" const std::byte tutti_cuda_image_end[];

namespace tutti::cuda {

std::span<const std::byte> kernel_image() {
  return {tutti_cuda_image, tutti_cuda_image_end};
}

}  // namespace tutti::cuda
