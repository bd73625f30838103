// DeviceHeap: the device memory of a rank's programs.
//
// Programs come and go with the shapes of calls, but cuMemAlloc and cuMemFree may wait for the device. So the
// heap takes large pieces, and keeps and reuses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/result.h"
#include "cuda/context.h"
#include "cuda/memory.h"

namespace tutti {

class DeviceHeap {
 public:
  explicit DeviceHeap(const cuda::Context& context) : context_(context) {}
  /// Errors: kOutOfMemory, kSystemError.
  Status open();

  /// 256-byte aligned device memory. Errors: kOutOfMemory.
  Result<CUdeviceptr> take(uint64_t bytes);
  /// No launch may still use the memory.
  void give_back(CUdeviceptr address, uint64_t bytes);
  /// Memory of at least `bytes` that all programs of the rank use in turn. Earlier results stay valid.
  Result<unsigned char*> scratch(uint64_t bytes);
  /// Copies what `fill` writes to the device, and waits.
  Status upload(CUdeviceptr to, uint64_t bytes, const std::function<void(std::byte*)>& fill);
  /// Memory at one address for host and device; valid until the next call.
  Result<std::byte*> shared_scratch(uint64_t bytes);
  /// Has no work for long.
  const cuda::Stream& stream() const { return stream_; }

 private:
  static uint64_t rounded(uint64_t bytes);
  Status grow(uint64_t bytes);
  Result<std::byte*> pinned(std::vector<cuda::PinnedMemory>& pieces, uint64_t bytes);

  const cuda::Context& context_;
  cuda::Stream stream_;
  std::vector<cuda::DeviceMemory> pieces_;
  CUdeviceptr next_ = 0;  ///< unused part of the last piece
  uint64_t left_ = 0;
  std::multimap<uint64_t, CUdeviceptr> free_;  ///< by size
  std::vector<cuda::DeviceMemory> scratch_;    ///< the last one is the largest
  std::vector<cuda::PinnedMemory> staging_;    ///< as scratch_
  std::vector<cuda::PinnedMemory> shared_;     ///< as scratch_
};

}  // namespace tutti
