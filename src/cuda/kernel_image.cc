#include "cuda/kernel_image.h"

#include <algorithm>

namespace tutti::cuda {
namespace {

std::string version_text(int version) {
  return format("CUDA %d.%d", version / 1000, version % 1000 / 10);
}

std::string capability_text(int capability) {
  return format("%d.%d", capability / 10, capability % 10);
}

/// Native code runs on devices of its generation, from its own architecture on; PTX on all later devices.
bool serves(const KernelImage& image, int capability) {
  return image.architecture <= capability && (image.is_ptx || image.architecture / 10 == capability / 10);
}

Result<LoadedKernels> load_image(const Context& context, const KernelImage& image,
                                 std::span<const char* const> names) {
  auto library = Library::load(context, image.bytes);
  TUTTI_TRY(library.status());
  LoadedKernels loaded{.library = std::move(*library), .kernels = {}, .architecture = image.architecture};
  for (const char* name : names) {
    // A driver that loads lazily looks at the image only now.
    const auto kernel = loaded.library.kernel(name);
    TUTTI_TRY(kernel.status());
    loaded.kernels.push_back(*kernel);
  }
  return loaded;
}

}  // namespace

std::vector<KernelImage> usable_images(std::span<const KernelImage> images, int compute_capability,
                                       int driver_version) {
  std::vector<KernelImage> usable;
  std::ranges::copy_if(images, std::back_inserter(usable), [&](const KernelImage& image) {
    return serves(image, compute_capability) && image.driver_version <= driver_version;
  });
  std::ranges::stable_sort(usable, [](const KernelImage& one, const KernelImage& other) {
    return one.is_ptx != other.is_ptx ? other.is_ptx : one.architecture > other.architecture;
  });
  return usable;
}

std::string describe_need(std::span<const KernelImage> images, const DeviceFacts& device,
                          int driver_version) {
  const int capability = 10 * device.compute_major + device.compute_minor;
  int needed = 0;
  int least = 0;
  for (const KernelImage& image : images) {
    if (least == 0 || image.architecture < least) least = image.architecture;
    if (serves(image, capability) && (needed == 0 || image.driver_version < needed))
      needed = image.driver_version;
  }
  const std::string what = device.name + " of compute capability " + capability_text(capability);
  if (needed == 0)
    return "this build's kernels need compute capability " + capability_text(least) +
           " or higher, and this is " + what;
  const std::string has = "this driver supports " + version_text(driver_version);
  if (needed > driver_version)
    return "this build's kernels need a driver for " + version_text(needed) + " or newer on " + what +
           ", and " + has + ": update NVIDIA's driver";
  return "the driver refuses this build's kernels on " + what + "; " + has + ", and " + version_text(needed) +
         " should do";
}

Result<LoadedKernels> load_kernels(const Context& context, std::span<const KernelImage> images,
                                   std::span<const char* const> names) {
  const DeviceFacts& device = context.facts();
  const int version = context.driver().version();
  std::string refusals;
  for (const KernelImage& image :
       usable_images(images, 10 * device.compute_major + device.compute_minor, version)) {
    auto loaded = load_image(context, image, names);
    if (loaded || loaded.status().code() != Code::kUnsupported) return loaded;
    refusals += format(" (%s for %s: ", image.is_ptx ? "PTX" : "native code",
                       capability_text(image.architecture).c_str()) +
                std::string(loaded.status().text()) + ")";
  }
  return Status(Code::kUnsupported, describe_need(images, device, version) + refusals);
}

}  // namespace tutti::cuda
