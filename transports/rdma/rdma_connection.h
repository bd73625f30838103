// RdmaConnection: the links to one peer over a queue pair. The frames are TCP's (transports/tcp/frame.h).
//
// A send, a "piece", has at most kPieceBytes and an immediate word that says what the piece is, and how many
// pieces the sender has received. So a rank never sends what the peer has no receive for. Pieces carry
//   bytes    frames with their payloads, as a stream: short messages, and what cannot be written
//   written  the header of a frame whose payloads this rank has written into the peer's slots before, or of
//            a credit
//   ask      "may I write into your slots of this channel?"; the answer is a grant, or none
//   grant    key and address of the slots of a channel, which have been registered for it
//   window   nothing but the immediate word
//   ready, end   the first and the last piece
// A socket beside the queue pair carries the Hello of both ends during set-up. Its end tells that the peer
// is gone.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "transports/connection.h"
#include "transports/rdma/queue_pair.h"
#include "transports/shm/memory.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/receiver.h"

namespace tutti::rdma {

inline constexpr uint32_t kPieceBytes = 4096;

/// Memory that may still be registered for slots, of all connections of a rank. Ranks on a large job would
/// otherwise pin hundreds of rings.
struct PinBudget {
  uint64_t left_bytes = 0;
};

struct RdmaOptions {
  uint32_t rank = 0;
  uint32_t peer = 0;
  RingShape shape;  ///< of all rings on both sides
  uint16_t epoch = 0;
  uint32_t number = 0;  ///< of this connection, in its work requests
  QueuePairOptions queue_pair = {};
};

/// The number of a connection and of a receive in a completion.
struct WorkId {
  static constexpr uint64_t kSend = 0xffff;
  uint32_t connection = 0;
  uint64_t receive = 0;  ///< kSend: a send

  uint64_t pack() const { return uint64_t{connection} << 16 | receive; }
  static WorkId unpack(uint64_t id) { return {static_cast<uint32_t>(id >> 16), id & 0xffff}; }
};

class RdmaConnection final : public Connection {
 public:
  enum class Phase : uint8_t {
    kGreeting,  ///< waits for the peer's Hello
    kJoining,   ///< can receive; waits until the peer can
    kProving,   ///< waits until a piece has passed in both directions
    kUsable,
  };

  /// Errors: kSystemError, kOutOfMemory.
  static Result<std::unique_ptr<RdmaConnection>> make(const Verbs& verbs, const Device& device,
                                                      const Port& port,
                                                      std::span<const ChannelRings> channels,
                                                      FileDescriptor socket, PinBudget& budget,
                                                      const RdmaOptions& options);
  ~RdmaConnection() override;

  // Set-up.
  Phase phase() const { return phase_; }
  /// Goes on as far as the peer allows. Errors: kPeerLost, kSystemError.
  Status greet();
  int socket() const { return socket_.get(); }
  uint32_t peer() const { return options_.peer; }

  bool advance() override;
  void advance_fully() override;
  bool drained() const override;
  uint64_t unconfirmed_bytes() const override { return unconfirmed_bytes_.load(std::memory_order_relaxed); }
  PeerState state() const override { return state_; }
  const Status& status() const override { return failure_; }
  void withdraw() override {}  // posted receives are not filled
  void finish() override;

  /// Takes a completion of this connection's queue pair.
  void complete(const ibv_wc& completion);
  /// Notices a peer that is gone. Call it after all completions have been taken.
  void look_at_socket();
  /// A failure of the whole device.
  void fail(const std::string& what);
  /// Sends what it can.
  bool send();
  void set_poll(std::function<bool()> poll) { poll_ = std::move(poll); }

 private:
  enum class Piece : uint8_t { kBytes, kWritten, kAsk, kGrant, kWindow, kReady, kEnd };
  static constexpr uint8_t kPieces = 7;
  struct Grant {
    uint32_t channel;
    uint32_t key;
    uint64_t address;
  };
  struct Channel {
    std::byte* outgoing_slots = nullptr;
    std::byte* incoming_slots = nullptr;
    Region outgoing;  ///< registered with the peer's grant
    Region incoming;  ///< registered with this rank's grant
    std::optional<Grant> grant;
    bool has_asked = false;
    bool has_granted = false;
    bool owes_grant = false;
  };
  /// A piece in the send queue, with the writes before it.
  struct Sent {
    uint32_t requests = 1;
    uint64_t bytes = 0;
    int32_t buffer = -1;
    std::optional<tcp::OutFrame> frame = {};  ///< its payloads lie in slots
  };

  RdmaConnection(const Verbs& verbs, const Device& device, const Port& port,
                 std::span<const ChannelRings> channels, FileDescriptor socket, PinBudget& budget,
                 const RdmaOptions& options);
  Status prepare();
  Status post_receive(uint32_t index);
  Status receive_hello();

  bool has_room(uint32_t requests) const;
  bool queue_run(uint32_t channel);
  bool lies_in_slots(const Channel& channel, const tcp::OutFrame& frame) const;
  void send_written(const tcp::OutFrame& frame);
  uint32_t write_payloads(const tcp::OutFrame& frame);
  bool send_bytes();
  bool send_grants();
  bool send_credits();
  bool send_window();
  void post_piece(Piece kind, std::span<const iovec> parts, Sent sent);
  uint64_t slots_bytes() const { return uint64_t{options_.shape.slots} * options_.shape.slot_bytes; }
  Result<Region> register_slots(std::byte* slots, int rights);

  void receive(const ibv_wc& completion);
  Status take_piece(Piece kind, const std::byte* bytes, uint32_t count);
  Status take_bytes(const std::byte* bytes, size_t count);
  Status take_written(const std::byte* bytes, uint32_t count);
  Status take_ask(const std::byte* bytes, uint32_t count);
  Status take_grant(const std::byte* bytes, uint32_t count);
  void sent_one();
  void end(PeerState state, const std::string& what);
  std::string who() const;

  const Verbs& verbs_;
  const Device& device_;
  Port port_;
  RdmaOptions options_;
  FileDescriptor socket_;
  PinBudget& budget_;
  tcp::FrameLimits limits_;
  tcp::Outbox outbox_;
  tcp::Inbox inbox_;
  tcp::Receiver receiver_;
  std::vector<Channel> channels_;
  uint32_t first_packet_ = 0;
  std::function<bool()> poll_;  ///< takes all completions of the device

  Mapping pieces_memory_;  ///< of receives, then of sends
  Region pieces_;
  std::unique_ptr<QueuePair> pair_;  ///< destroyed before the memory
  std::vector<int32_t> free_buffers_;
  std::deque<Sent> sent_;
  uint32_t requests_used_ = 0;

  std::vector<std::byte> hello_bytes_;
  Hello hello_;  ///< of the peer
  Phase phase_ = Phase::kGreeting;
  bool has_passed_ = false;  ///< the peer's ready piece has come

  uint32_t pieces_sent_ = 0;
  uint32_t pieces_confirmed_ = 0;  ///< of those, the peer has received
  uint32_t pieces_received_ = 0;
  uint32_t pieces_reported_ = 0;
  std::optional<tcp::OutFrame> streamed_;  ///< being sent as bytes
  uint64_t streamed_bytes_ = 0;
  bool wants_end_ = false;
  bool owes_ = false;  ///< a credit or a window that had no room
  std::atomic<uint64_t> unconfirmed_bytes_ = 0;
  PeerState state_ = PeerState::kOpen;
  Status failure_;
};

}  // namespace tutti::rdma
