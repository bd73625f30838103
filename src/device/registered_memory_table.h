// RegisteredMemoryTable: device memory of this rank that its peers have mapped, and theirs mapped here
// (tutti_memory_register).
//
// A rank on another device or in another process cannot use an address. It gets a location: the number of the
// registered memory, equal on all ranks, and an offset (engine/cuda/program.h). A table per peer, in device
// memory, turns numbers into addresses here. It changes only while no operation of the rank is under way.
// Ranks on one device in one process need none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "device/device_rank.h"
#include "engine/cuda/program.h"
#include "transports/p2p/device_memory.h"

namespace tutti {

/// How this rank reaches a peer's memory.
struct RegistrationPath {
  enum Kind : uint8_t {
    kSameMemory,    ///< by address: same process and device
    kPointer,       ///< by address once peer access is on; memory with a file as kMemoryHandle
    kMemoryHandle,  ///< in another process
  };
  Kind kind = kSameMemory;
  const cuda::Context* context = nullptr;  ///< kPointer: of the peer's device
};

class RegisteredMemoryTable {
 public:
  explicit RegisteredMemoryTable(const cuda::Context& context) : context_(context) {}
  /// `ways`: by rank. Errors: kOutOfMemory, kSystemError.
  Status open(std::vector<RegistrationPath> ways);

  /// See DeviceRank.
  Result<OwnRegistration> offer(const void* address, uint64_t bytes) const;
  Status map(uint32_t number, uint32_t own, std::span<const RegistrationOffer> offers,
             std::span<const FileDescriptor> files);
  void unmap(uint32_t number);

  /// The table, in device memory, of the peer's registered memories by number; null: the peer sends
  /// addresses.
  const uint64_t* table(uint32_t peer) const;
  /// The part of the buffer in the registered memory of its first byte.
  Reach find(const void* buffer) const;

 private:
  struct RegisteredRange {
    uint32_t number = 0;
    uint64_t bytes = 0;
    std::vector<PeerDeviceMemory> mapped;  ///< memory of peers that need a mapping
  };

  Result<uint64_t> reach(uint32_t peer, const RegistrationOffer& offer, const FileDescriptor& file,
                         RegisteredRange& range) const;
  Status set(uint32_t peer, uint32_t number, uint64_t address) const;

  const cuda::Context& context_;
  std::vector<RegistrationPath> ways_;
  cuda::DeviceMemory tables_;                          ///< kRegisteredEnd addresses per rank
  std::map<uint64_t, RegisteredRange> registrations_;  ///< by address of this rank's part; no two overlap
};

}  // namespace tutti
