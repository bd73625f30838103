// SpareMemory: memory of a context that its owners gave back, for later owners.
//
// cuMemFree, cuMemFreeHost and cuMemHostUnregister wait for the device. A kernel there may wait for the very
// thread that frees: one communicator is destroyed while an operation of another waits for a peer. So memory
// is freed only when the context has no owner left, and so no kernel of the library, or when memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/result.h"
#include "cuda/driver.h"

namespace tutti::cuda {

class Context;

enum class MemorySource : uint8_t { kDevice, kHost };

/// Memory of cuMemAlloc or cuMemHostAlloc.
struct MemoryPiece {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};

/// Host memory that devices may access. `owner` frees the memory, once nobody else shares it.
struct LentMemory {
  std::byte* address = nullptr;
  size_t bytes = 0;
  std::shared_ptr<void> owner = {};
};

class SpareMemory {
 public:
  explicit SpareMemory(const Context& context) : context_(context) {}
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;
  /// Frees what is left. No owner is.
  ~SpareMemory() { free_all(); }

  // Any thread:

  /// At least `bytes`, of any content. Host memory has one address for the host and all devices. Errors:
  /// kOutOfMemory, kSystemError.
  Result<MemoryPiece> take(MemorySource source, size_t bytes);
  /// Nothing uses the piece any more. Only the last owner's call may wait for the device.
  void give_back(MemorySource source, MemoryPiece piece);

  /// Lends whole pages to the devices of the process. Errors: kOutOfMemory, kUnsupported, kSystemError.
  Status lend(const LentMemory& memory);
  /// Memory of at least `bytes` that was lent and given back.
  std::optional<LentMemory> find_lent(size_t bytes);
  /// As above.
  void give_back(LentMemory memory);

 private:
  using Pieces = std::multimap<size_t, CUdeviceptr>;  ///< by size

  Pieces& pieces(MemorySource source) { return source == MemorySource::kDevice ? device_ : host_; }
  CUdeviceptr find(MemorySource source, size_t& bytes);
  void release_owner();
  CUresult allocate(MemorySource source, size_t bytes, CUdeviceptr& address) const;
  void free_all();

  const Context& context_;
  std::mutex mutex_;  ///< guards the fields below
  size_t owned_ = 0;  ///< pieces with an owner
  Pieces device_;
  Pieces host_;
  std::vector<LentMemory> lent_;
};

}  // namespace tutti::cuda
