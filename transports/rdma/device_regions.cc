#include "transports/rdma/device_regions.h"

#include <algorithm>

namespace tutti::rdma {

Result<uint64_t> DeviceRegions::add(const Verbs& verbs, const DeviceSpan& span,
                                    const std::vector<const Device*>& devices) {
  auto entry = std::make_unique<Entry>(Entry{.address = span.address, .bytes = span.bytes});
  for (const Device* device : devices) {
    auto region =
        Region::make(verbs, device->domain(), span, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    TUTTI_TRY(region.status());
    entry->regions.emplace_back(device, std::move(*region));
  }
  const std::scoped_lock lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(span.address);
  Span joined{begin, begin + span.bytes};
  std::erase_if(spans_, [&](const Span& other) {
    if (other.end < joined.begin || joined.end < other.begin) return false;
    joined = {std::min(joined.begin, other.begin), std::max(joined.end, other.end)};
    return true;
  });
  spans_.push_back(joined);
  lowest_.store(std::min(lowest_.load(), joined.begin));
  highest_.store(std::max(highest_.load(), joined.end));
  entry->number = ++last_number_;
  entries_.push_back(std::move(entry));
  return last_number_;
}

void DeviceRegions::remove(uint64_t number) {
  std::unique_ptr<Entry> gone;
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find_if(entries_, [number](const auto& one) { return one->number == number; });
  if (found == entries_.end()) return;
  gone = std::move(*found);
  entries_.erase(found);
}

const Region* DeviceRegions::find(const Device& device, const std::byte* address, size_t bytes) const {
  if (!holds(address)) return nullptr;
  const std::scoped_lock lock(mutex_);
  // The newest first: memory that was freed and taken again may have an older registration.
  for (auto one = entries_.rbegin(); one != entries_.rend(); ++one) {
    const Entry& entry = **one;
    const auto offset = static_cast<size_t>(address - entry.address);
    if (address < entry.address || bytes > entry.bytes || offset > entry.bytes - bytes) continue;
    for (const auto& [owner, region] : entry.regions) {
      if (owner == &device) return &region;
    }
  }
  return nullptr;
}

bool DeviceRegions::is_in_span(uintptr_t address) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(
      spans_, [address](const Span& one) { return address >= one.begin && address < one.end; });
}

}  // namespace tutti::rdma
