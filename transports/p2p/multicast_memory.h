// MulticastMemory: addresses that stand for one place in the memory of several devices, one rank a device
// (NVSwitch; engine/cuda/multimem.h says what kernels do with them).
//
// Set-up, in steps that every rank of the communicator ends before any begins the next: one rank creates the
// object, the others open it by its file; each adds its device; each binds memory of its own. Any failure is
// everybody's: what one rank has not bound, nobody can use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "cuda/context.h"
#include "transports/p2p/device_memory.h"

namespace tutti {

class MulticastMemory {
 public:
  /// An object for `device_count` devices that bind at least `bytes` each. All ranks state the same. Errors:
  /// kUnsupported: the device or its driver cannot; kOutOfMemory, kSystemError.
  static Result<MulticastMemory> create(const cuda::Context& context, uint32_t device_count, size_t bytes);
  /// The same one, from its creator's file, which may be closed afterwards.
  static Result<MulticastMemory> open(const cuda::Context& context, uint32_t device_count, size_t bytes,
                                      const FileDescriptor& file);
  MulticastMemory() = default;
  MulticastMemory(MulticastMemory&& other) noexcept { *this = std::move(other); }
  MulticastMemory& operator=(MulticastMemory&& other) noexcept;
  ~MulticastMemory() { reset(); }

  /// For the other ranks; open at the creator's until it binds.
  const FileDescriptor& file() const { return file_; }
  /// Adds the context's device, to which no other rank of the object may belong. Errors: kUnsupported,
  /// kSystemError.
  Status add_device();
  /// Takes memory of the device, not zeroed, and binds it, once all have added their devices. Errors:
  /// kOutOfMemory, kSystemError.
  Status bind();

  /// This device's memory.
  template <class T>
  T* own() const {
    return reinterpret_cast<T*>(own_.address());
  }
  /// All devices' memory; valid to use once all have bound.
  template <class T>
  T* all() const {
    return reinterpret_cast<T*>(all_.address());
  }
  size_t bytes() const { return bytes_; }
  /// Peers may go on: what is bound stays bound as long as any rank has the object.
  void reset();

 private:
  MulticastMemory(const cuda::Context& context, uint32_t device_count)
      : context_(&context), device_count_(device_count) {}
  Status find_size(size_t bytes);

  const cuda::Context* context_ = nullptr;
  uint32_t device_count_ = 0;
  size_t bytes_ = 0;
  CUmemGenericAllocationHandle object_ = 0;
  FileDescriptor file_;
  DeviceMapping own_;
  DeviceMapping all_;
};

}  // namespace tutti
