#include "plugins/nccl/device.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "transports/p2p/device_memory.h"

namespace tutti::nccl {
namespace {

/// The driver, and the memory allocated through it. Never destroyed: a thread may call during exit.
struct Used {
  std::mutex mutex;
  std::unique_ptr<const cuda::Driver> driver;  ///< null: the process does not use CUDA yet
  std::map<int, std::unique_ptr<cuda::Context>> contexts;
  std::map<void*, SharedDeviceMemory> memory;
};

Used& used() {
  static auto* const kOnly = new Used;
  return *kOnly;
}

/// Null while the process does not use CUDA.
const cuda::Driver* driver() {
  Used& all = used();
  const std::scoped_lock lock(all.mutex);
  if (all.driver == nullptr) {
    auto found = cuda::Driver::find_in_use();
    if (found) all.driver = std::move(*found);
  }
  return all.driver.get();
}

/// The device's context, which is never released.
Result<const cuda::Context*> context_of(const cuda::Driver& driver, int device) {
  Used& all = used();
  const std::scoped_lock lock(all.mutex);
  std::unique_ptr<cuda::Context>& context = all.contexts[device];
  if (context == nullptr) {
    auto retained = cuda::Context::retain(driver, device);
    TUTTI_TRY(retained.status());
    context = std::move(*retained);
  }
  return context.get();
}

}  // namespace

int current_device() {
  const cuda::Driver* const in_use = driver();
  if (in_use == nullptr || in_use->device_count() == 0) return kHostMemory;
  const int current = in_use->current_device();
  // A thread that has chosen no device has device 0, as in the CUDA runtime (cudaGetDevice).
  return current >= 0 ? current : 0;
}

int device_count() {
  const cuda::Driver* const in_use = driver();
  return in_use != nullptr ? in_use->device_count() : 0;
}

Result<void*> allocate_on_device(int device, size_t bytes) {
  const cuda::Driver* const in_use = driver();
  if (in_use == nullptr) return Status(Code::kUnsupported, "the process uses no CUDA device");
  const auto context = context_of(*in_use, device);
  TUTTI_TRY(context.status());
  auto memory = SharedDeviceMemory::create(**context, bytes);
  TUTTI_TRY(memory.status());
  void* const address = memory->as<void>();
  Used& all = used();
  const std::scoped_lock lock(all.mutex);
  all.memory.emplace(address, std::move(*memory));
  return address;
}

bool free_on_device(void* pointer) {
  Used& all = used();
  decltype(all.memory)::node_type freed;
  const std::scoped_lock lock(all.mutex);
  // The lock is released first: freeing legacy memory waits for the device, which may wait for a rank whose
  // thread wants the lock.
  freed = all.memory.extract(pointer);
  return !freed.empty();
}

}  // namespace tutti::nccl
