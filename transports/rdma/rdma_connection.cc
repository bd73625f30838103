#include "transports/rdma/rdma_connection.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "transports/rdma/errors.h"

namespace tutti::rdma {
namespace {

/// Staging for pieces that are too long to travel in the request.
constexpr uint32_t kSendBuffers = 32;
/// A longer run would leave the peer idle until all of it has been written.
constexpr uint64_t kRunBytes = 128 * 1024;
constexpr uint32_t kRunMessages = 16;
/// Of short messages.
constexpr uint64_t kStreamedRunBytes = 64 * 1024;
constexpr uint32_t kCountMask = 0xffffff;
constexpr uint32_t kKindShift = 24;
constexpr char kJoined = 'J';

/// Posted receives would need their memory registered: everything goes through slots.
std::vector<ChannelRings> without_offers(std::span<const ChannelRings> channels) {
  std::vector<ChannelRings> plain(channels.begin(), channels.end());
  for (ChannelRings& channel : plain) channel.offer = nullptr;
  return plain;
}

iovec part(const void* bytes, size_t count) {
  return {const_cast<void*>(bytes), count};
}

}  // namespace

Result<std::unique_ptr<RdmaConnection>> RdmaConnection::make(const Verbs& verbs, const Device& device,
                                                             const Port& port,
                                                             std::span<const ChannelRings> channels,
                                                             FileDescriptor socket, PinBudget& budget,
                                                             const RdmaOptions& options) {
  const std::vector<ChannelRings> plain = without_offers(channels);
  std::unique_ptr<RdmaConnection> connection(
      new RdmaConnection(verbs, device, port, plain, std::move(socket), budget, options));
  TUTTI_TRY(connection->prepare());
  return connection;
}

RdmaConnection::RdmaConnection(const Verbs& verbs, const Device& device, const Port& port,
                               std::span<const ChannelRings> channels, FileDescriptor socket,
                               PinBudget& budget, const RdmaOptions& options)
    : verbs_(verbs),
      device_(device),
      port_(port),
      options_(options),
      socket_(std::move(socket)),
      budget_(budget),
      limits_{.channels = static_cast<uint32_t>(channels.size()),
              .slots = options.shape.slots,
              .slot_bytes = options.shape.slot_bytes,
              .epoch = options.epoch},
      outbox_(channels, options.shape, options.epoch),
      inbox_(channels, options.shape),
      // As with several TCP connections: a message that continues the stream's last one may come another way,
      // so the receiver must not write to its place before it has the header.
      receiver_(inbox_, outbox_, limits_, true),
      channels_(channels.size()) {
  for (size_t i = 0; i < channels.size(); ++i) {
    channels_[i].outgoing_slots = channels[i].outgoing + options.shape.header_bytes();
    channels_[i].incoming_slots = channels[i].incoming + options.shape.header_bytes();
  }
}

RdmaConnection::~RdmaConnection() = default;

Status RdmaConnection::prepare() {
  const uint32_t receives = options_.queue_pair.receives;
  auto memory = map_plain(size_t{receives + kSendBuffers} * kPieceBytes);
  TUTTI_TRY(memory.status());
  pieces_memory_ = std::move(*memory);
  auto region = Region::make(verbs_, device_.domain(), pieces_memory_.base(), pieces_memory_.bytes(),
                             IBV_ACCESS_LOCAL_WRITE);
  TUTTI_TRY(region.status());
  pieces_ = std::move(*region);
  for (uint32_t i = 0; i < kSendBuffers; ++i) free_buffers_.push_back(static_cast<int32_t>(receives + i));
  auto pair = QueuePair::make(verbs_, device_, port_, options_.queue_pair);
  TUTTI_TRY(pair.status());
  pair_ = std::move(*pair);
  for (uint32_t i = 0; i < receives; ++i) TUTTI_TRY(post_receive(i));
  first_packet_ = std::random_device()() & kCountMask;
  const auto hello = encode({.rank = options_.rank,
                             .epoch = options_.epoch,
                             .queue_pair = pair_->number(),
                             .first_packet = first_packet_,
                             .receive_count = receives,
                             .piece_bytes = kPieceBytes,
                             .port = port_.address});
  // A fresh socket has room for it.
  const ssize_t done = ::send(socket_.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (done == static_cast<ssize_t>(hello.size())) return Status::ok();
  return {Code::kPeerLost, format("rank %u has closed its connection during set-up", options_.peer)};
}

Status RdmaConnection::post_receive(uint32_t index) {
  ibv_sge target{.addr = reinterpret_cast<uint64_t>(pieces_memory_.base()) + uint64_t{index} * kPieceBytes,
                 .length = kPieceBytes,
                 .lkey = pieces_.local_key()};
  ibv_recv_wr request{};
  request.wr_id = WorkId{.connection = options_.number, .receive = index}.pack();
  request.sg_list = &target;
  request.num_sge = 1;
  return pair_->post(request);
}

Status RdmaConnection::receive_hello() {
  const size_t have = hello_bytes_.size();
  hello_bytes_.resize(kHelloBytes);
  const ssize_t done = ::recv(socket_.get(), hello_bytes_.data() + have, kHelloBytes - have, MSG_DONTWAIT);
  const int error = errno;
  hello_bytes_.resize(have + static_cast<size_t>(std::max<ssize_t>(done, 0)));
  if (done > 0 || (done < 0 && (error == EAGAIN || error == EINTR))) return Status::ok();
  return {Code::kPeerLost, format("rank %u has closed its connection during set-up", options_.peer)};
}

Status RdmaConnection::greet() {
  if (phase_ == Phase::kGreeting) {
    TUTTI_TRY(receive_hello());
    if (hello_bytes_.size() < kHelloBytes) return Status::ok();
    auto hello = decode_hello(std::span<const std::byte, kHelloBytes>(hello_bytes_),
                              {.rank = options_.peer,
                               .epoch = options_.epoch,
                               .piece_bytes = kPieceBytes,
                               .is_ethernet = port_.address.is_ethernet});
    if (!hello)
      return {hello.status().code(),
              format("rank %u: %s", options_.peer, std::string(hello.status().text()).c_str())};
    hello_ = std::move(*hello);
    TUTTI_TRY(pair_->join(first_packet_, hello_));
    (void)!::send(socket_.get(), &kJoined, 1, MSG_NOSIGNAL | MSG_DONTWAIT);  // the end of the socket tells
    phase_ = Phase::kJoining;
  }
  if (phase_ == Phase::kJoining) {
    char answer = 0;
    const ssize_t done = ::recv(socket_.get(), &answer, 1, MSG_DONTWAIT);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) return Status::ok();
    if (done != 1 || answer != kJoined)
      return {Code::kPeerLost, format("rank %u has closed its connection during set-up", options_.peer)};
    phase_ = Phase::kProving;
    post_piece(Piece::kReady, {}, {});
  }
  if (phase_ != Phase::kProving) return Status::ok();
  char unread = 0;
  const bool is_gone = ::recv(socket_.get(), &unread, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  if (is_gone) poll_();  // it may have gone after its ready piece
  if (!failure_) return {failure_.code(), std::string(failure_.text()) + ". TUTTI_TRANSPORT=tcp avoids RDMA"};
  if (has_passed_ && sent_.empty()) {
    phase_ = Phase::kUsable;
  } else if (is_gone) {
    return {Code::kPeerLost, format("rank %u has closed its connection during set-up", options_.peer)};
  }
  return Status::ok();
}

bool RdmaConnection::advance() {
  const bool moved = poll_();
  return send() || moved;
}

void RdmaConnection::advance_fully() {
  while (advance()) {
  }
}

bool RdmaConnection::drained() const {
  return state_ != PeerState::kOpen || (!streamed_ && !owes_ && !outbox_.has_waiting());
}

/// Whether the device takes so many more requests, and the peer another piece. The peer's last receive is
/// kept for send_window(): two ranks that have used up all other receives tell each other so.
bool RdmaConnection::has_room(uint32_t requests) const {
  return state_ == PeerState::kOpen && !free_buffers_.empty() &&
         requests_used_ + requests <= options_.queue_pair.sends &&
         pieces_sent_ - pieces_confirmed_ + 1 < hello_.receive_count;
}

bool RdmaConnection::send() {
  if (state_ != PeerState::kOpen || phase_ != Phase::kUsable) return false;
  bool moved = send_bytes();
  // One run of every channel in turn, so that no channel waits for all of another one.
  for (bool more = true; more;) {
    more = false;
    for (uint32_t channel = 0; channel < limits_.channels && !streamed_; ++channel) {
      if (outbox_.ready(channel)) more |= queue_run(channel);
    }
    moved |= more;
  }
  owes_ = !send_grants();
  owes_ |= !send_credits();
  owes_ |= !send_window();
  if (wants_end_ && drained() && has_room(1)) {
    wants_end_ = false;
    post_piece(Piece::kEnd, {}, {.bytes = 1});
  }
  return moved;
}

bool RdmaConnection::queue_run(uint32_t index) {
  Channel& channel = channels_[index];
  if (!has_room(kRunMessages + 1)) return false;
  const uint32_t message_bytes = outbox_.next_bytes(index);
  const bool is_large = !tcp::Outbox::is_packed(message_bytes);
  if (is_large && !channel.has_asked) {
    channel.has_asked = true;
    const iovec ask = part(&index, sizeof(index));
    post_piece(Piece::kAsk, std::span(&ask, 1), {});
  }
  const uint64_t most =
      is_large ? std::min(kRunBytes, uint64_t{kRunMessages} * message_bytes) : kStreamedRunBytes;
  const tcp::OutFrame frame = outbox_.take(index, most, inbox_.report(index));
  unconfirmed_bytes_ += frame.bytes;
  if (is_large && channel.grant && lies_in_slots(channel, frame)) {
    send_written(frame);
  } else {
    streamed_ = frame;
    streamed_bytes_ = 0;
    send_bytes();
  }
  return true;
}

bool RdmaConnection::send_bytes() {
  bool moved = false;
  while (streamed_ && has_room(1)) {
    std::array<iovec, 8> parts{};
    const size_t count = outbox_.gather(*streamed_, streamed_bytes_, parts.data(), parts.size());
    uint64_t bytes = 0;
    size_t used = 0;
    for (; used < count && bytes < kPieceBytes; ++used) {
      parts[used].iov_len = std::min<uint64_t>(parts[used].iov_len, kPieceBytes - bytes);
      bytes += parts[used].iov_len;
    }
    post_piece(Piece::kBytes, std::span(parts.data(), used), {.bytes = bytes});
    streamed_bytes_ += bytes;
    moved = true;
    if (streamed_bytes_ < streamed_->bytes) continue;
    outbox_.complete(*streamed_);  // all of it has been copied
    streamed_.reset();
  }
  return moved;
}

/// Whether the device may read all payloads. Those in shared memory travel as references, wherever they lie.
bool RdmaConnection::lies_in_slots(const Channel& channel, const tcp::OutFrame& frame) const {
  std::array<iovec, kRunMessages> parts{};
  const size_t count = outbox_.gather(frame, tcp::kHeaderBytes, parts.data(), parts.size());
  return std::all_of(
      parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count), [&](const iovec& one) {
        const auto* payload = static_cast<const std::byte*>(one.iov_base);
        return payload >= channel.outgoing_slots && payload < channel.outgoing_slots + slots_bytes();
      });
}

void RdmaConnection::send_written(const tcp::OutFrame& frame) {
  iovec head{};
  outbox_.gather(frame, 0, &head, 1);
  const uint32_t writes = write_payloads(frame);
  post_piece(Piece::kWritten, std::span(&head, 1),
             {.requests = writes + 1, .bytes = frame.bytes, .frame = frame});
}

/// The payloads of a frame are visible at the peer before the piece that follows them. Returns the number of
/// requests.
uint32_t RdmaConnection::write_payloads(const tcp::OutFrame& frame) {
  const Channel& channel = channels_[frame.channel];
  const uint64_t slot_bytes = options_.shape.slot_bytes;
  uint32_t requests = 0;
  for (uint64_t i = 0; i < frame.count && state_ == PeerState::kOpen;) {
    const uint64_t slot = (frame.first + i) & (options_.shape.slots - 1);
    // Full slots are adjacent.
    const uint64_t run = frame.message_bytes == slot_bytes
                             ? std::min(uint64_t{frame.count} - i, uint64_t{options_.shape.slots} - slot)
                             : 1;
    ibv_sge source{.addr = reinterpret_cast<uint64_t>(channel.outgoing_slots) + slot * slot_bytes,
                   .length = static_cast<uint32_t>(run * frame.message_bytes),
                   .lkey = channel.outgoing.local_key()};
    ibv_send_wr request{};
    request.wr_id = WorkId{.connection = options_.number, .receive = WorkId::kSend}.pack();
    request.sg_list = &source;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = channel.grant->address + slot * slot_bytes;
    request.wr.rdma.rkey = channel.grant->key;
    if (const Status posted = pair_->post(request); !posted)
      end(PeerState::kTorn, std::string(posted.text()));
    ++requests;
    i += run;
  }
  return requests;
}

/// Answers what the peer has asked. False: no room.
bool RdmaConnection::send_grants() {
  for (uint32_t index = 0; index < limits_.channels; ++index) {
    Channel& channel = channels_[index];
    if (!channel.owes_grant) continue;
    if (!has_room(1)) return false;
    channel.owes_grant = false;
    const Grant grant{.channel = index,
                      .key = channel.incoming.remote_key(),
                      .address = reinterpret_cast<uint64_t>(channel.incoming_slots)};
    const iovec bytes = part(&grant, sizeof(grant));
    post_piece(Piece::kGrant, std::span(&bytes, 1), {});
  }
  return true;
}

/// Sends credits for channels without messages, once half of the ring is unreported. The peer can use the
/// other half meanwhile. False: no room.
bool RdmaConnection::send_credits() {
  for (uint32_t index = 0; index < limits_.channels; ++index) {
    if (inbox_.unreported(index) * 2 < options_.shape.slots) continue;
    // A frame that has not begun carries an older credit, which must not come after this one.
    if (!has_room(1) || (streamed_ && streamed_bytes_ == 0)) return false;
    const tcp::OutFrame frame = outbox_.make_credit(index, inbox_.report(index));
    iovec head{};
    outbox_.gather(frame, 0, &head, 1);
    post_piece(Piece::kWritten, std::span(&head, 1), {});
    outbox_.complete(frame);  // it has been copied
  }
  return true;
}

/// Tells the peer of its free receives, if nothing else has told it. False: no room.
bool RdmaConnection::send_window() {
  if ((pieces_received_ - pieces_reported_) * 2 < options_.queue_pair.receives) return true;
  if (pieces_sent_ - pieces_confirmed_ >= hello_.receive_count || free_buffers_.empty() ||
      requests_used_ >= options_.queue_pair.sends)
    return false;
  post_piece(Piece::kWindow, {}, {});
  return true;
}

void RdmaConnection::post_piece(Piece kind, std::span<const iovec> parts, Sent sent) {
  if (state_ != PeerState::kOpen) return;
  uint64_t bytes = 0;
  for (const iovec& one : parts) bytes += one.iov_len;
  assert(bytes <= kPieceBytes);
  ibv_sge source{.addr = 0, .length = static_cast<uint32_t>(bytes), .lkey = 0};
  ibv_send_wr request{};
  request.wr_id = WorkId{.connection = options_.number, .receive = WorkId::kSend}.pack();
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(static_cast<uint32_t>(kind) << kKindShift | (pieces_received_ & kCountMask));
  request.send_flags = IBV_SEND_SIGNALED;
  if (bytes > 0) {
    request.sg_list = &source;
    request.num_sge = 1;
    if (parts.size() == 1 && bytes <= pair_->inline_bytes()) {
      request.send_flags |= IBV_SEND_INLINE;
      source.addr = reinterpret_cast<uint64_t>(parts[0].iov_base);
    } else {
      sent.buffer = free_buffers_.back();
      free_buffers_.pop_back();
      std::byte* buffer = pieces_memory_.base() + static_cast<size_t>(sent.buffer) * kPieceBytes;
      source.addr = reinterpret_cast<uint64_t>(buffer);
      source.lkey = pieces_.local_key();
      for (const iovec& one : parts) {
        std::memcpy(buffer, one.iov_base, one.iov_len);
        buffer += one.iov_len;
      }
    }
  }
  pieces_reported_ = pieces_received_;
  ++pieces_sent_;
  requests_used_ += sent.requests;
  sent_.push_back(sent);
  if (const Status posted = pair_->post(request); !posted) end(PeerState::kTorn, std::string(posted.text()));
}

void RdmaConnection::complete(const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  if (completion.status != IBV_WC_SUCCESS) {
    // Requests that failed or were dropped will not be confirmed.
    sent_.clear();
    unconfirmed_bytes_ = 0;
    if (state_ == PeerState::kOpen) end(PeerState::kTorn, describe_completion(completion.status));
    return;
  }
  if (id.receive == WorkId::kSend) return sent_one();
  if (state_ == PeerState::kOpen) receive(completion);
}

/// The oldest piece has reached the peer's device.
void RdmaConnection::sent_one() {
  if (sent_.empty()) return;  // stopped
  const Sent sent = sent_.front();
  sent_.pop_front();
  requests_used_ -= sent.requests;
  unconfirmed_bytes_ -= sent.bytes;
  if (sent.buffer >= 0) free_buffers_.push_back(sent.buffer);
  if (sent.frame) outbox_.complete(*sent.frame);
}

void RdmaConnection::receive(const ibv_wc& completion) {
  const auto index = static_cast<uint32_t>(WorkId::unpack(completion.wr_id).receive);
  const uint32_t word = ntohl(completion.imm_data);
  const uint32_t kind = word >> kKindShift;
  const uint32_t confirmed = (word - pieces_confirmed_) & kCountMask;
  Status taken;
  if (kind >= kPieces || (completion.wc_flags & IBV_WC_WITH_IMM) == 0 || completion.byte_len > kPieceBytes) {
    taken = Status(Code::kPeerLost, format("a piece of kind %u with %u bytes", kind, completion.byte_len));
  } else if (confirmed > pieces_sent_ - pieces_confirmed_) {
    taken = Status(Code::kPeerLost, format("a receipt for %u pieces, where %u were under way", confirmed,
                                           pieces_sent_ - pieces_confirmed_));
  } else {
    pieces_confirmed_ += confirmed;
    taken = take_piece(static_cast<Piece>(kind), pieces_memory_.base() + size_t{index} * kPieceBytes,
                       completion.byte_len);
  }
  if (taken && state_ == PeerState::kOpen) taken = post_receive(index);
  ++pieces_received_;
  if (!taken) end(PeerState::kTorn, std::string(taken.text()));
}

Status RdmaConnection::take_piece(Piece kind, const std::byte* bytes, uint32_t count) {
  switch (kind) {
    case Piece::kBytes: return take_bytes(bytes, count);
    case Piece::kWritten: return take_written(bytes, count);
    case Piece::kAsk: return take_ask(bytes, count);
    case Piece::kGrant: return take_grant(bytes, count);
    case Piece::kWindow: return Status::ok();
    case Piece::kReady: has_passed_ = true; return Status::ok();
    case Piece::kEnd:
      if (receiver_.inside()) return {Code::kPeerLost, "an end within a frame"};
      end(PeerState::kEnded, "it has closed its connection");
      return Status::ok();
  }
  return {Code::kPeerLost, "a piece of no kind"};
}

Status RdmaConnection::take_bytes(const std::byte* bytes, size_t count) {
  while (count > 0) {
    std::array<iovec, 8> parts{};
    const size_t used = receiver_.gather(parts.data(), parts.size());
    size_t copied = 0;
    for (size_t i = 0; i < used && copied < count; ++i) {
      const size_t now = std::min(parts[i].iov_len, count - copied);
      std::memcpy(parts[i].iov_base, bytes + copied, now);
      copied += now;
    }
    TUTTI_TRY(receiver_.take(copied));
    bytes += copied;
    count -= copied;
  }
  return Status::ok();
}

Status RdmaConnection::take_written(const std::byte* bytes, uint32_t count) {
  if (count != tcp::kHeaderBytes) return {Code::kPeerLost, format("a header of %u bytes", count)};
  auto frame = tcp::decode(bytes, limits_);
  TUTTI_TRY(frame.status());
  if (!outbox_.accept_credit(frame->channel, frame->credit, false)) {
    return {Code::kPeerLost,
            format("a credit up to %u on channel %u, more than was sent", frame->credit, frame->channel)};
  }
  if (frame->kind == tcp::FrameKind::kCredit) return Status::ok();
  if (!channels_[frame->channel].has_granted || tcp::Outbox::is_packed(frame->bytes)) {
    return {Code::kPeerLost, format("%u messages of %u bytes written without a grant on channel %u",
                                    frame->count, frame->bytes, frame->channel)};
  }
  auto first = inbox_.claim(*frame);
  TUTTI_TRY(first.status());
  for (uint64_t number = *first; number < *first + frame->count; ++number) {
    inbox_.place(frame->channel, number, frame->bytes);
    inbox_.publish(frame->channel, number, frame->signature, frame->bytes);
  }
  return Status::ok();
}

Status RdmaConnection::take_ask(const std::byte* bytes, uint32_t count) {
  uint32_t index = 0;
  if (count != sizeof(index)) return {Code::kPeerLost, format("a question of %u bytes", count)};
  std::memcpy(&index, bytes, sizeof(index));
  if (index >= limits_.channels || channels_[index].has_granted)
    return {Code::kPeerLost, format("a question for channel %u", index)};
  Channel& channel = channels_[index];
  auto region = register_slots(channel.incoming_slots, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!region) return Status::ok();  // then the peer goes on without
  channel.incoming = std::move(*region);
  channel.has_granted = channel.owes_grant = true;
  return Status::ok();
}

Status RdmaConnection::take_grant(const std::byte* bytes, uint32_t count) {
  Grant grant{};
  if (count != sizeof(grant)) return {Code::kPeerLost, format("a grant of %u bytes", count)};
  std::memcpy(&grant, bytes, sizeof(grant));
  if (grant.channel >= limits_.channels || !channels_[grant.channel].has_asked ||
      channels_[grant.channel].grant)
    return {Code::kPeerLost, format("a grant for channel %u, where none was asked for", grant.channel)};
  Channel& channel = channels_[grant.channel];
  auto region = register_slots(channel.outgoing_slots, 0);
  if (!region) return Status::ok();
  channel.outgoing = std::move(*region);
  channel.grant = grant;
  return Status::ok();
}

Result<Region> RdmaConnection::register_slots(std::byte* slots, int rights) {
  if (budget_.left_bytes < slots_bytes()) return Status(Code::kOutOfMemory, "the budget is used up");
  auto region = Region::make(verbs_, device_.domain(), slots, slots_bytes(), rights);
  // A limit of the system: do not try again.
  budget_.left_bytes = region ? budget_.left_bytes - slots_bytes() : 0;
  return region;
}

void RdmaConnection::finish() {
  if (state_ != PeerState::kOpen) return;
  wants_end_ = true;
  unconfirmed_bytes_ += 1;
  send();
}

void RdmaConnection::look_at_socket() {
  if (state_ != PeerState::kOpen) return;
  char byte = 0;
  const ssize_t done = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
  if (done < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // The peer's last pieces came before the end of its socket.
  poll_();
  if (state_ == PeerState::kOpen)
    end(PeerState::kTorn, done > 0 ? "it sent what is not part of the protocol"
                                   : "its process has ended, or it has closed the connection");
}

void RdmaConnection::fail(const std::string& what) {
  if (state_ == PeerState::kOpen) end(PeerState::kTorn, what);
}

std::string RdmaConnection::who() const {
  const std::string here = describe(port_.address);
  if (phase_ == Phase::kGreeting) return format("rank %u (from %s)", options_.peer, here.c_str());
  return format("rank %u (%s, from %s)", options_.peer, describe(hello_.port).c_str(), here.c_str());
}

void RdmaConnection::end(PeerState state, const std::string& what) {
  if (state_ != PeerState::kOpen) return;
  state_ = state;
  failure_ =
      Status(Code::kPeerLost, who() + (state == PeerState::kEnded ? " has ended: " : " is lost: ") + what);
  if (state == PeerState::kTorn) {
    pair_->stop();
    sent_.clear();
    unconfirmed_bytes_ = 0;
  }
}

}  // namespace tutti::rdma
