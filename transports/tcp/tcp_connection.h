// The TCP connection: the links to one remote peer over one or several connections.
//
// A frame goes as a whole to one connection: small ones to the first that has room, so that they share writes
// and the reader finds them where it looks first, large ones to the next with room in turn. Small messages
// are sent without asking: a message leaves when the peer's ring has a slot for it, which credits on frames
// going the other way tell. docs/tcp.md has the format and the states.
#pragma once

#include <poll.h>

#include <memory>
#include <span>
#include <vector>

#include "transports/connection.h"
#include "transports/tcp/frame_stream.h"

namespace tutti::tcp {

struct TcpOptions {
  uint32_t peer = 0;  ///< rank, for messages
  RingShape shape;    ///< of all rings, here and at the peer; one reader
  uint16_t epoch = 0;
  /// Writes of at least this size are made without copy (MSG_ZEROCOPY), until the kernel reports that it
  /// copies all the same, as it does for a peer on the same machine. Not measured, for want of a second
  /// machine: above the 10 KiB from which on pinning pages costs less than copying by the kernel's
  /// documentation (networking/msg_zerocopy), since slots then also wait for the peer's acknowledgement.
  uint64_t in_place_bytes = 65536;
  /// Data frames from all peers of this rank are counted here, wrapping; null: from this one alone. Who
  /// answers nobody makes a stream (FrameStream).
  uint32_t* arrivals = nullptr;
  /// A host that does not answer for this long is taken for gone (looked at in prepare_wait).
  uint64_t silence_ms = 10'000;
};

class TcpConnection final : public Connection {
 public:
  /// `streams`: at least one, connected and authenticated; the peer has as many, in any order.
  TcpConnection(std::span<const ChannelRings> channels, std::vector<std::unique_ptr<Stream>> streams,
                const TcpOptions& options);

  bool advance() override;
  void advance_fully() override;
  bool drained() const override;
  uint64_t unconfirmed_bytes() const override;
  /// For a long wait, after an advance() that moved nothing: appends what poll(2) should wait for, and looks
  /// whether the peer's host still answers (state()).
  void prepare_wait(std::vector<pollfd>& polls);
  PeerState state() const override { return state_; }
  const Status& status() const override { return status_; }
  void withdraw() override;
  void finish() override;

 private:
  bool send();
  bool has_unsent() const;
  bool collect_completions();
  FrameStream* choose(bool large);
  bool queue_run(uint32_t channel, bool& moved);
  void queue_credits();
  void settle();
  void fail(const FrameStream& stream);

  TcpOptions options_;
  Outbox outbox_;
  Inbox inbox_;
  std::vector<std::unique_ptr<FrameStream>> streams_;
  size_t next_ = 0;  ///< whose turn it is for a large frame
  uint64_t run_bytes_most_;
  uint32_t own_arrivals_ = 0;  ///< where TcpOptions::arrivals is null
  uint64_t sent_bytes_ = 0;    ///< by this advance(), or queued
  PeerState state_ = PeerState::kOpen;
  Status status_;
};

}  // namespace tutti::tcp
