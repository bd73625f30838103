#include "cuda/library.h"

#include <array>
#include <string>

namespace tutti::cuda {

namespace {

/// Whether the driver does not understand the image, or has no code for the device.
bool refuses_image(CUresult answer) {
  switch (answer) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_INVALID_SOURCE: return true;
    default: return false;
  }
}

/// The driver's answer. A refused image is kUnsupported.
Status loaded(const Driver& driver, CUresult answer, const std::string& what) {
  const Status status = driver.check(answer, what);
  return refuses_image(answer) ? Status(Code::kUnsupported, std::string(status.text())) : status;
}

}  // namespace

Result<Library> Library::load(const Context& context, std::span<const std::byte> image) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  Library library;
  library.context_ = &context;
  const CUresult answer =
      driver.library_load_data(&library.handle_, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  const std::string what =
      format("cuLibraryLoadData(%zu bytes) for %s of compute capability %d.%d", image.size(),
             context.facts().name.c_str(), context.facts().compute_major, context.facts().compute_minor);
  TUTTI_TRY(loaded(driver, answer, what));
  return library;
}

Library& Library::operator=(Library&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    handle_ = std::exchange(other.handle_, nullptr);
  }
  return *this;
}

Result<Kernel> Library::kernel(const char* name) const {
  const Driver& driver = context_->driver();
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  CUkernel found = nullptr;
  TUTTI_TRY(loaded(driver, driver.library_get_kernel(&found, handle_, name),
                   format("cuLibraryGetKernel(%s)", name)));
  Kernel kernel;
  // Loads the kernel now, even with lazy CUDA_MODULE_LOADING.
  TUTTI_TRY(loaded(driver, driver.kernel_get_function(&kernel.function, found),
                   format("cuKernelGetFunction(%s)", name)));
  return kernel;
}

void Library::reset() {
  if (handle_ != nullptr) (void)context_->driver().library_unload(handle_);
  handle_ = nullptr;
}

Result<uint32_t> resident_blocks(const Context& context, const Kernel& kernel, uint32_t threads) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  int blocks = 0;
  TUTTI_TRY(driver.check(driver.occupancy(&blocks, kernel.function, static_cast<int>(threads), 0),
                         "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  return static_cast<uint32_t>(blocks) * context.facts().multiprocessors;
}

Status launch(const Context& context, const Kernel& kernel, const Grid& grid, CUstream stream,
              const void* argument) {
  const Driver& driver = context.driver();
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid.blocks;
  config.gridDimY = 1;
  config.gridDimZ = 1;
  config.blockDimX = grid.threads;
  config.blockDimY = 1;
  config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = grid.cooperative ? 1 : 0;
  std::array<void*, 1> arguments = {const_cast<void*>(argument)};
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  return driver.check(driver.launch_kernel(&config, kernel.function, arguments.data(), nullptr),
                      "cuLaunchKernelEx");
}

}  // namespace tutti::cuda
