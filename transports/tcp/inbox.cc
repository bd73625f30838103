#include "transports/tcp/inbox.h"

#include <cstring>

namespace tutti::tcp {

Inbox::Inbox(std::span<const ChannelRings> channels, const RingShape& shape)
    : channels_(channels.size()), mask_(shape.slots - 1), slot_bytes_(shape.slot_bytes) {
  for (size_t i = 0; i < channels.size(); ++i) {
    const SendLink link = SendLink::at(channels[i].incoming, shape);
    Channel& channel = channels_[i];
    channel.cells = link.cells;
    channel.credit = link.credits;
    channel.slots = link.slots;
    channel.offer = channels[i].offer;
    channel.reported = channel.come = load_shared(link.credits->released, std::memory_order_acquire);
    channel.claims.resize(shape.slots);
  }
}

uint64_t Inbox::given_back(uint32_t index) const {
  return load_shared(channels_[index].credit->released, std::memory_order_acquire);
}

uint64_t Inbox::unreported(uint32_t index) const {
  return given_back(index) - channels_[index].reported;
}

uint64_t Inbox::report(uint32_t index) {
  Channel& channel = channels_[index];
  if (is_half_full(channel)) --half_full_;
  channel.reported = given_back(index);
  if (is_half_full(channel)) ++half_full_;
  return channel.reported;
}

std::byte* Inbox::slot(const Channel& channel, uint64_t number) const {
  return channel.slots + (number & mask_) * static_cast<size_t>(slot_bytes_);
}

Result<uint64_t> Inbox::claim(const Frame& frame) {
  Channel& channel = channels_[frame.channel];
  const uint64_t oldest = given_back(frame.channel);
  const uint64_t ahead = distance(oldest, frame.number, flag::kNumberMask);
  if (ahead + frame.count > mask_ + 1) {
    return Status(Code::kPeerLost,
                  format("messages %llu to %llu of channel %u, where only %u have room",
                         static_cast<unsigned long long>(ahead),
                         static_cast<unsigned long long>(ahead + frame.count - 1), frame.channel, mask_ + 1));
  }
  const uint64_t first = oldest + ahead;
  for (uint64_t number = first; number < first + frame.count; ++number) {
    Claim& claim = channel.claims[number & mask_];
    if (claim.number_plus_1 == number + 1) {
      return Status(Code::kPeerLost, format("message %llu of channel %u twice",
                                            static_cast<unsigned long long>(number), frame.channel));
    }
    claim = {.number_plus_1 = number + 1};
  }
  return first;
}

std::byte* Inbox::place(uint32_t index, uint64_t number, uint32_t bytes) {
  Channel& channel = channels_[index];
  Claim& claim = channel.claims[number & mask_];
  if (claim.place != nullptr) return claim.place;
  claim.place = free_place(channel, number, bytes);
  return claim.place;
}

void Inbox::put(uint32_t index, uint64_t number, std::byte* place) {
  Channel& channel = channels_[index];
  channel.claims[number & mask_].place = place;
}

std::byte* Inbox::free_place(const Channel& channel, uint64_t number, uint32_t bytes) const {
  if (bytes <= kInlineBytes) return channel.cells[number & mask_].payload;
  const bool is_offered = channel.offer != nullptr && !channel.offer->on_device;
  std::byte* offered = is_offered ? channel.offer->place(number, bytes) : nullptr;
  return offered != nullptr ? offered : slot(channel, number);
}

std::byte* Inbox::expected_place(uint32_t index, uint64_t number, uint32_t bytes) const {
  return number - given_back(index) > mask_ ? nullptr : free_place(channels_[index], number, bytes);
}

void Inbox::publish(uint32_t index, uint64_t number, uint32_t signature, uint32_t bytes) {
  Channel& channel = channels_[index];
  Cell& cell = channel.cells[number & mask_];
  Carriage carriage = Carriage::kInline;
  if (bytes > kInlineBytes) {
    const std::byte* place = channel.claims[number & mask_].place;
    carriage = place == slot(channel, number) ? Carriage::kSlot : Carriage::kReference;
    if (carriage == Carriage::kReference) std::memcpy(cell.payload, &place, sizeof(place));
  }
  const uint64_t word = flag::make(number, signature, bytes) | static_cast<uint64_t>(carriage)
                                                                   << flag::kCarriageShift;
  store_shared(cell.word, word, std::memory_order_release);
  const bool was_half_full = is_half_full(channel);
  ++channel.come;
  if (!was_half_full && is_half_full(channel)) ++half_full_;
}

bool Inbox::has_come(uint32_t index, uint64_t number) const {
  if (number < given_back(index)) return true;
  const uint64_t word = load_shared(channels_[index].cells[number & mask_].word, std::memory_order_relaxed);
  return (word & flag::kNumberMask) == ((number + 1) & flag::kNumberMask);
}

void Inbox::move_to_slot(uint32_t index, uint64_t number, uint32_t bytes, uint64_t done) {
  Channel& channel = channels_[index];
  Claim& claim = channel.claims[number & mask_];
  if (bytes <= kInlineBytes || claim.place == slot(channel, number)) return;
  if (claim.place != nullptr && done > 0) std::memcpy(slot(channel, number), claim.place, done);
  claim.place = slot(channel, number);
}

}  // namespace tutti::tcp
