// MulticastMemory: an address for the same offset in the memory of several devices, one rank per device
// (NVSwitch; for its use see engine/cuda/multimem.h).
//
// Set-up in four steps; all ranks finish one before the next: one rank creates the object; the others open it
// by its file; each adds its device; each binds its memory. It works only if all have bound.
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
  /// An object for `device_count` devices that bind at least `bytes` each. All ranks pass the same values.
  /// Errors: kUnsupported if the device or its driver cannot; kOutOfMemory, kSystemError.
  static Result<MulticastMemory> create(const cuda::Context& context, uint32_t device_count, size_t bytes);
  /// Opens the creator's object by its file. The file may be closed afterwards.
  static Result<MulticastMemory> open(const cuda::Context& context, uint32_t device_count, size_t bytes,
                                      const FileDescriptor& file);
  MulticastMemory() = default;
  MulticastMemory(MulticastMemory&& other) noexcept { *this = std::move(other); }
  MulticastMemory& operator=(MulticastMemory&& other) noexcept;
  ~MulticastMemory() { reset(); }

  /// For the other ranks. The creator's file is open until bind().
  const FileDescriptor& file() const { return file_; }
  /// Adds the context's device, which no other rank may add. Errors: kUnsupported, kSystemError.
  Status add_device();
  /// Binds memory of the device, not zeroed, after all ranks have added their devices. Errors: kOutOfMemory,
  /// kSystemError.
  Status bind();

  template <class T>
  T* own() const {
    return reinterpret_cast<T*>(own_.address());
  }
  /// Use it after all ranks have bound.
  template <class T>
  T* all() const {
    return reinterpret_cast<T*>(all_.address());
  }
  size_t bytes() const { return bytes_; }
  /// Peers may go on: bound memory stays bound while any rank has the object.
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
