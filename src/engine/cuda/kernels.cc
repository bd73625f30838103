#include "engine/cuda/kernels.h"

namespace tutti::cuda {
namespace {

/// An image in the table that embed.py makes. `offset` counts from the table on, so that no address has to be
/// relocated.
struct EmbeddedImage {
  uint32_t is_ptx;
  uint32_t architecture;
  uint32_t driver_version;
  uint32_t zero;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(EmbeddedImage) == 32);

}  // namespace

extern "C" const EmbeddedImage tutti_cuda_images[];
extern "C" const uint64_t tutti_cuda_image_count;

std::vector<KernelImage> kernel_images() {
  const auto* const base = reinterpret_cast<const std::byte*>(tutti_cuda_images);
  std::vector<KernelImage> images;
  for (const EmbeddedImage& image : std::span(tutti_cuda_images, tutti_cuda_image_count)) {
    images.push_back({.is_ptx = image.is_ptx != 0,
                      .architecture = static_cast<int>(image.architecture),
                      .driver_version = static_cast<int>(image.driver_version),
                      .bytes = {base + image.offset, image.bytes}});
  }
  return images;
}

}  // namespace tutti::cuda
