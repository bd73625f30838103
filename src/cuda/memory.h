// Memory that a rank owns: on its device, on the host for the device, and host memory lent to the device. For
// memory shared by processes see transports/p2p.
//
// Memory is taken and given back only at set-up. DeviceMemory and PinnedMemory then serve later owners
// (spare_memory.h). cuMemFree, cuMemHostUnregister and the like wait for the device: for ever, if its kernel
// waits for this rank.
#pragma once

#include <cstddef>
#include <utility>

#include "core/result.h"
#include "cuda/context.h"

namespace tutti::cuda {

class DeviceMemory {
 public:
  /// Not zeroed; may be larger. Errors: kOutOfMemory, kSystemError.
  static Result<DeviceMemory> allocate(const Context& context, size_t bytes);
  /// For memory that other processes open, and may use when this owner has gone: it is freed, which waits for
  /// the device, and serves nobody else.
  static Result<DeviceMemory> allocate_shared(const Context& context, size_t bytes);
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { reset(); }

  CUdeviceptr address() const { return address_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(address_);
  }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  const Context* context_ = nullptr;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
  bool is_shared_ = false;
};

/// Host memory from the driver, at one address for the host and all devices of the process.
class PinnedMemory {
 public:
  /// Zeroed; may be larger. Errors: kOutOfMemory, kSystemError.
  static Result<PinnedMemory> allocate(const Context& context, size_t bytes);
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory() { reset(); }

  template <class T>
  T* as() const {
    return static_cast<T*>(address_);
  }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  const Context* context_ = nullptr;
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

/// Host memory of another owner, such as a peer's mapped memory. Devices may access it, and it must stay
/// mapped, while this object lives.
class RegisteredMemory {
 public:
  /// Whole pages. Errors: kOutOfMemory, kUnsupported, kSystemError.
  static Result<RegisteredMemory> add(const Context& context, void* address, size_t bytes);
  RegisteredMemory() = default;
  RegisteredMemory(RegisteredMemory&& other) noexcept { *this = std::move(other); }
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  ~RegisteredMemory() { reset(); }

  void reset();

 private:
  const Context* context_ = nullptr;
  void* address_ = nullptr;
};

/// Copies between any two addresses of the process and waits; for set-up. Errors: kSystemError.
Status copy_now(const Context& context, void* target, const void* source, size_t bytes);
/// Fills device memory with one byte value and waits; for set-up. Errors: kSystemError.
Status fill_now(const Context& context, void* target, unsigned char value, size_t bytes);

}  // namespace tutti::cuda
