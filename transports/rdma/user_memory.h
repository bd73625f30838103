// UserMemory: the buffers that the user has registered, known to every device of the rank. Messages out of
// them are sent from where they lie, and peers may write posted receives there.
//
// They are registered at once: the user has asked for it, and no call pays for it later. They do not count in
// the budget for slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "transports/rdma/device.h"

namespace tutti::rdma {

class UserMemory {
 public:
  /// Registers memory with `devices`. Returns a number above 0. Errors: kOutOfMemory (the limit of locked
  /// memory), kSystemError; then nothing is registered.
  Result<uint64_t> add(const Verbs& verbs, std::span<std::byte> memory,
                       const std::vector<const Device*>& devices);
  void remove(uint64_t number);

  /// The registration of a buffer that holds all these bytes; null: there is none. Valid until its remove().
  const Region* find(const Device& device, const std::byte* address, size_t bytes) const;
  bool is_empty() const { return buffers_.empty(); }

 private:
  struct Buffer {
    uint64_t number = 0;
    const std::byte* address = nullptr;
    size_t bytes = 0;
    std::vector<std::pair<const Device*, Region>> regions = {};
  };

  std::vector<Buffer> buffers_;
  uint64_t last_number_ = 0;
};

}  // namespace tutti::rdma
