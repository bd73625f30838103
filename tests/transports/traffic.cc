#include "tests/transports/traffic.h"

#include <algorithm>
#include <utility>

namespace tutti::test {

Bytes message_bytes(uint64_t seed, uint32_t from, uint32_t channel, uint64_t number, size_t count) {
  SimRandom random(seed ^ number << 16 ^ uint64_t{channel} << 8 ^ from);
  Bytes bytes(count);
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i, word >>= 8) {
    if (i % 8 == 0) word = random.next();
    bytes[i] = static_cast<std::byte>(word);
  }
  return bytes;
}

Traffic::Traffic(TrafficSide& first, TrafficSide& second, uint64_t seed, uint64_t messages_per_channel,
                 bool slow_reader)
    : first_side_(first),
      second_side_(second),
      channels_(first.channel_count()),
      slots_(first.send(0).slot_mask + 1),
      slot_bytes_(first.send(0).slot_bytes),
      seed_(seed),
      first_(first.send(0).next),
      messages_(messages_per_channel),
      slow_reader_(slow_reader),
      random_(seed),
      directions_(2 * channels_),
      left_(messages_per_channel * 2 * channels_) {
  for (uint32_t i = 0; i < directions_.size(); ++i) {
    const uint32_t sender = i / channels_;
    directions_[i].source.resize(slots_ * slot_bytes_);
    directions_[i].target.resize(std::max<uint64_t>(1, slot_bytes_));
    register_buffer(side(sender), directions_[i].source);
    register_buffer(side(1 - sender), directions_[i].target);
  }
}

Traffic::~Traffic() {
  for (const auto& [side, handle] : registered_) {
    if (side->transport() != nullptr) side->transport()->deregister_memory(handle);
  }
}

void Traffic::register_buffer(TrafficSide& side, Bytes& buffer) {
  if (!side.send(0).reads_registered || seed_ % 4 == 0) return;
  const auto handle = side.transport()->register_memory(buffer.data(), buffer.size(), MemoryUse::kBuffer);
  if (handle) registered_.emplace_back(&side, *handle);
}

size_t Traffic::size_of(uint32_t from, uint32_t channel, uint64_t number) const {
  SimRandom random(seed_ ^ number << 20 ^ uint64_t{channel} << 10 ^ from << 5);
  const uint64_t most = slot_bytes_;
  switch (random.below(5)) {
    case 0: return 0;
    case 1: return 8;
    case 2: return random.below(kInlineBytes + 2);
    case 3: return most;
    default: return random.below(most + 1);
  }
}

bool Traffic::turn(uint32_t rank) {
  bool moved = false;
  for (uint32_t channel = 0; channel < channels_; ++channel) {
    for (uint64_t i = random_.below(12); i > 0 && send_one(rank, channel); --i) moved = true;
    if (slow_reader_ && !random_.one_in(8)) continue;
    for (uint64_t i = random_.below(12); i > 0 && receive_one(rank, channel); --i) moved = true;
    take_back(rank, channel);
  }
  moved |= side(rank).connection().advance();
  return moved;
}

bool Traffic::send_one(uint32_t rank, uint32_t channel) {
  SendLink& link = side(rank).send(channel);
  if (link.next == first_ + messages_ || !link.can_write()) return false;
  const size_t size = size_of(rank, channel, link.next);
  Bytes bytes = message_bytes(seed_, rank, channel, link.next, size);
  const auto signature = static_cast<uint16_t>(channel * 7 + link.next / 16);
  const bool may_refer = link.same_process || !registered_.empty();
  if (may_refer && size > kInlineBytes && random_.one_in(3)) {
    Direction& direction = directions_[rank * channels_ + channel];
    take_back(rank, channel);  // the place may have been another message's
    const std::span place(direction.source.data() + link.next % slots_ * slot_bytes_, size);
    std::copy(bytes.begin(), bytes.end(), place.begin());
    direction.leases.push_back({link.next, place});
    link.commit_reference(signature, size, direction.leases.back().bytes.data());
  } else {
    std::copy(bytes.begin(), bytes.end(), link.span(size));
    link.commit(signature, size);
  }
  most_ahead_ = std::max(most_ahead_, link.next - side(1 - rank).recv(channel).next);
  return true;
}

/// Overwrites what the network has given back: if it still sends it, the reader gets something wrong.
void Traffic::take_back(uint32_t rank, uint32_t channel) {
  const uint64_t released = side(rank).send(channel).released();
  auto& leases = directions_[rank * channels_ + channel].leases;
  while (!leases.empty() && leases.front().number < released) {
    std::fill(leases.front().bytes.begin(), leases.front().bytes.end(), std::byte{0xee});
    leases.pop_front();
  }
}

bool Traffic::receive_one(uint32_t rank, uint32_t channel) {
  TrafficSide& reader = side(rank);
  RecvLink& link = reader.recv(channel);
  if (link.next == first_ + messages_) return false;
  const uint32_t from = 1 - rank;
  Bytes& target = directions_[from * channels_ + channel].target;
  const size_t size = size_of(from, channel, link.next);
  const auto signature = static_cast<uint16_t>(channel * 7 + link.next / 16);
  const uint64_t word = link.word();
  if ((word & flag::kAgreedMask) != flag::make(link.next, signature, size)) {
    if ((word & flag::kNumberMask) == ((link.next + 1) & flag::kNumberMask) && failure_.empty()) {
      failure_ = format("rank %u, channel %u, message %llu: another word came", rank, channel,
                        static_cast<unsigned long long>(link.next));
    }
    if (random_.one_in(2) && reader.offer(channel).first != link.next) {
      std::fill_n(target.begin(), size, std::byte{0});
      reader.offer(channel) = {.first = link.next,
                               .address = target.data(),
                               .bytes = size,
                               .slice_bytes = std::max<size_t>(1, size)};
    }
    return false;
  }
  const std::byte* span = link.span(word);
  const Bytes expected = message_bytes(seed_, from, channel, link.next, size);
  if (!std::equal(expected.begin(), expected.end(), span) && failure_.empty()) {
    failure_ = format("rank %u, channel %u, message %llu of %zu bytes: wrong content", rank, channel,
                      static_cast<unsigned long long>(link.next), size);
  }
  if (flag::carriage(word) == Carriage::kReference) {
    if (span != target.data() && failure_.empty()) failure_ = "a reference to what was not offered";
    ++direct_count_;
  }
  link.release(word);
  --left_;
  return true;
}

}  // namespace tutti::test
