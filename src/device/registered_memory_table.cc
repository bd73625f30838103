#include "device/registered_memory_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti {
namespace {

/// The contents of RegistrationOffer::handle.
struct Offered {
  uint64_t address = 0;  ///< in the rank's process
  uint64_t bytes = 0;
  DeviceMemoryHandle handle;
};
static_assert(sizeof(Offered) <= sizeof(RegistrationOffer::handle));

Offered read_offer(const RegistrationOffer& offer) {
  Offered offered;
  std::memcpy(static_cast<void*>(&offered), offer.handle.data(), sizeof(offered));
  return offered;
}

}  // namespace

Status RegisteredMemoryTable::open(std::vector<RegistrationPath> ways) {
  ways_ = std::move(ways);
  const size_t bytes = ways_.size() * cuda::kRegisteredEnd * sizeof(uint64_t);
  auto tables = cuda::DeviceMemory::allocate(context_, bytes);
  TUTTI_TRY(tables.status());
  tables_ = std::move(*tables);
  return cuda::fill_now(context_, tables_.as<void>(), 0, bytes);
}

const uint64_t* RegisteredMemoryTable::table(uint32_t peer) const {
  if (ways_[peer].kind == RegistrationPath::kSameMemory) return nullptr;
  return tables_.as<const uint64_t>() + size_t{peer} * cuda::kRegisteredEnd;
}

Result<OwnRegistration> RegisteredMemoryTable::offer(const void* address, uint64_t bytes) const {
  const auto start = reinterpret_cast<uint64_t>(address);
  for (const auto& [other, range] : registrations_) {
    if (start < other + range.bytes && other < start + bytes) {
      return Status(Code::kUnsupported, format("memory at %p overlaps registered memory: deregister that "
                                               "memory first, or register both together",
                                               address));
    }
  }
  auto share = share_memory(context_, address, bytes);
  TUTTI_TRY(share.status());
  const Offered offered{.address = start, .bytes = bytes, .handle = share->handle};
  OwnRegistration own;
  std::memcpy(own.offer.handle.data(), static_cast<const void*>(&offered), sizeof(offered));
  own.offer.has_file = share->file.is_open() ? 1 : 0;
  own.file = std::move(share->file);
  return own;
}

/// Returns this rank's address for the peer's part of the registered memory.
Result<uint64_t> RegisteredMemoryTable::reach(uint32_t peer, const RegistrationOffer& offer,
                                              const FileDescriptor& file, RegisteredRange& range) const {
  const Offered theirs = read_offer(offer);
  if (ways_[peer].kind == RegistrationPath::kPointer && offer.has_file == 0) {
    TUTTI_TRY(context_.enable_peer(*ways_[peer].context));
    return theirs.address;
  }
  auto memory = PeerDeviceMemory::open(context_, theirs.handle, file);
  TUTTI_TRY(memory.status());
  range.mapped.push_back(std::move(*memory));
  return reinterpret_cast<uint64_t>(range.mapped.back().as<void>());
}

Status RegisteredMemoryTable::set(uint32_t peer, uint32_t number, uint64_t address) const {
  uint64_t* const entry = tables_.as<uint64_t>() + size_t{peer} * cuda::kRegisteredEnd + number;
  return cuda::copy_now(context_, entry, &address, sizeof(address));
}

Status RegisteredMemoryTable::map(uint32_t number, uint32_t own, std::span<const RegistrationOffer> offers,
                                  std::span<const FileDescriptor> files) {
  const Offered mine = read_offer(offers[own]);
  RegisteredRange range{.number = number, .bytes = mine.bytes, .mapped = {}};
  for (uint32_t peer = 0; peer < offers.size(); ++peer) {
    if (ways_[peer].kind == RegistrationPath::kSameMemory) continue;
    const auto address = reach(peer, offers[peer], files[peer], range);
    TUTTI_TRY(address.status());
    TUTTI_TRY(set(peer, number, *address));
  }
  registrations_.emplace(mine.address, std::move(range));
  return Status::ok();
}

void RegisteredMemoryTable::unmap(uint32_t number) {
  std::erase_if(registrations_, [number](const auto& entry) { return entry.second.number == number; });
}

Reach RegisteredMemoryTable::find(const void* buffer) const {
  const auto address = reinterpret_cast<uint64_t>(buffer);
  auto after = registrations_.upper_bound(address);
  if (after == registrations_.begin()) return {};
  const auto& [start, range] = *--after;
  const uint64_t offset = address - start;
  if (offset >= range.bytes) return {};
  return {.location = (uint64_t{range.number} << cuda::kLocationShift) + offset,
          .bytes = range.bytes - offset};
}

}  // namespace tutti
