#include "plugins/nccl/cuda_memory.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

namespace tutti::nccl {
namespace {

// From cuda.h: CU_POINTER_ATTRIBUTE_MEMORY_TYPE and ..._IS_MANAGED, CU_MEMORYTYPE_DEVICE.
constexpr int kMemoryType = 2;
constexpr int kIsManaged = 8;
constexpr unsigned kDevice = 2;

using PointerGetAttribute = int (*)(void* value, int attribute, uint64_t pointer);
std::atomic<PointerGetAttribute> pointer_get_attribute{nullptr};

bool is_device_memory(PointerGetAttribute ask, const void* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  unsigned type = 0;
  // On an error the driver does not know the address, so the memory is host memory.
  if (ask(&type, kMemoryType, address) != 0 || type != kDevice) return false;
  unsigned managed = 0;
  return ask(&managed, kIsManaged, address) != 0 || managed == 0;
}

}  // namespace

void look_for_cuda_driver() {
  if (pointer_get_attribute.load(std::memory_order_relaxed) != nullptr) return;
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return;
  // The handle is never closed: the driver must stay loaded while its function may be called.
  const auto found = reinterpret_cast<PointerGetAttribute>(dlsym(driver, "cuPointerGetAttribute"));
  pointer_get_attribute.store(found, std::memory_order_relaxed);
}

Status check_host_memory(const char* name, const void* pointer) {
  const PointerGetAttribute ask = pointer_get_attribute.load(std::memory_order_relaxed);
  if (ask == nullptr || pointer == nullptr) [[likely]]
    return Status::ok();
  if (!is_device_memory(ask, pointer)) return Status::ok();
  return {
      Code::kUnsupported,
      format("argument %s (%p) is CUDA device memory, but the rank works on host memory: no CUDA context was "
             "current when its communicator was made (cudaSetDevice makes one current)",
             name, pointer)};
}

}  // namespace tutti::nccl
