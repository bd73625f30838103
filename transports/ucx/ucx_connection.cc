#include "transports/ucx/ucx_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.h"
#include "core/random.h"
#include "transports/tcp/stream.h"
#include "transports/ucx/errors.h"

namespace tutti::ucx {
namespace {

/// Of one message. A longer one would leave the peer idle until all of it has come.
constexpr uint64_t kRunBytesMost = 256 * 1024;
/// Of payloads that are packed behind their header.
constexpr uint64_t kPackedRunBytesMost = 64 * 1024;
constexpr uint32_t kSendsMost = 64;
/// Of messages during set-up: too long for the way of short ones, which needs less of UCX.
constexpr std::array<std::byte, 1024> kPadding{};
/// So many short frames fit a socket's buffer, whatever its size: 4 KiB with the kernel's own bytes.
constexpr uint64_t kShortFramesMost = 4;
constexpr uint64_t kShortBytes = 512;
/// A peer that computes reads this rank's end late. UCX and the kernel have the data meanwhile.
constexpr uint64_t kSeenPatienceNs = 1'000'000'000;
/// For messages on their way, after the peer's end and the end of its socket.
constexpr uint64_t kMissingPatienceNs = 2'000'000'000;
/// For payloads on their way into posted receives that are withdrawn.
constexpr uint64_t kWithdrawPatienceNs = 100'000'000;
constexpr uint64_t kCancelPatienceNs = 1'000'000'000;

Status closed_in_set_up(uint32_t peer) {
  return {Code::kPeerLost, format("rank %u has closed its connection during set-up", peer)};
}

}  // namespace

Result<std::unique_ptr<UcxConnection>> UcxConnection::make(Worker& worker, std::span<const std::byte> address,
                                                           std::span<const ChannelRings> channels,
                                                           FileDescriptor socket, const UcxOptions& options) {
  std::unique_ptr<UcxConnection> connection(new UcxConnection(worker, channels, std::move(socket), options));
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(&connection->token_, 1))));
  TUTTI_TRY(connection->open_endpoint(address));
  TUTTI_TRY(connection->say_hello());
  return connection;
}

UcxConnection::UcxConnection(Worker& worker, std::span<const ChannelRings> channels, FileDescriptor socket,
                             const UcxOptions& options)
    : worker_(worker),
      ucp_(worker.ucp()),
      options_(options),
      socket_(std::move(socket)),
      address_(tcp::peer_address(socket_.get())),
      limits_{.channels = static_cast<uint32_t>(channels.size()),
              .slots = options.shape.slots,
              .slot_bytes = options.shape.slot_bytes,
              .epoch = options.epoch},
      outbox_(channels, options.shape, options.epoch),
      inbox_(channels, options.shape) {
  for (const ChannelRings& channel : channels)
    incoming_slots_.push_back(channel.incoming + options.shape.header_bytes());
}

UcxConnection::~UcxConnection() = default;

Status UcxConnection::open_endpoint(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_failure;
  params.err_handler.arg = this;
  const ucs_status_t status = ucp_.ep_create(worker_.get(), &params, &endpoint_);
  if (status == UCS_OK) return Status::ok();
  endpoint_ = nullptr;
  return ucx_error(ucp_, format("connecting to %s", who().c_str()).c_str(), status);
}

Status UcxConnection::say_hello() {
  const auto hello = encode(
      Hello{.rank = options_.rank, .epoch = options_.epoch, .connection = options_.number, .token = token_});
  // A fresh socket has room for it.
  const ssize_t done = ::send(socket_.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return done == static_cast<ssize_t>(hello.size()) ? Status::ok() : closed_in_set_up(options_.peer);
}

Status UcxConnection::receive_hello() {
  const size_t have = hello_bytes_.size();
  hello_bytes_.resize(kHelloBytes);
  const ssize_t done = ::recv(socket_.get(), hello_bytes_.data() + have, kHelloBytes - have, MSG_DONTWAIT);
  const int error = errno;
  hello_bytes_.resize(have + static_cast<size_t>(std::max<ssize_t>(done, 0)));
  if (done > 0 || (done < 0 && (error == EAGAIN || error == EINTR))) return Status::ok();
  return closed_in_set_up(options_.peer);
}

Status UcxConnection::greet() {
  if (phase_ == Phase::kGreeting) {
    TUTTI_TRY(receive_hello());
    if (hello_bytes_.size() < kHelloBytes) return Status::ok();
    auto hello = decode_hello(std::span<const std::byte, kHelloBytes>(hello_bytes_),
                              {.rank = options_.peer, .epoch = options_.epoch});
    if (!hello) return {hello.status().code(), who() + " sent " + std::string(hello.status().text())};
    hello_ = *hello;
    phase_ = Phase::kProving;
    post(MessageHead::Kind::kReady, std::nullopt);
  }
  if (phase_ == Phase::kProving) {
    if (!fault_.empty()) return failed_in_set_up();
    if (!has_passed_ || sends_ > 0) return check_socket();
    // UCX queues long messages until its lanes are connected, which takes the peer's progress.
    if (!post(MessageHead::Kind::kProbe, std::nullopt)) return Status::ok();
    if (!send_note({.kind = Note::Kind::kUsable})) return closed_in_set_up(options_.peer);
    phase_ = Phase::kWaiting;
  }
  if (phase_ == Phase::kWaiting) {
    auto note = read_note();
    TUTTI_TRY(note.status());
    if (*note) phase_ = Phase::kUsable;
    // The peer may still wait for what the endpoint has lost.
    if (!*note && !fault_.empty()) return failed_in_set_up();
    if (socket_has_ended_) return closed_in_set_up(options_.peer);
  }
  return Status::ok();
}

Status UcxConnection::failed_in_set_up() const {
  return {Code::kPeerLost, who() + " is lost: " + fault_ + ". TUTTI_TRANSPORT=tcp avoids UCX"};
}

/// Whether the peer has left during set-up.
Status UcxConnection::check_socket() {
  char unread = 0;
  const bool is_gone = ::recv(socket_.get(), &unread, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  return is_gone ? closed_in_set_up(options_.peer) : Status::ok();
}

bool UcxConnection::advance() {
  const bool moved = worker_.progress();
  return turn() || moved;
}

void UcxConnection::advance_fully() {
  look_at_socket();
  while (advance()) {
  }
}

bool UcxConnection::turn() {
  settle();
  if (state_ != PeerState::kOpen || phase_ != Phase::kUsable) return false;
  const bool moved = send();
  make_sure();
  return moved;
}

bool UcxConnection::drained() const {
  return state_ != PeerState::kOpen || (sends_ == 0 && !is_unsure_ && !outbox_.has_waiting());
}

bool UcxConnection::send() {
  if (has_finished_) return false;
  bool moved = false;
  // One run of every channel in turn, so that no channel waits for all of another one.
  for (bool more = true; more;) {
    more = false;
    for (uint32_t channel = 0; channel < limits_.channels; ++channel) {
      if (sends_ >= kSendsMost || !outbox_.ready(channel)) continue;
      const uint32_t bytes = outbox_.next_bytes(channel);
      const uint64_t most = tcp::Outbox::is_packed(bytes)
                                ? kPackedRunBytesMost
                                : std::min(kRunBytesMost, Sent::kParts * uint64_t{bytes});
      post(MessageHead::Kind::kFrame, outbox_.take(channel, most, inbox_.report(channel)));
      more = fault_.empty();
    }
    moved |= more;
  }
  return send_credits() || moved;
}

/// For channels without messages, once half of the ring is unreported. The peer can use the other half
/// meanwhile.
bool UcxConnection::send_credits() {
  bool moved = false;
  for (uint32_t channel = 0; channel < limits_.channels; ++channel) {
    if (inbox_.unreported(channel) * 2 < options_.shape.slots || !outbox_.credit_free(channel)) continue;
    if (sends_ >= kSendsMost) break;
    post(MessageHead::Kind::kFrame, outbox_.make_credit(channel, inbox_.report(channel)));
    moved = true;
  }
  return moved;
}

bool UcxConnection::post(MessageHead::Kind kind, std::optional<tcp::OutFrame> frame) {
  if (free_sent_.empty()) free_sent_.push_back(sent_.emplace_back(std::make_unique<Sent>()).get());
  Sent& sent = *free_sent_.back();
  free_sent_.pop_back();
  sent.owner = this;
  sent.frame = frame;
  sent.head = {};
  encode(MessageHead{.token = hello_.token,
                     .connection = hello_.connection,
                     .kind = kind,
                     .received = static_cast<uint32_t>(frames_received_) & kReceivedMask},
         sent.head.data());
  size_t parts = 0;
  uint64_t bytes = 0;
  if (frame) {
    iovec header{};
    outbox_.gather(*frame, 0, &header, 1);
    std::memcpy(sent.head.data() + kMessageHeadBytes - tcp::kHeaderBytes, header.iov_base, tcp::kHeaderBytes);
    bytes = frame->bytes - tcp::kHeaderBytes;
    std::array<iovec, Sent::kParts> pieces{};
    if (bytes > 0) parts = outbox_.gather(*frame, tcp::kHeaderBytes, pieces.data(), pieces.size());
    for (size_t i = 0; i < parts; ++i)
      sent.parts[i] = {.buffer = pieces[i].iov_base, .length = pieces[i].iov_len};
    unconfirmed_bytes_.fetch_add(frame->bytes, std::memory_order_relaxed);
    ++frames_sent_;
    if (frame->bytes > kShortBytes) large_sent_ = frames_sent_;
    is_unsure_ = true;
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_sent;
  params.user_data = &sent;
  if (phase_ != Phase::kUsable && !frame) {
    sent.parts[parts++] = {.buffer = const_cast<std::byte*>(kPadding.data()), .length = kPadding.size()};
    bytes = kPadding.size();
  }
  const void* buffer = parts > 0 ? sent.parts[0].buffer : nullptr;
  size_t count = bytes;
  if (parts > 1) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = UCP_DATATYPE_IOV;
    buffer = sent.parts.data();
    count = parts;
  }
  ++sends_;
  const ucs_status_ptr_t request =
      ucp_.am_send_nbx(endpoint_, kMessageId, sent.head.data(), sent.head.size(), buffer, count, &params);
  if (UCS_PTR_IS_ERR(request)) {
    on_sent(nullptr, UCS_PTR_STATUS(request), &sent);
  } else if (request == nullptr) {
    complete(sent);
  }
  return request == nullptr;
}

void UcxConnection::complete(Sent& sent) {
  --sends_;
  if (sent.frame) outbox_.complete(*sent.frame);
  free_sent_.push_back(&sent);
}

template <class Work>
void UcxConnection::shield(Work&& work) noexcept {
  try {
    work();
  } catch (...) {
    if (is_fault_news()) fault_.swap(ready_fault_);
  }
}

void UcxConnection::on_sent(void* request, ucs_status_t status, void* user) noexcept {
  auto& sent = *static_cast<Sent*>(user);
  UcxConnection& self = *sent.owner;
  if (request != nullptr) self.ucp_.request_free(request);
  self.shield([&] {
    if (status == UCS_OK) return self.complete(sent);
    --self.sends_;
    self.fault(describe(self.ucp_, status));
  });
}

/// UCX completes a send when it needs the memory no more. The last bytes may still wait in UCX for a full
/// socket, and UCX's flush waits for the peer's next call. But UCX takes a message only when all before it
/// have left. So a probe shows that. A few short frames fit any socket.
void UcxConnection::make_sure() {
  if (is_unsure_ && sends_ == 0) {
    is_unsure_ = false;
    if (frames_sent_ - frames_confirmed_ > kShortFramesMost || frames_confirmed_ < large_sent_)
      post(MessageHead::Kind::kProbe, std::nullopt);
  }
  if (sends_ == 0 && !is_unsure_)
    unconfirmed_bytes_.store(seen_limit_ns_ > 0 ? 1 : 0, std::memory_order_relaxed);
}

void UcxConnection::on_failure(void* user, ucp_ep_h /*endpoint*/, ucs_status_t status) noexcept {
  auto& self = *static_cast<UcxConnection*>(user);
  self.shield([&] { self.fault(describe(self.ucp_, status)); });
}

ucs_status_t UcxConnection::receive(const MessageHead& head, const std::byte* header, void* data,
                                    size_t bytes, bool is_rendezvous) noexcept {
  if (state_ != PeerState::kOpen || violation_) return UCS_OK;
  bool is_started = false;
  shield([&] {
    Status taken = take_receipt(head.received);
    has_passed_ |= head.kind == MessageHead::Kind::kReady;
    if (taken && head.kind == MessageHead::Kind::kFrame)
      taken = take_frame(header, data, bytes, is_rendezvous, is_started);
    if (taken) return;
    fault_ = taken.text();
    violation_ = true;
  });
  return is_started ? UCS_INPROGRESS : UCS_OK;
}

/// Messages may overtake each other: an older receipt says nothing.
Status UcxConnection::take_receipt(uint32_t received) {
  const uint64_t more = tcp::distance(frames_confirmed_, received, kReceivedMask);
  if (more > kReceivedMask / 2) return Status::ok();
  if (more > frames_sent_ - frames_confirmed_) {
    return {Code::kPeerLost, format("a receipt for %llu frames, where %llu were under way",
                                    static_cast<unsigned long long>(more),
                                    static_cast<unsigned long long>(frames_sent_ - frames_confirmed_))};
  }
  frames_confirmed_ += more;
  return Status::ok();
}

Status UcxConnection::take_frame(const std::byte* header, void* data, size_t bytes, bool is_rendezvous,
                                 bool& is_started) {
  auto frame = tcp::decode(header, limits_);
  TUTTI_TRY(frame.status());
  if (uint64_t{frame->count} * frame->bytes != bytes) {
    return {Code::kPeerLost,
            format("a frame of %u messages of %u bytes with %zu bytes", frame->count, frame->bytes, bytes)};
  }
  if (!outbox_.accept_credit(frame->channel, frame->credit, true)) {
    return {Code::kPeerLost,
            format("a credit up to %u on channel %u, more than was sent", frame->credit, frame->channel)};
  }
  if (frame->kind == tcp::FrameKind::kCredit) {
    ++frames_received_;
    return Status::ok();
  }
  auto first = inbox_.claim(*frame);
  TUTTI_TRY(first.status());
  if (is_rendezvous && bytes > 0) {
    TUTTI_TRY(begin_filling(*frame, *first, data, bytes));
    is_started = true;  // UCX keeps the data; not if memory was short before it had the request
    return Status::ok();
  }
  copy_payloads(*frame, *first, static_cast<const std::byte*>(data));
  return Status::ok();
}

void UcxConnection::copy_payloads(const tcp::Frame& frame, uint64_t first, const std::byte* data) {
  for (uint64_t number = first; number < first + frame.count; ++number) {
    std::byte* const place = inbox_.place(frame.channel, number, frame.bytes);
    if (frame.bytes > 0) std::memcpy(place, data, frame.bytes);
    data += frame.bytes;
    inbox_.publish(frame.channel, number, frame.signature, frame.bytes);
  }
  ++frames_received_;
}

bool UcxConnection::lies_in_slots(uint32_t channel, const std::byte* place) const {
  const std::byte* const slots = incoming_slots_[channel];
  return place >= slots && place < slots + uint64_t{options_.shape.slots} * options_.shape.slot_bytes;
}

Status UcxConnection::begin_filling(const tcp::Frame& frame, uint64_t first, void* data, size_t bytes) {
  if (free_filled_.empty()) free_filled_.push_back(filled_.emplace_back(std::make_unique<Filled>()).get());
  Filled& what = *free_filled_.back();
  free_filled_.pop_back();
  what.owner = this;
  what.frame = frame;
  what.first = first;
  what.parts.clear();
  what.is_offered = false;
  for (uint64_t number = first; number < first + frame.count; ++number) {
    std::byte* const place = inbox_.place(frame.channel, number, frame.bytes);
    // Short payloads lie in cells: no slot, but no posted receive either.
    what.is_offered |= frame.bytes > kInlineBytes && !lies_in_slots(frame.channel, place);
    if (!what.parts.empty() &&
        static_cast<std::byte*>(what.parts.back().buffer) + what.parts.back().length == place) {
      what.parts.back().length += frame.bytes;
    } else {
      what.parts.push_back({.buffer = place, .length = frame.bytes});
    }
  }
  ++fillings_;
  offered_fillings_ += what.is_offered ? 1 : 0;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = on_filled;
  params.user_data = &what;
  void* buffer = what.parts[0].buffer;
  size_t count = bytes;
  if (what.parts.size() > 1) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = UCP_DATATYPE_IOV;
    buffer = what.parts.data();
    count = what.parts.size();
  }
  const ucs_status_ptr_t request = ucp_.am_recv_data_nbx(worker_.get(), data, buffer, count, &params);
  if (request == nullptr) {
    on_filled(nullptr, UCS_OK, bytes, &what);
  } else if (UCS_PTR_IS_ERR(request)) {
    on_filled(nullptr, UCS_PTR_STATUS(request), 0, &what);
  }
  return Status::ok();
}

void UcxConnection::on_filled(void* request, ucs_status_t status, size_t bytes, void* user) noexcept {
  auto& what = *static_cast<Filled*>(user);
  UcxConnection& self = *what.owner;
  if (request != nullptr) self.ucp_.request_free(request);
  --self.fillings_;
  self.offered_fillings_ -= what.is_offered ? 1 : 0;
  self.shield([&] {
    if (status != UCS_OK) {
      self.fault(describe(self.ucp_, status));
    } else if (bytes != uint64_t{what.frame.count} * what.frame.bytes) {
      self.fault(format("a rendezvous of %zu bytes for %u messages of %u bytes", bytes, what.frame.count,
                        what.frame.bytes));
    } else {
      self.filled(what);
    }
    self.free_filled_.push_back(&what);
  });
}

void UcxConnection::filled(Filled& what) {
  const tcp::Frame& frame = what.frame;
  for (uint64_t number = what.first; number < what.first + frame.count; ++number)
    inbox_.publish(frame.channel, number, frame.signature, frame.bytes);
  ++frames_received_;
}

/// A rendezvous cannot be taken back. It either ends soon, or the endpoint is closed under it.
void UcxConnection::withdraw() {
  const auto wait = [this](uint64_t patience_ns) {
    const uint64_t limit_ns = now_ns() + patience_ns;
    while (offered_fillings_ > 0 && now_ns() < limit_ns) {
      worker_.progress();
      settle();
    }
  };
  if (offered_fillings_ == 0) return;
  wait(kWithdrawPatienceNs);
  if (offered_fillings_ == 0) return;
  if (state_ == PeerState::kOpen)
    end(PeerState::kTorn, "it has not sent the rest of a message whose receive was withdrawn");
  wait(kCancelPatienceNs);
}

void UcxConnection::finish() {
  if (state_ != PeerState::kOpen || has_finished_) return;
  has_finished_ = true;
  if (!send_note({.kind = Note::Kind::kEnd, .frames = frames_sent_})) return;
  seen_limit_ns_ = now_ns() + kSeenPatienceNs;
  unconfirmed_bytes_.fetch_add(1, std::memory_order_relaxed);
}

bool UcxConnection::send_note(const Note& note) {
  const auto bytes = encode(note);
  // A rank sends two notes at most: there is room.
  return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

Result<std::optional<Note>> UcxConnection::read_note() {
  while (!socket_has_ended_) {
    const size_t have = note_bytes_.size();
    note_bytes_.resize(kNoteBytes);
    const ssize_t done = ::recv(socket_.get(), note_bytes_.data() + have, kNoteBytes - have, MSG_DONTWAIT);
    const int error = errno;
    note_bytes_.resize(have + static_cast<size_t>(std::max<ssize_t>(done, 0)));
    if (done < 0 && (error == EAGAIN || error == EINTR)) break;
    if (done <= 0) {
      socket_has_ended_ = true;
    } else if (note_bytes_.size() == kNoteBytes) {
      auto note = decode_note(std::span<const std::byte, kNoteBytes>(note_bytes_));
      TUTTI_TRY(note.status());
      note_bytes_.clear();
      return std::optional<Note>(*note);
    }
  }
  return std::optional<Note>();
}

void UcxConnection::take_note(const Note& note) {
  if (note.kind == Note::Kind::kSeen) seen_limit_ns_ = 0;
  if (note.kind == Note::Kind::kEnd && !end_) end_ = note.frames;
}

void UcxConnection::look_at_socket() {
  if (phase_ != Phase::kUsable || socket_has_ended_) return settle();
  while (state_ == PeerState::kOpen) {
    const auto note = read_note();
    if (!note) return end(PeerState::kTorn, "it sent " + std::string(note.status().text()));
    if (!*note) break;
    take_note(**note);
  }
  if (socket_has_ended_) {
    missing_limit_ns_ = now_ns() + kMissingPatienceNs;
    worker_.drain();  // what came before
  }
  settle();
}

/// Draws conclusions from what callbacks and the socket have told.
void UcxConnection::settle() {
  if (state_ != PeerState::kOpen) {
    is_closed();
    return;
  }
  if (seen_limit_ns_ > 0 && now_ns() > seen_limit_ns_) seen_limit_ns_ = 0;
  if (phase_ != Phase::kUsable) return;
  if (violation_) return end(PeerState::kTorn, "it sent " + fault_);
  if (has_everything()) {
    send_note({.kind = Note::Kind::kSeen});
    return end(PeerState::kEnded, "it has closed its connection");
  }
  if (!fault_.empty()) {
    // A peer that has ended closes its endpoint. Its end came before.
    const std::string what = std::exchange(fault_, {});
    is_faulty_ = true;
    look_at_socket();
    worker_.drain();
    if (state_ != PeerState::kOpen) return;
    if (has_everything()) return settle();
    return end(PeerState::kTorn, what);
  }
  if (!socket_has_ended_) return;
  if (!end_) return end(PeerState::kTorn, "its process has ended, or it has closed the connection");
  if (now_ns() > missing_limit_ns_) {
    end(PeerState::kTorn, format("it has ended, and %llu of its messages have not come",
                                 static_cast<unsigned long long>(*end_ - frames_received_)));
  }
}

/// Whether a fault is the first one.
bool UcxConnection::is_fault_news() const {
  return state_ == PeerState::kOpen && fault_.empty() && !violation_ && !is_faulty_;
}

void UcxConnection::fault(std::string what) {
  if (is_fault_news()) fault_ = std::move(what);
}

std::string UcxConnection::who() const {
  return format("rank %u (UCX, %s)", options_.peer, address_.c_str());
}

void UcxConnection::end(PeerState state, const std::string& what) {
  if (state_ != PeerState::kOpen) return;
  state_ = state;
  failure_ =
      Status(Code::kPeerLost, who() + (state == PeerState::kEnded ? " has ended: " : " is lost: ") + what);
  seen_limit_ns_ = 0;
  unconfirmed_bytes_ = 0;
  if (state == PeerState::kTorn) close();
}

/// By force: everything that the peer must receive has left before. A close in good order would wait for
/// the peer.
void UcxConnection::close() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_.ep_close_nbx(endpoint_, &params);
  endpoint_ = nullptr;
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) closing_ = request;
}

bool UcxConnection::is_closed() {
  if (closing_ == nullptr) return endpoint_ == nullptr;
  if (ucp_.request_check_status(closing_) == UCS_INPROGRESS) return false;
  release_close();
  return true;
}

void UcxConnection::release_close() {
  if (closing_ == nullptr) return;
  ucp_.request_free(closing_);
  closing_ = nullptr;
}

}  // namespace tutti::ucx
