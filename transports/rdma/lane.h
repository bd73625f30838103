// Lane: the numbered pieces that carry some of the channels to one peer. The frames are TCP's
// (transports/tcp/frame.h).
//
// A piece has at most kPieceBytes and a word that says what the piece is, and how many pieces the sender has
// received. So a rank never sends what the peer has no receive for. Pieces carry
//   bytes    frames with their payloads, as a stream: short messages, and what cannot be written
//   written  the header of a frame whose payloads this rank has written into the peer's slots before, or of
//            a credit
//   ask      "may I write into your slots of this channel?"; the answer is a grant, or none
//   grant    key and address of the slots of a channel, which have been registered for it
//   receive  "these messages may be written into this buffer" (rendezvous): a posted receive in memory that
//            the user has registered, in the symmetric heap or in the GPU. Where ranks use memory of GPUs,
//            it may also say "into slots": messages out of a GPU wait for one or the other
//   placed   as written, but the payloads lie in the posted receive
//   window   nothing but the word
//   end      the last piece
//
// A lane lies on a rail, or on the socket when no rail is usable. To move, both ends stop and tell each other
// where they stand (Resume); both then know the same rails and the same numbers, and go on. After a rail has
// failed, the pieces that the peer has not received are sent again: a piece stays in its buffer, and a frame
// in its slots, until the device reports its arrival. Nothing is lost and nothing comes twice.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transports/connection.h"
#include "transports/rdma/control.h"
#include "transports/rdma/device_regions.h"
#include "transports/rdma/heap_memory.h"
#include "transports/rdma/rail.h"
#include "transports/rdma/user_memory.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/receiver.h"

namespace tutti::rdma {

/// Slots of a ring, registered with each device that has used them.
class SlotMemory {
 public:
  SlotMemory(std::byte* slots, uint64_t bytes, int rights) : slots_(slots), bytes_(bytes), rights_(rights) {}
  std::byte* slots() const { return slots_; }
  /// Null: the budget or the system's limit is reached.
  const Region* on(const Verbs& verbs, const Device& device, PinBudget& budget);

 private:
  std::byte* slots_;
  uint64_t bytes_;
  int rights_;
  std::vector<std::pair<const Device*, Region>> regions_;
};

/// What the lanes of a connection share.
struct LaneShared {
  struct Grant {
    uint32_t channel;
    uint32_t key;
    uint64_t address;
  };
  /// A posted receive of the other end (PostedReceive).
  struct Target {
    uint32_t channel;
    uint32_t key;
    uint64_t address;  ///< 0: into slots
    uint64_t bytes;
    uint64_t first;
    uint64_t slice_bytes;

    uint64_t end() const { return first + (bytes + slice_bytes - 1) / slice_bytes; }
    /// Whether all these messages, of equal size, belong there.
    bool holds(uint64_t number, uint32_t count, uint64_t message_bytes) const;
    uint64_t place(uint64_t number) const { return address + (number - first) * slice_bytes; }
  };
  struct Channel {
    SlotMemory outgoing;
    SlotMemory incoming;
    const PostedReceive* offer = nullptr;
    PostedReceive told = {};            ///< of this rank: the peer may write there
    uint64_t into_slots_end = 0;        ///< the peer knows that messages below go to slots
    std::optional<Target> target = {};  ///< of the peer: this rank may write there
    std::optional<Grant> grant = {};
    bool has_asked = false;
    std::optional<uint32_t> granted_key = {};
    bool owes_grant = false;
  };

  const Verbs& verbs;
  PinBudget& budget;
  const UserMemory& user_memory;
  HeapMemory& heap_memory;
  DeviceRegions& device_regions;
  uint32_t rank;
  uint32_t peer;
  RingShape shape;
  tcp::FrameLimits limits;
  tcp::Outbox outbox;
  tcp::Inbox inbox;
  std::vector<Channel> channels;
  ControlSocket socket;
  Mapping send_memory;
  std::vector<int32_t> free_buffers;
  uint32_t lane_count = 1;
  uint32_t window = 0;  ///< pieces of a lane that the peer has receives for
  std::vector<std::unique_ptr<Rail>> rails;
  std::function<void(Rail&, const std::string& why)> break_rail;
  std::function<void()> note_move;  ///< a lane lies on another rail
  bool lacks_bytes = false;         ///< a copy out of the GPU has failed: the connection ends

  /// Whether the peer may write to a posted receive of the channel.
  bool is_written(uint32_t channel) const;
  std::atomic<uint64_t> unconfirmed_bytes = 0;
  uint64_t socket_bytes = 0;  ///< of those: given to the socket
};

class Lane {
 public:
  Lane(LaneShared& shared, uint32_t index);

  uint32_t home() const { return index_; }
  bool is_running() const { return phase_ == Phase::kRunning; }
  bool is_on_socket() const { return bound_ == kSocket; }
  /// Both must hold for a move by plan().
  uint32_t rail() const { return bound_; }
  bool has_ended() const { return has_ended_; }
  bool has_sent_end() const { return has_sent_end_; }
  bool drained() const;

  /// Sends what it can. Returns whether anything moved.
  bool send();
  void finish() { wants_end_ = true; }
  /// A message that has come in part goes on in its slot.
  void withdraw() { receiver_.withdraw(); }
  /// The oldest piece has reached the peer's device.
  void complete_one();
  /// A piece that came over the rail with this key. Errors: kPeerLost for what breaks the protocol.
  Status receive(uint32_t key, uint32_t word, std::span<const std::byte> bytes);

  /// The rail with this key has stopped.
  void interrupt(uint32_t key);
  /// Moves to the rail that is the best now.
  void plan();
  Status take_resume(uint32_t generation, const Resume& resume);
  /// Goes on with a move as far as possible. Errors: kPeerLost.
  Status advance();

  static constexpr uint32_t kSocket = UINT32_MAX;
  static constexpr uint32_t kSocketKey = UINT32_MAX;
  /// The best rail of those in `usable`, for a lane at home on rail `home`; kSocket: none.
  static uint32_t best_rail(uint32_t home, uint32_t usable, uint32_t rails);

 private:
  enum class Phase : uint8_t {
    kRunning,
    kSettling,  ///< sends nothing more, and waits for what the device still has
    kWaiting,   ///< has told where it stands, and waits for the peer
  };
  /// A piece in the send queue, or one to be sent again.
  struct Sent {
    Piece kind = Piece::kBytes;
    int32_t buffer = -1;
    uint32_t length = 0;
    uint64_t bytes = 0;                       ///< that count as not confirmed
    std::optional<tcp::OutFrame> frame = {};  ///< its payloads lie in slots
    uint64_t streamed_bytes = 0;              ///< of the frame, sent again as bytes
  };
  struct Deferred {
    uint32_t key;
    uint32_t word;
    std::vector<std::byte> bytes;
  };

  Rail* bound_rail() const { return bound_ == kSocket ? nullptr : shared_.rails[bound_].get(); }
  bool has_room(uint32_t requests, uint32_t reserve = 1) const;
  bool queue_run(uint32_t channel);
  bool awaits_target(uint32_t channel) const;
  bool copy(std::byte* to, const void* from, size_t bytes);
  const Region* buffer_on(const Device& device, const std::byte* address, size_t bytes) const;
  std::optional<uint32_t> source_key(LaneShared::Channel& channel, const iovec& part) const;
  bool is_readable(const tcp::OutFrame& frame) const;
  void send_written(const tcp::OutFrame& frame);
  bool send_again();
  bool stream(const tcp::OutFrame& frame, uint64_t& done, bool& moved);
  bool send_bytes();
  bool may_tell_receives() const;
  bool send_receives();
  bool send_grants();
  bool send_credits();
  bool send_window();
  void post(Piece kind, std::span<const iovec> parts, Sent sent, uint32_t requests = 0);
  void transmit(Sent sent, uint32_t requests);
  void release(const Sent& sent);
  void complete(const Sent& sent);
  uint32_t write_payloads(const tcp::OutFrame& frame, const LaneShared::Target* target);

  Status take(uint32_t word, std::span<const std::byte> bytes);
  Status take_piece(Piece kind, std::span<const std::byte> bytes);
  Status take_written(std::span<const std::byte> bytes, bool is_placed);
  Status check_written(const tcp::Frame& frame, uint64_t first, bool is_placed);
  Status take_receive(std::span<const std::byte> bytes);
  Status take_ask(std::span<const std::byte> bytes);
  Status take_grant(std::span<const std::byte> bytes);
  Status take_deferred(uint32_t key, bool all);

  bool has_settled() const;
  uint32_t usable_rails() const;
  Status join_peer();
  void go_on(uint32_t rail);
  void tell(uint32_t before) const;

  LaneShared& shared_;
  uint32_t index_;
  tcp::Receiver receiver_;
  uint32_t bound_;
  uint32_t bound_key_;
  Phase phase_ = Phase::kRunning;
  uint32_t generation_ = 0;
  bool has_lost_rail_ = false;
  uint32_t told_rails_ = 0;
  std::optional<Resume> theirs_;
  std::vector<Deferred> deferred_;

  uint32_t pieces_sent_ = 0;
  uint32_t pieces_confirmed_ = 0;  ///< of those, the peer has received
  uint32_t pieces_received_ = 0;
  uint32_t pieces_reported_ = 0;
  std::deque<Sent> sent_;
  std::deque<Sent> again_;
  std::optional<tcp::OutFrame> streamed_;  ///< being sent as bytes
  uint64_t streamed_bytes_ = 0;
  bool wants_end_ = false;
  bool has_sent_end_ = false;
  bool has_ended_ = false;
  uint32_t grants_owed_ = 0;
  bool owes_ = false;  ///< a credit or a window that had no room
};

}  // namespace tutti::rdma
