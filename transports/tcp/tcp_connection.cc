#include "transports/tcp/tcp_connection.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace tutti::tcp {
namespace {

/// Less with several connections, so that all have work.
constexpr uint64_t kRunBytesMost = 1024 * 1024;
constexpr uint64_t kSharedRunBytesMost = 64 * 1024;
/// Sent without reading afterwards: a message of 64 KiB, 10 us of work.
constexpr uint64_t kUnreadBytesMost = kHeaderBytes + 64 * 1024;

/// Both ends come to the same answer: an address is equal to another one on both sides.
bool is_renewable(std::span<const std::unique_ptr<Stream>> streams, const TcpRenewal& renewal) {
  return renewal.sockets != nullptr &&
         (renewal.includes_loopback ||
          std::ranges::none_of(streams, [](const auto& stream) { return stream->is_loopback(); }));
}

}  // namespace

TcpConnection::TcpConnection(std::span<const ChannelRings> channels,
                             std::vector<std::unique_ptr<Stream>> streams, const TcpOptions& options)
    : options_(options),
      outbox_(channels, options.shape, options.epoch),
      inbox_(channels, options.shape),
      run_bytes_most_(streams.size() > 1 ? kSharedRunBytesMost : kRunBytesMost) {
  assert(!streams.empty() && channels.size() <= kMaxChannels && options.shape.readers == 1);
  const FrameLimits limits{.channels = static_cast<uint32_t>(channels.size()),
                           .slots = options.shape.slots,
                           .slot_bytes = options.shape.slot_bytes,
                           .epoch = options.epoch,
                           .may_end = is_renewable(streams, options.renewal)};
  for (size_t i = 0; i < streams.size(); ++i) {
    const FrameStreamOptions stream{.limits = limits,
                                    .may_be_late = streams.size() > 1,
                                    .in_place_bytes = options.in_place_bytes,
                                    .is_renewable = limits.may_end,
                                    .ends = {.from = options.rank,
                                             .to = options.peer,
                                             .epoch = options.epoch,
                                             .stream = static_cast<uint16_t>(i)}};
    streams_.push_back(
        std::make_unique<FrameStream>(std::move(streams[i]), inbox_, outbox_, stream,
                                      options.arrivals != nullptr ? *options.arrivals : own_arrivals_));
  }
  if (!limits.may_end) return;
  renewed_.resize(streams_.size());
  seen_sockets_ = options.renewal.sockets->arrivals();
}

bool TcpConnection::advance() {
  // A peer may close in good order before the network releases what this rank sent.
  if (state_ == PeerState::kEnded) return collect_completions();
  if (state_ != PeerState::kOpen) {
    if (!renewed_.empty()) take_sockets();
    return false;
  }
  bool moved = !renewed_.empty() && renew();
  const bool had_unsent = has_unsent();
  sent_bytes_ = 0;
  moved |= send();
  // Nobody has answered yet what was just sent. A rank that only sends need not read while the peer has room.
  // A rank that waits sends nothing next time, and reads. A refused read costs 0.4 us, a twentieth of a
  // message.
  if (moved && !had_unsent && sent_bytes_ <= kUnreadBytesMost && !has_unsent() && !outbox_.needs_credit()) {
    settle();
    return true;
  }
  for (const auto& stream : streams_) {
    if (stream->worth_reading()) moved |= stream->receive();
  }
  moved |= collect_completions();
  if (!moved) {
    for (const auto& stream : streams_) moved |= stream->free_memory();
  }
  settle();
  return moved;
}

void TcpConnection::advance_fully() {
  // After this, worth_reading() is true for quiet streams.
  std::vector<pollfd> polls;
  prepare_wait(polls);
  while (advance()) {
  }
}

bool TcpConnection::collect_completions() {
  bool moved = false;
  for (const auto& stream : streams_) moved |= stream->collect_completions();
  return moved;
}

bool TcpConnection::send() {
  bool moved = false;
  for (const auto& stream : streams_) {
    if (stream->wants_flush())
      moved |= stream->flush(false);
    else
      stream->release_rest();
  }
  const uint32_t channels = outbox_.channel_count();
  // One run of every channel in turn, so that no channel waits for all of another one.
  for (bool more = true; more;) {
    more = false;
    for (uint32_t channel = 0; channel < channels; ++channel) {
      if (outbox_.ready(channel)) more |= queue_run(channel, moved);
    }
  }
  queue_credits();
  for (const auto& stream : streams_) {
    if (stream->wants_flush()) moved |= stream->flush(false);
  }
  return moved;
}

/// Null: none has room.
FrameStream* TcpConnection::choose(bool large) {
  const size_t count = streams_.size();
  const size_t start = large ? next_ : 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (start + i) % count;
    if (!streams_[index]->has_room()) continue;
    if (large) next_ = (index + 1) % count;
    return streams_[index].get();
  }
  return nullptr;
}

bool TcpConnection::queue_run(uint32_t channel, bool& moved) {
  const bool large = outbox_.next_bytes(channel) >= kLargeBytes;
  FrameStream* stream = choose(large);
  if (stream == nullptr) return false;
  const OutFrame frame = outbox_.take(channel, run_bytes_most_, inbox_.report(channel));
  sent_bytes_ += frame.bytes;
  stream->queue(frame);
  if (stream->has_batch()) moved |= stream->flush(outbox_.ready(channel) || outbox_.needs_credit());
  return true;
}

/// Sends credits for channels without messages, once half of the ring is unreported. The peer can use the
/// other half meanwhile.
void TcpConnection::queue_credits() {
  for (uint32_t channel = 0; channel < inbox_.channel_count(); ++channel) {
    if (inbox_.unreported(channel) * 2 < options_.shape.slots || !outbox_.credit_free(channel)) continue;
    FrameStream* stream = choose(false);
    if (stream == nullptr) break;
    stream->queue(outbox_.make_credit(channel, inbox_.report(channel)));
  }
}

void TcpConnection::settle() {
  size_t ended = 0;
  for (const auto& stream : streams_) {
    const PeerState state = stream->state();
    if (state == PeerState::kTorn) return fail(*stream);
    if (state == PeerState::kEnded) ++ended;
  }
  if (ended < streams_.size()) return;
  end(PeerState::kEnded, {Code::kPeerLost, format("rank %u (%s) has closed its connections", options_.peer,
                                                  streams_[0]->stream().address().c_str())});
}

void TcpConnection::end(PeerState state, Status status) {
  state_ = state;
  status_ = std::move(status);
  for (const auto& stream : streams_) stream->let_go();
}

void TcpConnection::fail(const FrameStream& failed) {
  size_t number = 0;
  while (streams_[number].get() != &failed) ++number;
  end(PeerState::kTorn,
      {Code::kPeerLost, format("rank %u (%s, connection %zu of %zu) is lost: ", options_.peer,
                               failed.stream().address().c_str(), number + 1, streams_.size()) +
                            failed.reason()});
}

bool TcpConnection::has_unsent() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->has_unsent(); });
}

bool TcpConnection::drained() const {
  return !has_unsent() && !outbox_.has_waiting();
}

uint64_t TcpConnection::unconfirmed_bytes() const {
  uint64_t sum = 0;
  for (const auto& stream : streams_) sum += stream->unconfirmed_bytes();
  return sum;
}

void TcpConnection::prepare_wait(std::vector<pollfd>& polls) {
  if (state_ != PeerState::kOpen) return;
  for (const auto& stream : streams_) {
    if (stream->state() != PeerState::kOpen || stream->way() == WayState::kTorn) continue;
    const bool is_open = stream->way() == WayState::kOpen;
    if (is_open) stream->prepare_wait();
    const uint64_t silent_ms = stream->stream().silent_ms();
    if (silent_ms > options_.silence_ms) {
      stream->tear(
          format("its host has not answered for %llu ms", static_cast<unsigned long long>(silent_ms)));
      settle();
      if (state_ != PeerState::kOpen) return;
      continue;
    }
    const short events = static_cast<short>(POLLIN | (is_open && stream->has_unsent() ? POLLOUT : 0));
    polls.push_back({.fd = stream->stream().descriptor(), .events = events, .revents = 0});
  }
}

void TcpConnection::withdraw() {
  for (const auto& stream : streams_) stream->withdraw();
}

void TcpConnection::finish() {
  for (const auto& stream : streams_) stream->finish();
}

}  // namespace tutti::tcp
