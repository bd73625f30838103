// Memory of a device that several ranks reach: in one process by pointer, from other processes of the host by
// a memory handle.
//
// What tutti allocates is shared by file (VMM: cuMemCreate and a POSIX descriptor, which travels over a local
// socket as that of a memfd does); where a device cannot do that, and for what a program has allocated itself
// with cudaMalloc, by a CUDA IPC handle. Whoever maps memory of a peer tests it before use (check_access): a
// pair of devices may claim access to each other and not have it, for instance where an IOMMU stands between
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "cuda/context.h"
#include "cuda/memory.h"

namespace tutti {

/// The kind of memory that can be shared by file.
CUmemAllocationProp shareable_memory(CUdevice device);

/// What another process needs to reach memory of a device. Plain bytes; a file, if there is one, travels
/// beside it.
struct DeviceMemoryHandle {
  enum Kind : uint32_t {
    kNone = 0,
    kFile = 1,  ///< a VMM allocation: needs the file
    kIpc = 2,   ///< memory of cuMemAlloc
  };
  uint32_t kind = kNone;
  uint32_t reserved = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  ///< of the memory in what the handle stands for
  std::array<unsigned char, sizeof(CUipcMemHandle)> handle{};
};

/// Addresses of a device at which memory is mapped (VMM). The memory lives as long as something maps it.
class DeviceMapping {
 public:
  DeviceMapping() = default;
  DeviceMapping(DeviceMapping&& other) noexcept { *this = std::move(other); }
  DeviceMapping& operator=(DeviceMapping&& other) noexcept;
  ~DeviceMapping() { reset(); }

  /// Maps an allocation whole, for the context's device. The handle stays the caller's. Errors: kOutOfMemory,
  /// kUnsupported: the device has no access to the memory's, kSystemError.
  static Result<DeviceMapping> map(const cuda::Context& context, CUmemGenericAllocationHandle memory,
                                   size_t bytes);
  /// Lets another device of this process reach it too. Errors: kUnsupported.
  Status let_in(const cuda::Context& other) const;
  CUdeviceptr address() const { return address_; }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  const cuda::Context* context_ = nullptr;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

/// Memory that this process allocates for sharing.
class SharedDeviceMemory {
 public:
  /// At least `bytes`, zeroed; whole granules of 2 MiB are taken. Errors: kOutOfMemory, kSystemError.
  static Result<SharedDeviceMemory> create(const cuda::Context& context, size_t bytes);

  /// For other processes; `file` goes with it where it is open.
  const DeviceMemoryHandle& handle() const { return handle_; }
  const FileDescriptor& file() const { return file_; }
  /// For ranks of this process on another device. Errors: kUnsupported: it has no access.
  Status let_in(const cuda::Context& other) const;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(mapping_.address() != 0 ? mapping_.address() : plain_.address());
  }
  size_t bytes() const { return handle_.bytes; }
  /// Of the device that it is memory of.
  const cuda::Context& context() const { return *context_; }

 private:
  const cuda::Context* context_ = nullptr;
  DeviceMapping mapping_;     ///< shared by file
  cuda::DeviceMemory plain_;  ///< where the device cannot: by CUDA IPC
  FileDescriptor file_;
  DeviceMemoryHandle handle_;
};

/// Memory of a device that another process has allocated.
class PeerDeviceMemory {
 public:
  /// `file` is looked at for a memory handle of kind kFile; it may be closed afterwards. Errors: kUnsupported
  /// (no access to that device, or not from this one), kPeerLost (its process has ended), kOutOfMemory,
  /// kSystemError.
  static Result<PeerDeviceMemory> open(const cuda::Context& context, const DeviceMemoryHandle& handle,
                                       const FileDescriptor& file);
  PeerDeviceMemory() = default;
  PeerDeviceMemory(PeerDeviceMemory&& other) noexcept { *this = std::move(other); }
  PeerDeviceMemory& operator=(PeerDeviceMemory&& other) noexcept;
  ~PeerDeviceMemory() { reset(); }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(address_);
  }
  void reset();

 private:
  const cuda::Context* context_ = nullptr;
  DeviceMapping mapping_;
  CUdeviceptr opened_ = 0;  ///< what CUDA IPC has opened
  CUdeviceptr address_ = 0;
};

/// A memory handle for [address, address + bytes) that the program has allocated itself, by CUDA IPC. It
/// opens only while the program has not freed the memory. Errors: kUnsupported: memory of another kind (VMM,
/// managed, host).
Result<DeviceMemoryHandle> make_handle(const cuda::Context& context, const void* address, size_t bytes);

/// A memory handle and, where its kind is kFile, the file that goes with it.
struct DeviceShare {
  DeviceMemoryHandle handle;
  FileDescriptor file;
};

/// The same for memory of a VMM allocation too, if it was made to be shared by file. That may be freed: who
/// has it mapped keeps it. Errors: kUnsupported: memory of another kind, or of several allocations.
Result<DeviceShare> share_memory(const cuda::Context& context, const void* address, size_t bytes);

inline constexpr size_t kCheckBytes = 256;

/// Shows that the context's device writes and reads the `kCheckBytes` at `area`, memory of a peer that nobody
/// else uses meanwhile: writes a pattern made of `seed`, reads it back. Errors: kUnsupported: what came back
/// is not what was written; kSystemError.
Status check_access(const cuda::Context& context, void* area, uint64_t seed);

}  // namespace tutti
