#include "device/card_buffers.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/log.h"

namespace tutti {

/// Shared with the registrations, which may outlive the network.
struct CardBuffers::Life {
  std::mutex mutex;
  Network network;
  bool has_ended = false;
};

struct CardBuffers::Registration {
  std::shared_ptr<Life> life;
  MemoryHandle handle;

  Registration(std::shared_ptr<Life> its_life, MemoryHandle its_handle)
      : life(std::move(its_life)), handle(its_handle) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    const std::scoped_lock lock(life->mutex);
    if (!life->has_ended) life->network.remove(handle);
  }
};

CardBuffers::CardBuffers(const StagingDevice& device, Network network, uint32_t rank)
    : device_(device), rank_(rank), life_(std::make_shared<Life>()) {
  life_->network = std::move(network);
}

CardBuffers::~CardBuffers() {
  entries_.clear();
  const std::scoped_lock lock(life_->mutex);
  life_->has_ended = true;
}

Status CardBuffers::probe() const {
  return device_.export_sample([this](const DeviceSpan& span) {
    const auto handle = life_->network.add(span);
    if (handle) life_->network.remove(*handle);
    return handle.status();
  });
}

CardBuffers::Hold CardBuffers::find(const void* address) {
  const uint64_t number = device_.allocation_number(address);
  if (number == 0) return nullptr;
  for (Entry& entry : entries_) {
    if (entry.number != number) continue;
    entry.last_use = ++uses_;
    return entry.hold;
  }
  return add(number, address);
}

CardBuffers::Hold CardBuffers::add(uint64_t number, const void* address) {
  Entry entry{.number = number, .last_use = ++uses_};
  const Status added = device_.export_to_cards(address, [&](const DeviceSpan& span) -> Status {
    entry.begin = span.address;
    entry.end = span.address + span.bytes;
    // What lay there before has been freed.
    std::erase_if(entries_, [&](const Entry& old) { return old.begin < entry.end && entry.begin < old.end; });
    const auto handle = life_->network.add(span);
    TUTTI_TRY(handle.status());
    entry.hold = std::make_shared<const Registration>(life_, *handle);
    return Status::ok();
  });
  if (!added) {
    if (refusal_.empty())
      log_line(format("rank %u: messages of a buffer at %p pass through host memory: %s", rank_, address,
                      std::string(added.text()).c_str()));
    refusal_ = added.text();
  }
  if (entries_.size() >= kMost) drop_oldest();
  return entries_.emplace_back(std::move(entry)).hold;
}

void CardBuffers::drop_oldest() {
  entries_.erase(std::ranges::min_element(entries_, {}, [](const Entry& one) { return one.last_use; }));
}

}  // namespace tutti
