// RegisteredMemoryTable: memory of a rank's device that its peers have mapped, and what of theirs this rank
// has (tutti_memory_register).
//
// A rank on another device or in another process cannot follow an address, so it is told a place: the number
// of a region, which all ranks know it by, and an offset (engine/cuda/program.h). Where a peer's regions
// begin here stands in a table in device memory, one a peer, which only changes while no operation of the
// rank is under way. Ranks of one process and device need none of it.
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

/// How a rank reaches a peer's memory.
struct RegistrationPath {
  enum Kind : uint8_t {
    kSameMemory,    ///< by address: one process and device
    kPointer,       ///< by address, once its device lets this one in; what has a file as below
    kMemoryHandle,  ///< another process
  };
  Kind kind = kSameMemory;
  const cuda::Context* context = nullptr;  ///< kPointer: of the peer's device
};

class RegisteredMemoryTable {
 public:
  explicit RegisteredMemoryTable(const cuda::Context& context) : context_(context) {}
  /// `ways`: by rank. Errors: kOutOfMemory, kSystemError.
  Status open(std::vector<RegistrationPath> ways);

  /// As DeviceRank.
  Result<OwnRegistration> offer(const void* address, uint64_t bytes) const;
  Status map(uint32_t number, uint32_t own, std::span<const RegistrationOffer> offers,
             std::span<const FileDescriptor> files);
  void unmap(uint32_t number);

  /// In device memory: where the peer's regions begin here, by number; null: it is told of by address.
  const uint64_t* table(uint32_t peer) const;
  /// What of the buffer lies in the region that its first byte lies in.
  Reach find(const void* buffer) const;

 private:
  struct RegisteredRange {
    uint32_t number = 0;
    uint64_t bytes = 0;
    std::vector<PeerDeviceMemory> mapped;  ///< of peers that are not reached by address
  };

  Result<uint64_t> reach(uint32_t peer, const RegistrationOffer& offer, const FileDescriptor& file,
                         RegisteredRange& region) const;
  Status set(uint32_t peer, uint32_t number, uint64_t address) const;

  const cuda::Context& context_;
  std::vector<RegistrationPath> ways_;
  cuda::DeviceMemory tables_;  ///< kRegionEnd addresses a rank
  std::map<uint64_t, RegisteredRange>
      registrations_;  ///< by the address of this rank's part; they do not overlap
};

}  // namespace tutti
