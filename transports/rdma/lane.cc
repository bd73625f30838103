#include "transports/rdma/lane.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace tutti::rdma {
namespace {

/// A longer run would leave the peer idle until all of it has been written.
constexpr uint64_t kRunBytes = 128 * 1024;
constexpr uint32_t kRunMessages = 16;
/// Of short messages.
constexpr uint64_t kStreamedRunBytes = 64 * 1024;
/// In the socket's queue. More would only lie there.
constexpr size_t kSocketBytes = 256 * 1024;
/// Copying less out of slots costs no more than telling the peer where to write. Not measured: no hardware
/// was at hand.
constexpr uint64_t kLeastToldBytes = 8192;
constexpr uint32_t kCountMask = PieceWord::kCountMask;

iovec part(const void* bytes, size_t count) {
  return {const_cast<void*>(bytes), count};
}

}  // namespace

const Region* SlotMemory::on(const Verbs& verbs, const Device& device, PinBudget& budget) {
  for (const auto& [owner, region] : regions_) {
    if (owner == &device) return &region;
  }
  if (budget.left_bytes < bytes_) return nullptr;
  auto region = Region::make(verbs, device.domain(), slots_, bytes_, rights_);
  // A limit of the system: do not try again.
  budget.left_bytes = region ? budget.left_bytes - bytes_ : 0;
  if (!region) return nullptr;
  regions_.reserve(kMostRails);  // callers keep pointers
  regions_.emplace_back(&device, std::move(*region));
  return &regions_.back().second;
}

bool LaneShared::Target::holds(uint64_t number, uint32_t count, uint64_t message_bytes) const {
  const uint64_t last = number + count - 1;
  if (address == 0 || number < first || last >= end()) return false;
  // Only the last slice may be shorter.
  const bool has_end = last + 1 == end();
  return message_bytes == (has_end ? bytes - (last - first) * slice_bytes : slice_bytes) &&
         (count == 1 || message_bytes == slice_bytes);
}

bool LaneShared::is_written(uint32_t index) const {
  const PostedReceive& told = channels[index].told;
  if (told.bytes == 0) return false;
  const uint64_t last = told.first + (told.bytes + told.slice_bytes - 1) / told.slice_bytes - 1;
  return !inbox.has_come(index, last);
}

Lane::Lane(LaneShared& shared, uint32_t index)
    : shared_(shared),
      index_(index),
      // As with several TCP connections: a message that continues the stream's last one may come another way,
      // so the receiver must not write to its place before it has the header.
      receiver_(shared.inbox, shared.outbox, shared.limits, true),
      bound_(index),
      bound_key_(Rail::key_of(index, 1)) {}

uint32_t Lane::best_rail(uint32_t home, uint32_t usable, uint32_t rails) {
  for (uint32_t i = 0; i < rails; ++i) {
    const uint32_t rail = (home + i) % rails;
    if ((usable >> rail & 1) != 0) return rail;
  }
  return kSocket;
}

bool Lane::drained() const {
  if (!again_.empty() || streamed_ || owes_) return false;
  // A planned move waits for an answer of the peer, which may make no call for long. A call does not wait for
  // it: the device has nothing left to send.
  if (phase_ != Phase::kRunning && (has_lost_rail_ || !sent_.empty())) return false;
  return bound_ != kSocket || !shared_.socket.has_unsent();
}

/// Whether the device takes so many more requests, and the peer another piece. The peer's last receive is
/// kept for send_window(): two ranks that have used up all other receives tell each other so.
bool Lane::has_room(uint32_t requests, uint32_t reserve) const {
  if (phase_ != Phase::kRunning || shared_.free_buffers.empty()) return false;
  if (((pieces_sent_ - pieces_confirmed_) & kCountMask) + reserve >= shared_.window) return false;
  const Rail* rail = bound_rail();
  return rail != nullptr ? rail->has_room(requests) : shared_.socket.unsent_bytes() < kSocketBytes;
}

bool Lane::send() {
  if (phase_ != Phase::kRunning) return false;
  bool moved = !again_.empty() && send_again();
  if (again_.empty()) {
    // First, so that the peer knows where to write.
    owes_ = may_tell_receives() && !send_receives();
    if (streamed_) moved |= send_bytes();
    // One run of every channel in turn, so that no channel waits for all of another one.
    for (bool more = true; more;) {
      more = false;
      for (uint32_t channel = index_; channel < shared_.limits.channels && !streamed_;
           channel += shared_.lane_count) {
        if (shared_.outbox.ready(channel)) more |= queue_run(channel);
      }
      moved |= more;
    }
    if (grants_owed_ > 0) owes_ |= !send_grants();
    if (shared_.inbox.may_owe_credit()) owes_ |= !send_credits();
  }
  owes_ |= !send_window();
  if (wants_end_ && !has_sent_end_ && drained() && !shared_.outbox.has_waiting() && has_room(1)) {
    has_sent_end_ = true;
    post(Piece::kEnd, {}, {.bytes = 1});
  }
  return moved;
}

bool Lane::queue_run(uint32_t index) {
  LaneShared::Channel& channel = shared_.channels[index];
  if (!has_room(kRunMessages + 1) || awaits_target(index)) return false;
  const uint32_t message_bytes = shared_.outbox.next_bytes(index);
  const bool is_large = !tcp::Outbox::is_packed(message_bytes);
  if (is_large && !channel.has_asked && bound_ != kSocket) {
    channel.has_asked = true;
    const iovec ask = part(&index, sizeof(index));
    post(Piece::kAsk, std::span(&ask, 1), {});
    if (!has_room(kRunMessages + 1)) return true;
  }
  const uint64_t most =
      is_large ? std::min(kRunBytes, uint64_t{kRunMessages} * message_bytes) : kStreamedRunBytes;
  const tcp::OutFrame frame = shared_.outbox.take(index, most, shared_.inbox.report(index));
  shared_.unconfirmed_bytes += frame.bytes;
  if (is_large && is_readable(frame)) {
    send_written(frame);
  } else {
    streamed_ = frame;
    streamed_bytes_ = 0;
    send_bytes();
  }
  return true;
}

/// Whether the next message lies in the GPU and the peer has not said where it belongs. In a slot it would
/// have to be copied by the peer's GPU, while a stream that may stand in the copy's way waits for it.
bool Lane::awaits_target(uint32_t index) const {
  const DeviceRegions& regions = shared_.device_regions;
  if (regions.copier == nullptr || bound_ == kSocket) return false;
  if (!regions.holds(shared_.outbox.next_payload(index))) return false;
  const auto& target = shared_.channels[index].target;
  const uint64_t number = shared_.outbox.next_number(index);
  return !target || number < target->first || number >= target->end();
}

/// Copies a part of a message, which may lie in the GPU. False: the connection ends.
bool Lane::copy(std::byte* to, const void* from, size_t bytes) {
  const DeviceRegions& regions = shared_.device_regions;
  if (!regions.holds(from)) {
    std::memcpy(to, from, bytes);
    return true;
  }
  if (regions.copier != nullptr && regions.copier->copy(to, from, bytes)) return true;
  shared_.lacks_bytes = true;
  phase_ = Phase::kSettling;  // nothing may be sent behind the gap
  return false;
}

/// Sends a frame as bytes from `done` on. True: all of it.
bool Lane::stream(const tcp::OutFrame& frame, uint64_t& done, bool& moved) {
  while (done < frame.bytes) {
    if (!has_room(1)) return false;
    std::array<iovec, 8> parts{};
    const size_t count = shared_.outbox.gather(frame, done, parts.data(), parts.size());
    uint64_t bytes = 0;
    size_t used = 0;
    for (; used < count && bytes < kPieceBytes; ++used) {
      parts[used].iov_len = std::min<uint64_t>(parts[used].iov_len, kPieceBytes - bytes);
      bytes += parts[used].iov_len;
    }
    post(Piece::kBytes, std::span(parts.data(), used), {.bytes = bytes});
    done += bytes;
    moved = true;
  }
  shared_.outbox.complete(frame);  // all of it has been copied
  return true;
}

bool Lane::send_bytes() {
  bool moved = false;
  if (stream(*streamed_, streamed_bytes_, moved)) streamed_.reset();
  return moved;
}

/// Repeats, in their order, the pieces that the peer has not received.
bool Lane::send_again() {
  bool moved = false;
  while (!again_.empty() && has_room(1)) {
    if (again_.front().frame) {
      Sent& first = again_.front();
      if (!stream(*first.frame, first.streamed_bytes, moved)) break;
      again_.pop_front();
    } else {
      const Sent next = again_.front();
      again_.pop_front();
      transmit(next, 0);
      moved = true;
    }
  }
  return moved;
}

/// The registration of a user's buffer, of memory of the GPU or of the heap. Null: it is none of these, or
/// refused.
const Region* Lane::buffer_on(const Device& device, const std::byte* address, size_t bytes) const {
  const Region* region = shared_.device_regions.find(device, address, bytes);
  if (region == nullptr) region = shared_.user_memory.find(device, address, bytes);
  return region != nullptr ? region : shared_.heap_memory.find(shared_.verbs, device, address, bytes);
}

/// The key by which the device may read a part of a payload. None: the part lies elsewhere.
std::optional<uint32_t> Lane::source_key(LaneShared::Channel& channel, const iovec& part) const {
  const auto* const start = static_cast<const std::byte*>(part.iov_base);
  const std::byte* const slots = channel.outgoing.slots();
  const Device& device = bound_rail()->device();
  const Region* region = nullptr;
  if (start >= slots && start < slots + uint64_t{shared_.shape.slots} * shared_.shape.slot_bytes) {
    region = channel.outgoing.on(shared_.verbs, device, shared_.budget);
  } else {
    region = buffer_on(device, start, part.iov_len);
  }
  return region != nullptr ? std::optional(region->local_key()) : std::nullopt;
}

/// Whether the payloads can be written to the peer. Those that the device may not read are copied into their
/// slots, which are free, as the messages refer to other memory.
bool Lane::is_readable(const tcp::OutFrame& frame) const {
  if (bound_rail() == nullptr) return false;
  LaneShared::Channel& channel = shared_.channels[frame.channel];
  const bool has_target =
      channel.target && channel.target->holds(frame.first, frame.count, frame.message_bytes);
  if (!channel.grant && !has_target) return false;
  std::array<iovec, kRunMessages> parts{};
  const size_t count = shared_.outbox.gather(frame, tcp::kHeaderBytes, parts.data(), parts.size());
  return std::all_of(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count),
                     [&](const iovec& one) {
                       return source_key(channel, one) ||
                              channel.outgoing.on(shared_.verbs, bound_rail()->device(), shared_.budget);
                     });
}

void Lane::send_written(const tcp::OutFrame& frame) {
  iovec head{};
  shared_.outbox.gather(frame, 0, &head, 1);
  const auto& target = shared_.channels[frame.channel].target;
  const bool is_placed = target && target->holds(frame.first, frame.count, frame.message_bytes);
  const uint32_t writes = write_payloads(frame, is_placed ? &*target : nullptr);
  post(is_placed ? Piece::kPlaced : Piece::kWritten, std::span(&head, 1),
       {.bytes = frame.bytes, .frame = frame}, writes);
}

/// The payloads of a frame are visible at the peer before the piece that follows them. `target`: where they
/// go; null: into the peer's slots. Returns the number of requests.
uint32_t Lane::write_payloads(const tcp::OutFrame& frame, const LaneShared::Target* target) {
  LaneShared::Channel& channel = shared_.channels[frame.channel];
  const uint64_t bytes = frame.message_bytes;
  const uint64_t slot_bytes = shared_.shape.slot_bytes;
  const uint64_t slots = shared_.shape.slots;
  uint32_t requests = 0;
  for (uint64_t i = 0; i < frame.count && phase_ == Phase::kRunning;) {
    const uint64_t slot = (frame.first + i) & (slots - 1);
    iovec source{};
    shared_.outbox.gather(frame, tcp::kHeaderBytes + i * bytes, &source, 1);
    uint64_t run = source.iov_len / bytes;
    // Full slots are adjacent.
    if (target == nullptr) run = bytes == slot_bytes ? std::min(run, slots - slot) : 1;
    std::optional<uint32_t> key = source_key(channel, {source.iov_base, run * bytes});
    if (!key) {
      run = 1;
      std::byte* const own = channel.outgoing.slots() + slot * slot_bytes;
      if (!copy(own, source.iov_base, bytes)) break;
      source.iov_base = own;
      key = source_key(channel, {own, bytes});
    }
    const Status posted =
        bound_rail()->post_write({.source = static_cast<const std::byte*>(source.iov_base),
                                  .bytes = static_cast<uint32_t>(run * bytes),
                                  .local_key = *key,
                                  .target = target != nullptr ? target->place(frame.first + i)
                                                              : channel.grant->address + slot * slot_bytes,
                                  .remote_key = target != nullptr ? target->key : channel.grant->key});
    if (!posted) shared_.break_rail(*bound_rail(), std::string(posted.text()));
    ++requests;
    i += run;
  }
  return requests;
}

/// Whether a posted receive can lie in memory that the peer may write, or its messages in a GPU.
bool Lane::may_tell_receives() const {
  if (bound_ == kSocket) return false;
  return !shared_.user_memory.is_empty() || !shared_.heap_memory.is_empty() ||
         shared_.device_regions.copier != nullptr;
}

/// Tells the peer of posted receives in registered memory, so that it writes there. Where a message may come
/// out of a GPU, it also tells of the others. False: no room.
bool Lane::send_receives() {
  const bool tells_all = shared_.device_regions.copier != nullptr;
  for (uint32_t index = index_; index < shared_.limits.channels; index += shared_.lane_count) {
    LaneShared::Channel& channel = shared_.channels[index];
    const PostedReceive* const offer = channel.offer;
    if (offer == nullptr || offer->bytes < (tells_all ? 1 : kLeastToldBytes) ||
        tcp::Outbox::is_packed(static_cast<uint32_t>(offer->slice_bytes)))
      continue;
    const uint64_t last = offer->first + (offer->bytes + offer->slice_bytes - 1) / offer->slice_bytes - 1;
    // One at a time. The reader posts the rest of a receive again and again.
    if (shared_.is_written(index) || shared_.inbox.has_come(index, last)) continue;
    const Region* const region = buffer_on(bound_rail()->device(), offer->address, offer->bytes);
    if (region == nullptr && (!tells_all || last < channel.into_slots_end)) continue;
    if (!has_room(1)) return false;
    const LaneShared::Target target{
        .channel = index,
        .key = region != nullptr ? region->remote_key() : 0,
        .address = region != nullptr ? reinterpret_cast<uint64_t>(offer->address) : 0,
        .bytes = offer->bytes,
        .first = offer->first,
        .slice_bytes = offer->slice_bytes};
    if (region != nullptr) {
      channel.told = *offer;
    } else {
      channel.into_slots_end = last + 1;
    }
    const iovec bytes = part(&target, sizeof(target));
    post(Piece::kReceive, std::span(&bytes, 1), {});
  }
  return true;
}

/// Answers what the peer has asked. False: no room.
bool Lane::send_grants() {
  for (uint32_t index = index_; index < shared_.limits.channels; index += shared_.lane_count) {
    LaneShared::Channel& channel = shared_.channels[index];
    if (!channel.owes_grant) continue;
    if (!has_room(1)) return false;
    channel.owes_grant = false;
    --grants_owed_;
    const LaneShared::Grant grant{.channel = index,
                                  .key = *channel.granted_key,
                                  .address = reinterpret_cast<uint64_t>(channel.incoming.slots())};
    const iovec bytes = part(&grant, sizeof(grant));
    post(Piece::kGrant, std::span(&bytes, 1), {});
  }
  return true;
}

/// Sends credits for channels without messages, once half of the ring is unreported. The peer can use the
/// other half meanwhile. False: no room.
bool Lane::send_credits() {
  for (uint32_t index = index_; index < shared_.limits.channels; index += shared_.lane_count) {
    if (shared_.inbox.unreported(index) * 2 < shared_.shape.slots) continue;
    // A frame that has not begun carries an older credit, which must not come after this one.
    if (!has_room(1) || (streamed_ && streamed_bytes_ == 0)) return false;
    const tcp::OutFrame frame = shared_.outbox.make_credit(index, shared_.inbox.report(index));
    iovec head{};
    shared_.outbox.gather(frame, 0, &head, 1);
    post(Piece::kWritten, std::span(&head, 1), {});
    shared_.outbox.complete(frame);  // it has been copied
  }
  return true;
}

/// Tells the peer of its free receives, if nothing else has told it. False: no room.
bool Lane::send_window() {
  if (((pieces_received_ - pieces_reported_) & kCountMask) * 2 < shared_.window) return true;
  if (!has_room(1, 0)) return false;
  post(Piece::kWindow, {}, {});
  return true;
}

void Lane::post(Piece kind, std::span<const iovec> parts, Sent sent, uint32_t requests) {
  sent.kind = kind;
  for (const iovec& one : parts) sent.length += static_cast<uint32_t>(one.iov_len);
  assert(sent.length <= kPieceBytes);
  if (sent.length > 0) {
    sent.buffer = shared_.free_buffers.back();
    shared_.free_buffers.pop_back();
    std::byte* buffer = shared_.send_memory.base() + static_cast<size_t>(sent.buffer) * kPieceBytes;
    for (const iovec& one : parts) {
      if (!copy(buffer, one.iov_base, one.iov_len)) return release(sent);
      buffer += one.iov_len;
    }
  }
  // An end counts from finish() on, and all of a frame from its beginning. Other pieces count too: while a
  // credit is repeated after a loss, its receiver must not be taken for a rank that waits in a circle.
  if (sent.bytes == 0) {
    sent.bytes = 1;
    ++shared_.unconfirmed_bytes;
  }
  transmit(sent, requests);
}

void Lane::transmit(Sent sent, uint32_t requests) {
  if (phase_ != Phase::kRunning) {
    // The writes before this piece have failed.
    sent_.push_back(sent);
    pieces_sent_ = (pieces_sent_ + 1) & kCountMask;
    return;
  }
  const uint32_t word =
      PieceWord{.kind = static_cast<uint32_t>(sent.kind), .lane = index_, .received = pieces_received_}
          .pack();
  pieces_reported_ = pieces_received_;
  pieces_sent_ = (pieces_sent_ + 1) & kCountMask;
  Rail* rail = bound_rail();
  if (rail == nullptr) {
    std::span<const std::byte> bytes;
    if (sent.length > 0)
      bytes = {shared_.send_memory.base() + static_cast<size_t>(sent.buffer) * kPieceBytes, sent.length};
    shared_.socket.send({.kind = ControlKind::kPiece, .index = index_, .turn = generation_, .word = word},
                        bytes);
    shared_.socket_bytes += sent.bytes;
    release(sent);
    return;
  }
  sent_.push_back(sent);
  const Status posted = rail->post_piece(index_, word, sent.buffer, sent.length, requests);
  if (!posted) shared_.break_rail(*rail, std::string(posted.text()));
}

void Lane::complete(const Sent& sent) {
  shared_.unconfirmed_bytes -= sent.bytes;
  release(sent);
}

/// The network no longer needs the piece's memory.
void Lane::release(const Sent& sent) {
  if (sent.buffer >= 0) shared_.free_buffers.push_back(sent.buffer);
  if (sent.frame) shared_.outbox.complete(*sent.frame);
}

void Lane::complete_one() {
  if (sent_.empty()) return;
  complete(sent_.front());
  sent_.pop_front();
}

}  // namespace tutti::rdma
