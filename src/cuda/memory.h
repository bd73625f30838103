// Memory that a rank owns: on its device, and on the host for the device. For memory shared by processes see
// transports/p2p.
//
// Memory is taken and given back only at set-up, and then serves later owners (spare_memory.h).
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

/// Copies between any two addresses of the process and waits; for set-up. Errors: kSystemError.
Status copy_now(const Context& context, void* target, const void* source, size_t bytes);
/// Fills device memory with one byte value and waits; for set-up. Errors: kSystemError.
Status fill_now(const Context& context, void* target, unsigned char value, size_t bytes);

}  // namespace tutti::cuda
