// Memory that a rank owns: of its device, of the host for its device, and the host's own memory lent to the
// device. Memory that ranks share across processes: transports/p2p.
//
// All of it is taken and given back at set-up, never in an operation: cuMemFree, cuMemFreeHost and the like
// wait for the device, and would wait for ever for a kernel that waits for this very rank.
#pragma once

#include <cstddef>
#include <utility>

#include "core/result.h"
#include "cuda/context.h"

namespace tutti::cuda {

/// Memory of a device.
class DeviceMemory {
 public:
  /// Not zeroed. Errors: kOutOfMemory, kSystemError.
  static Result<DeviceMemory> allocate(const Context& context, size_t bytes);
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
};

/// Host memory that the driver allocates, which every device of the process reaches at the same address.
class PinnedMemory {
 public:
  /// Zeroed. Errors: kOutOfMemory, kSystemError.
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

/// Host memory of somebody else's (mapped shared memory of a peer, say), which devices of the process may
/// reach while this lives; it must stay mapped for so long.
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

/// Copies between any two addresses of the process and waits for it; for set-up. Errors: kSystemError.
Status copy_now(const Context& context, void* target, const void* source, size_t bytes);
/// Fills device memory with one byte value and waits for it; for set-up. Errors: kSystemError.
Status fill_now(const Context& context, void* target, unsigned char value, size_t bytes);

}  // namespace tutti::cuda
