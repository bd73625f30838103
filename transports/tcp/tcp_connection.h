// TcpConnection: the links to one peer over one or several TCP connections.
//
// A frame travels whole on one TCP connection. Small frames take the first one with room: there they share
// writes, and the reader looks there first. Large frames take turns. A message leaves when the peer's ring
// has a slot for it, according to the peer's credits. docs/tcp.md has the format and the states.
#pragma once

#include <poll.h>

#include <memory>
#include <span>
#include <vector>

#include "transports/connection.h"
#include "transports/tcp/frame_stream.h"

namespace tutti::tcp {

struct TcpOptions {
  uint32_t peer = 0;
  RingShape shape;  ///< of all rings on both sides
  uint16_t epoch = 0;
  /// Writes of at least this size avoid the copy (MSG_ZEROCOPY), until the kernel reports that it copies
  /// anyway, as on one machine. Not measured, for lack of a second machine: pinning pages pays from 10 KiB
  /// on, says the kernel's documentation (networking/msg_zerocopy), but slots then also wait for the peer's
  /// acknowledgement.
  uint64_t in_place_bytes = 65536;
  /// Counts data frames from all peers, and wraps; null: only from this peer. FrameStream uses it to tell a
  /// one-way stream from an exchange.
  uint32_t* arrivals = nullptr;
  /// After so long without an owed answer, the peer's host counts as gone.
  uint64_t silence_ms = 10'000;
};

class TcpConnection final : public Connection {
 public:
  /// `streams`: at least one, connected and authenticated. The peer has as many, in any order.
  TcpConnection(std::span<const ChannelRings> channels, std::vector<std::unique_ptr<Stream>> streams,
                const TcpOptions& options);

  bool advance() override;
  void advance_fully() override;
  bool drained() const override;
  uint64_t unconfirmed_bytes() const override;
  /// Prepares a long wait: appends what poll(2) should wait for, and checks whether the peer's host still
  /// answers (state()).
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
  size_t next_ = 0;  ///< the stream for the next large frame
  uint64_t run_bytes_most_;
  uint32_t own_arrivals_ = 0;
  uint64_t sent_bytes_ = 0;  ///< written or queued by this advance()
  PeerState state_ = PeerState::kOpen;
  Status status_;
};

}  // namespace tutti::tcp
