// Device memory that several ranks reach: in one process by pointer, from other processes of the host by
// handle.
//
// Tutti's own memory is shared as a file (VMM: cuMemCreate and a POSIX descriptor over a local socket). CUDA
// IPC serves devices without that, and a program's own cudaMalloc memory. Test a peer's memory before use
// (check_access): two devices may claim access and not have it, for instance behind an IOMMU.
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

/// Properties of memory that can be shared as a file.
CUmemAllocationProp shareable_memory(CUdevice device);

/// What another process needs to reach device memory. Plain bytes. A file, if any, is sent beside it.
struct DeviceMemoryHandle {
  enum Kind : uint32_t {
    kNone = 0,
    kFile = 1,  ///< a VMM allocation; needs the file
    kIpc = 2,   ///< memory of cuMemAlloc
  };
  uint32_t kind = kNone;
  uint32_t reserved = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  ///< of the memory within the allocation
  std::array<unsigned char, sizeof(CUipcMemHandle)> handle{};
};

/// Device addresses at which memory is mapped (VMM). The memory lives as long as a mapping of it.
class DeviceMapping {
 public:
  DeviceMapping() = default;
  DeviceMapping(DeviceMapping&& other) noexcept { *this = std::move(other); }
  DeviceMapping& operator=(DeviceMapping&& other) noexcept;
  ~DeviceMapping() { reset(); }

  /// Maps a whole allocation. The caller keeps the handle. Errors: kOutOfMemory, kSystemError; kUnsupported
  /// if the device cannot reach the memory.
  static Result<DeviceMapping> map(const cuda::Context& context, CUmemGenericAllocationHandle memory,
                                   size_t bytes);
  /// Lets another device of this process reach the memory. Errors: kUnsupported.
  Status let_in(const cuda::Context& other) const;
  CUdeviceptr address() const { return address_; }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  const cuda::Context* context_ = nullptr;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

class SharedDeviceMemory {
 public:
  /// Takes at least `bytes` in whole granules of 2 MiB. The first `zeroed_bytes` are zero. Errors:
  /// kOutOfMemory, kSystemError.
  static Result<SharedDeviceMemory> create(const cuda::Context& context, size_t bytes,
                                           size_t zeroed_bytes = SIZE_MAX);

  /// For other processes. Send `file` with it if the file is open.
  const DeviceMemoryHandle& handle() const { return handle_; }
  const FileDescriptor& file() const { return file_; }
  /// For ranks of this process on another device. Errors: kUnsupported if that device has no access.
  Status let_in(const cuda::Context& other) const;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(mapping_.address() != 0 ? mapping_.address() : plain_.address());
  }
  size_t bytes() const { return handle_.bytes; }
  const cuda::Context& context() const { return *context_; }

 private:
  const cuda::Context* context_ = nullptr;
  DeviceMapping mapping_;     ///< shared as a file
  cuda::DeviceMemory plain_;  ///< shared by CUDA IPC, where the device cannot share files
  FileDescriptor file_;
  DeviceMemoryHandle handle_;
};

class PeerDeviceMemory {
 public:
  /// Only kind kFile needs `file`, which may be closed afterwards. Errors: kUnsupported (the device has no
  /// access), kPeerLost (the peer's process has ended), kOutOfMemory, kSystemError.
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
  CUdeviceptr opened_ = 0;
  CUdeviceptr address_ = 0;
};

/// A CUDA IPC handle for the program's own memory, valid until the program frees it. Errors: kUnsupported for
/// other memory (VMM, managed, host).
Result<DeviceMemoryHandle> make_handle(const cuda::Context& context, const void* address, size_t bytes);

/// `file` is open for kind kFile.
struct DeviceShare {
  DeviceMemoryHandle handle;
  FileDescriptor file;
};

/// Like make_handle, and also for a VMM allocation that can be shared as a file. Existing mappings keep freed
/// memory. Errors: kUnsupported for other memory, or for several allocations.
Result<DeviceShare> share_memory(const cuda::Context& context, const void* address, size_t bytes);

inline constexpr size_t kCheckBytes = 256;

/// Checks that the context's device can write and read kCheckBytes at `area` in a peer's memory, by way of
/// `own` memory of as many bytes. Nobody else uses either meanwhile. The pattern is made from `seed`. Takes
/// and frees no memory: freeing could wait for another communicator's kernel, and that for this rank. Errors:
/// kUnsupported if the pattern does not come back; kSystemError.
Status check_access(const cuda::Context& context, void* area, void* own, uint64_t seed);

}  // namespace tutti
