#include "tests/transports/example/example_transport.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

namespace tutti::test {
namespace {

struct Header {
  uint32_t bytes = 0;
  uint32_t signature = 0;
  uint16_t is_end = 0;  ///< 1: nothing follows
};

bool arrived(const RecvLink& link) {
  return (link.word() & flag::kNumberMask) == ((link.next + 1) & flag::kNumberMask);
}

/// One channel. The socket keeps the order and limits what is under way, so there are no credits to send: the
/// reader leaves bytes in the socket until its ring has room.
class Channel {
 public:
  enum class Health : uint8_t { kGood, kEnded, kBroken };

  Channel(const ChannelRings& rings, const RingShape& shape, FileDescriptor socket)
      : socket_(std::move(socket)),
        outgoing_(RecvLink::at(rings.outgoing, shape, 0)),
        incoming_(SendLink::at(rings.incoming, shape)) {
    outgoing_.credit_mask = 0;  // a copied message is released at once
  }

  bool send() {
    bool moved = false;
    while (unsent() == 0 && arrived(outgoing_)) {
      const uint64_t word = outgoing_.word();
      const auto bytes = static_cast<uint32_t>(flag::bytes(word));
      queue({.bytes = bytes, .signature = flag::signature(word)}, {outgoing_.span(word), bytes});
      outgoing_.release(word);
      write_queued();
      moved = true;
    }
    return write_queued() || moved;
  }

  bool receive() {
    bool moved = false;
    while (health_ == Health::kGood && incoming_.can_write()) {
      if (!read_some()) break;
      moved = true;
      if (header_bytes_ < sizeof(header_) || payload_bytes_ < header_.bytes) continue;
      if (header_.is_end == 1) {
        health_ = Health::kEnded;
        break;
      }
      incoming_.commit(header_.signature, header_.bytes);
      header_bytes_ = payload_bytes_ = 0;
    }
    return moved;
  }

  void finish() {
    queue({.is_end = 1}, {});
    write_queued();
  }

  bool drained() const { return unsent() == 0 && !arrived(outgoing_); }
  Health health() const { return health_; }
  uint64_t unconfirmed_bytes() const {
    int bytes = 0;
    return ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
  }
  pollfd awaited() {
    const bool has_room = incoming_.can_write();
    return {.fd = socket_.get(),
            .events = static_cast<short>((has_room ? POLLIN : 0) | (unsent() > 0 ? POLLOUT : 0)),
            .revents = 0};
  }

 private:
  size_t unsent() const { return queued_.size() - sent_; }

  void queue(const Header& header, std::span<const std::byte> payload) {
    if (unsent() == 0) {
      queued_.clear();
      sent_ = 0;
    }
    const auto* start = reinterpret_cast<const std::byte*>(&header);
    queued_.insert(queued_.end(), start, start + sizeof(header));
    queued_.insert(queued_.end(), payload.begin(), payload.end());
  }

  bool write_queued() {
    if (unsent() == 0) return false;
    const ssize_t done = ::send(socket_.get(), queued_.data() + sent_, unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done > 0) sent_ += static_cast<size_t>(done);
    if (done < 0 && errno != EAGAIN && errno != EINTR) {
      sent_ = queued_.size();
      if (health_ == Health::kGood) health_ = Health::kBroken;
    }
    return done > 0;
  }

  /// One read of the header, or of the payload straight into its slot. False: nothing is there.
  bool read_some() {
    const bool in_header = header_bytes_ < sizeof(header_);
    std::byte* base = in_header ? reinterpret_cast<std::byte*>(&header_) : incoming_.span(header_.bytes);
    size_t& have = in_header ? header_bytes_ : payload_bytes_;
    const size_t want = in_header ? sizeof(header_) : header_.bytes;
    const ssize_t done = ::recv(socket_.get(), base + have, want - have, MSG_DONTWAIT);
    if (done > 0) have += static_cast<size_t>(done);
    const bool is_nothing = done < 0 && (errno == EAGAIN || errno == EINTR);
    const bool is_too_long = in_header && have == want && header_.bytes > incoming_.slot_bytes;
    if ((done <= 0 && !is_nothing) || is_too_long) health_ = Health::kBroken;
    return done > 0;
  }

  FileDescriptor socket_;
  RecvLink outgoing_;  ///< reads what the engine writes
  SendLink incoming_;  ///< writes what the engine reads
  std::vector<std::byte> queued_;
  size_t sent_ = 0;
  Header header_;
  size_t header_bytes_ = 0;
  size_t payload_bytes_ = 0;
  Health health_ = Health::kGood;
};

class ExampleConnection final : public Connection {
 public:
  ExampleConnection(PeerHandover peer, const RingShape& shape) : peer_(peer.rank) {
    for (size_t i = 0; i < peer.rings.size(); ++i)
      channels_.emplace_back(peer.rings[i], shape, std::move(peer.sockets[i]));
  }

  bool advance() override {
    bool moved = false;
    for (Channel& channel : channels_) moved |= channel.send();
    if (state_ != PeerState::kOpen) return moved;
    for (Channel& channel : channels_) moved |= channel.receive();
    settle();
    return moved;
  }
  void advance_fully() override {
    while (advance()) {
    }
  }
  bool drained() const override {
    return std::all_of(channels_.begin(), channels_.end(), [](const Channel& one) { return one.drained(); });
  }
  uint64_t unconfirmed_bytes() const override {
    uint64_t sum = 0;
    for (const Channel& channel : channels_) sum += channel.unconfirmed_bytes();
    return sum;
  }
  PeerState state() const override { return state_; }
  const Status& status() const override { return status_; }
  void withdraw() override {}  // it never fills a posted receive
  void finish() override {
    for (Channel& channel : channels_) channel.finish();
  }
  void append_awaited(std::vector<pollfd>& polls) {
    if (state_ != PeerState::kOpen) return;
    for (Channel& channel : channels_) polls.push_back(channel.awaited());
  }

 private:
  void settle() {
    const auto count = [this](Channel::Health health) {
      return std::count_if(channels_.begin(), channels_.end(),
                           [&](const Channel& channel) { return channel.health() == health; });
    };
    if (count(Channel::Health::kBroken) > 0) {
      state_ = PeerState::kTorn;
      status_ = Status(Code::kPeerLost, format("rank %u is lost: a socket of the example broke", peer_));
    } else if (count(Channel::Health::kGood) == 0) {
      state_ = PeerState::kEnded;
      status_ = Status(Code::kPeerLost, format("rank %u has closed its connection", peer_));
    }
  }

  uint32_t peer_;
  std::vector<Channel> channels_;
  PeerState state_ = PeerState::kOpen;
  Status status_;
};

class ExampleTransport final : public Transport {
 public:
  explicit ExampleTransport(const TransportOptions& options) : options_(options) {}

  const TransportTraits& traits() const override { return kExampleTraits; }
  uint32_t socket_count() const override { return options_.channels; }
  std::optional<LinkCost> reach(const RankDescription& /*a*/, const RankDescription& /*b*/) const override {
    return LinkCost{.latency_us = 50, .bytes_per_us = 500};
  }
  Result<Connection*> connect(PeerHandover peer) override {
    connections_.push_back(std::make_unique<ExampleConnection>(std::move(peer), options_.shape));
    return static_cast<Connection*>(connections_.back().get());
  }
  bool progress() override {
    bool moved = false;
    for (const auto& connection : connections_) moved |= connection->advance();
    return moved;
  }
  bool arm_wait(std::vector<pollfd>& polls) override {
    for (const auto& connection : connections_) connection->append_awaited(polls);
    return false;  // a socket stays readable until its bytes are read
  }

 private:
  TransportOptions options_;
  std::vector<std::unique_ptr<ExampleConnection>> connections_;
};

}  // namespace

Result<std::unique_ptr<Transport>> open_example_transport(const TransportOptions& options) {
  return std::unique_ptr<Transport>(std::make_unique<ExampleTransport>(options));
}

}  // namespace tutti::test
