#include "transports/tcp/outbox.h"

#include <algorithm>
#include <cstring>

namespace tutti::tcp {

Outbox::Outbox(std::span<const ChannelRings> channels, const RingShape& shape, uint16_t epoch)
    : channels_(channels.size()), mask_(shape.slots - 1), slot_bytes_(shape.slot_bytes), epoch_(epoch) {
  for (size_t i = 0; i < channels.size(); ++i) {
    const RecvLink link = RecvLink::at(channels[i].outgoing, shape, 0);
    Channel& channel = channels_[i];
    channel.cells = link.cells;
    channel.credit = link.credit;
    channel.slots = link.slots;
    channel.taken = channel.released = load_shared(link.credit->released, std::memory_order_acquire);
    channel.limit = channel.taken + shape.slots;
    channel.heads.resize(2 * shape.slots * kHeadBytes);
    channel.is_complete.resize(shape.slots);
  }
}

uint32_t Outbox::next_bytes(uint32_t index) const {
  const Channel& channel = channels_[index];
  uint64_t word = 0;
  arrived(channel, channel.taken, word);
  return static_cast<uint32_t>(flag::bytes(word));
}

OutFrame Outbox::take(uint32_t index, uint64_t payload_bytes_most, uint64_t credit) {
  Channel& channel = channels_[index];
  const uint64_t first = channel.taken;
  uint64_t word = 0;
  arrived(channel, first, word);
  const uint64_t alike = word & flag::kAgreedMask & ~flag::kNumberMask;
  const auto bytes = static_cast<uint32_t>(flag::bytes(word));
  uint64_t most = std::min<uint64_t>(kMaxRun, channel.limit - first);
  // Packed payloads lie one after the other, in the heads of the run's messages.
  if (is_packed(bytes)) most = std::min<uint64_t>(most, head_mask() + 1 - (first & head_mask()));
  if (bytes != 0) most = std::min(most, std::max<uint64_t>(1, payload_bytes_most / bytes));
  bool refers = flag::carriage(word) == Carriage::kReference;
  uint64_t next = first + 1;
  while (next < first + most && arrived(channel, next, word) &&
         (word & flag::kAgreedMask & ~flag::kNumberMask) == alike) {
    refers |= flag::carriage(word) == Carriage::kReference;
    ++next;
  }
  channel.taken = next;
  if (refers) channel.references = next;
  const auto count = static_cast<uint32_t>(next - first);
  std::byte* head = channel.heads.data() + (first & head_mask()) * kHeadBytes;
  encode({.kind = FrameKind::kData,
          .channel = index,
          .count = count,
          .number = first,
          .signature = flag::signature(alike),
          .bytes = bytes,
          .credit = static_cast<uint32_t>(credit & kCreditMask),
          .epoch = epoch_},
         head);
  if (is_packed(bytes)) {
    std::byte* packed = head + kHeaderBytes;
    for (uint64_t number = first; number < next; ++number, packed += bytes) {
      std::memcpy(packed, payload(channel, number), bytes);
    }
  }
  return {.channel = index,
          .count = count,
          .first = first,
          .bytes = kHeaderBytes + uint64_t{count} * bytes,
          .message_bytes = bytes};
}

OutFrame Outbox::make_credit(uint32_t index, uint64_t credit) {
  Channel& channel = channels_[index];
  channel.credit_queued = true;
  encode({.kind = FrameKind::kCredit,
          .channel = index,
          .credit = static_cast<uint32_t>(credit & kCreditMask),
          .epoch = epoch_},
         channel.credit_head);
  return {.channel = index, .bytes = kHeaderBytes};
}

const std::byte* Outbox::payload(const Channel& channel, uint64_t number) const {
  const Cell& cell = channel.cells[number & mask_];
  const uint64_t word = load_shared(cell.word, std::memory_order_relaxed);
  switch (flag::carriage(word)) {
    case Carriage::kInline: return cell.payload;
    case Carriage::kSlot: return channel.slots + (number & mask_) * static_cast<size_t>(slot_bytes_);
    case Carriage::kReference:
    case Carriage::kPull: break;
  }
  uint64_t address = 0;  // in this process
  std::memcpy(&address, cell.payload, sizeof(address));
  return reinterpret_cast<const std::byte*>(address);
}

size_t Outbox::gather(const OutFrame& frame, uint64_t skip, iovec* pieces, size_t room) const {
  const Channel& channel = channels_[frame.channel];
  const std::byte* head = frame.count == 0 ? channel.credit_head
                                           : channel.heads.data() + (frame.first & head_mask()) * kHeadBytes;
  const uint64_t in_head = is_packed(frame.message_bytes) ? frame.bytes : kHeaderBytes;
  size_t used = 0;
  if (skip < in_head) {
    if (room == 0) return 0;
    pieces[used++] = {const_cast<std::byte*>(head) + skip, in_head - skip};
    skip = in_head;
  }
  if (in_head == frame.bytes) return used;
  uint64_t index = (skip - kHeaderBytes) / frame.message_bytes;
  uint64_t within = (skip - kHeaderBytes) % frame.message_bytes;
  const size_t first_payload = used;
  for (; index < frame.count; ++index, within = 0) {
    std::byte* start = const_cast<std::byte*>(payload(channel, frame.first + index)) + within;
    const uint64_t bytes = frame.message_bytes - within;
    // Slices of one buffer are adjacent, and so are full slots.
    if (used > first_payload &&
        static_cast<std::byte*>(pieces[used - 1].iov_base) + pieces[used - 1].iov_len == start) {
      pieces[used - 1].iov_len += bytes;
      continue;
    }
    if (used == room) break;
    pieces[used++] = {start, bytes};
  }
  return used;
}

void Outbox::complete(const OutFrame& frame) {
  Channel& channel = channels_[frame.channel];
  if (frame.count == 0) {
    channel.credit_queued = false;
    return;
  }
  for (uint64_t number = frame.first; number < frame.first + frame.count; ++number) {
    channel.is_complete[number & mask_] = 1;
  }
  while (channel.released < channel.taken && channel.is_complete[channel.released & mask_] != 0) {
    channel.is_complete[channel.released++ & mask_] = 0;
  }
  store_shared(channel.credit->released, channel.released, std::memory_order_release);
}

bool Outbox::accept_credit(uint32_t index, uint32_t credit, bool may_be_late) {
  Channel& channel = channels_[index];
  const uint64_t given_back = channel.limit - (mask_ + 1);
  const uint64_t more = distance(given_back, credit, kCreditMask);
  if (more <= channel.taken - given_back) {
    channel.limit += more;
    return true;
  }
  return may_be_late && more > kCreditMask / 2;
}

bool Outbox::needs_credit() const {
  const uint64_t quarter = (mask_ + 1) / 4;
  return std::any_of(channels_.begin(), channels_.end(),
                     [quarter](const Channel& channel) { return channel.limit - channel.taken <= quarter; });
}

bool Outbox::owes_memory() const {
  return std::any_of(channels_.begin(), channels_.end(), [this](const Channel& channel) {
    return channel.released < channel.references || channel.taken - channel.released == mask_ + 1;
  });
}

}  // namespace tutti::tcp
