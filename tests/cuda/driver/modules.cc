// Libraries whose kernels come from PTX.
#include <cstdio>
#include <cstring>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/kernels.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/ptx/image.h"

namespace fake_cuda {
namespace {

CUresult refuse(const ptx::Unknown& unknown) {
  std::fprintf(stderr, "fake driver: %s\n", unknown.what());
  return CUDA_ERROR_INVALID_PTX;
}

struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;
};
struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
};
constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinMagic = 0xba55ed50;

}  // namespace

std::string copy_image(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, 1);
  // Text begins with a directive, a comment or a blank; tests load images of a byte or two.
  if (std::strchr("./\n \r\t", static_cast<int>(magic)) != nullptr) return static_cast<const char*>(image);
  std::memcpy(&magic, image, sizeof magic);
  if (magic == kWrapperMagic) {
    FatbinWrapper wrapper{};
    std::memcpy(&wrapper, image, sizeof wrapper);
    return copy_image(wrapper.data);
  }
  if (magic != kFatbinMagic) return {static_cast<const char*>(image), 4};
  FatbinHeader header{};
  std::memcpy(&header, image, sizeof header);
  return {static_cast<const char*>(image), header.header_bytes + header.bytes};
}

CUresult judge_image(const void* image) {
  try {
    switch (ptx::judge(image, settings().version, static_cast<uint32_t>(settings().capability))) {
      case ptx::Refusal::kLoads: return CUDA_SUCCESS;
      case ptx::Refusal::kImage: return CUDA_ERROR_INVALID_IMAGE;
      case ptx::Refusal::kNoCode: return CUDA_ERROR_NO_BINARY_FOR_GPU;
      case ptx::Refusal::kPtxVersion: return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
  } catch (const ptx::Unknown& unknown) {
    return refuse(unknown);
  }
  return CUDA_ERROR_INVALID_IMAGE;
}

CUresult find_text(Library& library) {
  if (library.text != nullptr) return CUDA_SUCCESS;
  try {
    const std::string ptx = ptx::find_ptx(library.image.c_str());
    library.text = std::make_shared<const ptx::ModuleText>(ptx::parse_module(ptx));
  } catch (const ptx::Unknown& unknown) {
    return refuse(unknown);
  }
  return CUDA_SUCCESS;
}

CUresult find_module(Library& library, Context& context, ptx::Module** module) {
  Library::Instance& instance = library.instances[&context];
  if (instance.module == nullptr) {
    if (const CUresult result = find_text(library); result != CUDA_SUCCESS) return result;
    AddressSpace& memory = machine().memory;
    const int device = context.device->number();
    const size_t bytes = ptx::Module::variable_bytes(*library.text, false);
    const size_t managed = ptx::Module::variable_bytes(*library.text, true);
    const Range* own = bytes > 0 ? memory.allocate(device, bytes, &context, Origin::kModule) : nullptr;
    const Range* both = managed > 0 ? memory.allocate_managed(device, managed, &context) : nullptr;
    if ((bytes > 0 && own == nullptr) || (managed > 0 && both == nullptr)) return CUDA_ERROR_OUT_OF_MEMORY;
    instance.variables = own != nullptr ? own->base : 0;
    instance.managed = both != nullptr ? both->base : 0;
    instance.module = std::make_unique<ptx::Module>(
        library.text, ptx::Module::Memory{.variables = instance.variables, .managed = instance.managed});
    memory.let_in_everywhere(true);
    try {
      instance.module->initialize();
    } catch (const ptx::Unknown& unknown) {
      memory.let_in_everywhere(false);
      return refuse(unknown);
    }
    memory.let_in_everywhere(false);
  }
  *module = instance.module.get();
  return CUDA_SUCCESS;
}

CUresult find_function(const Kernel& kernel, Context& context, const ptx::Function** function) {
  ptx::Module* module = nullptr;
  if (const CUresult result = find_module(*kernel.library, context, &module); result != CUDA_SUCCESS)
    return result;
  try {
    *function = module->find_kernel(kernel.name);
  } catch (const ptx::Unknown& unknown) {
    return refuse(unknown);
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

void release_instances(Library& library) {
  AddressSpace& memory = machine().memory;
  for (auto& [context, instance] : library.instances) {
    for (const uintptr_t base : {instance.variables, instance.managed}) {
      Range* range = base != 0 ? memory.find_base(base, {Origin::kModule, Origin::kManaged}) : nullptr;
      if (range != nullptr) memory.release(*range);
    }
  }
  library.instances.clear();
}

}  // namespace fake_cuda
