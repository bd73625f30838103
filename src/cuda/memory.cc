#include "cuda/memory.h"

#include <cstring>

namespace tutti::cuda {

Result<DeviceMemory> DeviceMemory::allocate(const Context& context, size_t bytes) {
  const auto piece = context.spare_memory().take(MemorySource::kDevice, bytes);
  TUTTI_TRY(piece.status());
  DeviceMemory memory;
  memory.context_ = &context;
  memory.address_ = piece->address;
  memory.bytes_ = piece->bytes;
  return memory;
}

Result<DeviceMemory> DeviceMemory::allocate_shared(const Context& context, size_t bytes) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  DeviceMemory memory;
  memory.context_ = &context;
  memory.is_shared_ = true;
  TUTTI_TRY(driver.check(driver.mem_alloc(&memory.address_, bytes),
                         format("cuMemAlloc(%zu bytes on device %d)", bytes, context.device())));
  memory.bytes_ = bytes;
  return memory;
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    address_ = std::exchange(other.address_, 0);
    bytes_ = std::exchange(other.bytes_, 0);
    is_shared_ = other.is_shared_;
  }
  return *this;
}

void DeviceMemory::reset() {
  if (address_ == 0) return;
  if (is_shared_) {
    const BesideCaptures beside(context_->driver());
    const CurrentContext current(*context_);
    (void)context_->driver().mem_free(address_);
  } else {
    context_->spare_memory().give_back(MemorySource::kDevice, {address_, bytes_});
  }
  address_ = 0;
  bytes_ = 0;
}

Result<PinnedMemory> PinnedMemory::allocate(const Context& context, size_t bytes) {
  const auto piece = context.spare_memory().take(MemorySource::kHost, bytes);
  TUTTI_TRY(piece.status());
  PinnedMemory memory;
  memory.context_ = &context;
  memory.address_ = reinterpret_cast<void*>(piece->address);
  memory.bytes_ = piece->bytes;
  std::memset(memory.address_, 0, memory.bytes_);
  return memory;
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    address_ = std::exchange(other.address_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void PinnedMemory::reset() {
  if (address_ == nullptr) return;
  context_->spare_memory().give_back(MemorySource::kHost, {reinterpret_cast<CUdeviceptr>(address_), bytes_});
  address_ = nullptr;
  bytes_ = 0;
}

Status copy_now(const Context& context, void* target, const void* source, size_t bytes) {
  return context.run_now("cuMemcpyAsync", [&](CUstream stream) {
    return context.driver().memcpy_async(reinterpret_cast<CUdeviceptr>(target),
                                         reinterpret_cast<CUdeviceptr>(source), bytes, stream);
  });
}

Status fill_now(const Context& context, void* target, unsigned char value, size_t bytes) {
  return context.run_now("cuMemsetD8Async", [&](CUstream stream) {
    return context.driver().memset_d8_async(reinterpret_cast<CUdeviceptr>(target), value, bytes, stream);
  });
}

}  // namespace tutti::cuda
