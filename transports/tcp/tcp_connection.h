// TcpConnection: the links to one peer over one or several TCP connections.
//
// A frame travels whole on one TCP connection. Small frames take the first one with room: there they share
// writes, and the reader looks there first. Large frames take turns. A message leaves when the peer's ring
// has a slot for it, according to the peer's credits. frame.h has the format, states.h the states.
//
// With a SocketRenewal a torn socket is replaced. Meanwhile its traffic takes the other streams.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "transports/connection.h"
#include "transports/socket_renewal.h"
#include "transports/tcp/frame_stream.h"

namespace tutti::tcp {

struct TcpRenewal {
  SocketRenewal* sockets = nullptr;  ///< null: a torn socket ends the connection
  /// Makes a stream of a new socket, as at first.
  std::function<Result<std::unique_ptr<Stream>>(uint32_t index, FileDescriptor socket)> open = {};
  uint64_t patience_ms = 10'000;  ///< how long to wait for a new socket
  uint64_t ask_every_ms = 250;    ///< a request may be lost, or fail
  /// Also replace sockets that only this machine's kernel can tear.
  bool includes_loopback = false;
};

struct TcpOptions {
  uint32_t rank = 0;
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
  TcpRenewal renewal = {};
};

class TcpConnection final : public Connection {
 public:
  /// `streams`: at least one, connected and authenticated. The peer has as many, in any order; in the same
  /// order if they are renewed.
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
  std::string route() const override { return detour(); }
  std::string detour() const override;
  void withdraw() override;
  void finish() override;

 private:
  /// Messages of at least this size take turns on the connections.
  static constexpr uint32_t kLargeBytes = 8192;

  bool send();
  bool has_unsent() const;
  bool collect_completions();
  FrameStream* choose(bool large);
  bool queue_run(uint32_t channel, bool& moved);
  void queue_credits();
  void settle();
  void fail(const FrameStream& stream);
  void end(PeerState state, Status status);
  std::string name_of(size_t index) const;
  bool renew();
  void take_sockets();
  bool renew_stream(size_t index, uint64_t now);
  void note_torn(size_t index);
  void note_resumed(size_t index);
  void note_detour();

  /// A stream whose socket may be torn.
  struct Renewed {
    FileDescriptor next;      ///< has come, and is not used yet
    bool is_told = false;     ///< its state is known to people
    uint64_t asked_ns = 0;    ///< last request
    uint64_t waiting_ns = 0;  ///< since when no socket comes, without the time with one; 0: not waiting
    uint64_t turn_ns = 0;     ///< last turn
    uint32_t times = 0;       ///< replaced
    std::string last = {};    ///< why, and for how long
  };

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
  std::vector<Renewed> renewed_;  ///< by stream; empty: none is renewed
  uint32_t seen_sockets_ = 0;
  mutable std::mutex detour_mutex_;
  std::string detour_;  ///< guarded by detour_mutex_
};

}  // namespace tutti::tcp
