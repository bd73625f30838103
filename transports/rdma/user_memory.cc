#include "transports/rdma/user_memory.h"

#include <algorithm>

namespace tutti::rdma {

Result<uint64_t> UserMemory::add(const Verbs& verbs, std::span<std::byte> memory,
                                 const std::vector<const Device*>& devices) {
  Buffer buffer{.number = last_number_ + 1, .address = memory.data(), .bytes = memory.size()};
  for (const Device* device : devices) {
    auto region = Region::make(verbs, device->domain(), memory.data(), memory.size(),
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    TUTTI_TRY(region.status());
    buffer.regions.emplace_back(device, std::move(*region));
  }
  buffers_.push_back(std::move(buffer));
  return ++last_number_;
}

void UserMemory::remove(uint64_t number) {
  std::erase_if(buffers_, [number](const Buffer& one) { return one.number == number; });
}

const Region* UserMemory::find(const Device& device, const std::byte* address, size_t bytes) const {
  for (const Buffer& one : buffers_) {
    const auto offset = static_cast<size_t>(address - one.address);
    if (address < one.address || bytes > one.bytes || offset > one.bytes - bytes) continue;
    for (const auto& [owner, region] : one.regions) {
      if (owner == &device) return &region;
    }
  }
  return nullptr;
}

}  // namespace tutti::rdma
