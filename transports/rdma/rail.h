// Rail: one path between two ranks: a queue pair from a port here to a port of the peer, its posted receives,
// and what waits in its send queue. A rail that fails may begin again, with another attempt number and
// another queue pair.
//
//   kOff -> kGreeting -> kJoining -> kProving -> kUp     any -> kOff
//
// Off, the rail is drained once the device has given back every request; then its queue pair goes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "transports/rdma/control.h"
#include "transports/rdma/device.h"
#include "transports/rdma/hello.h"
#include "transports/rdma/queue_pair.h"
#include "transports/shm/memory.h"

namespace tutti::rdma {

/// Of a connection, kPieceBytes each. The piece that proves a rail has a further one.
inline constexpr uint32_t kSendBuffers = 32;

/// Receives are posted again so many at a time, because each post tells the device. The peer counts on the
/// others.
inline constexpr uint32_t kRepostBatch = 8;

/// What a piece is. With the lane and the receipts, it is the immediate word of its send.
enum class Piece : uint8_t { kBytes, kWritten, kAsk, kGrant, kWindow, kReady, kEnd, kReceive, kPlaced };
inline constexpr uint32_t kPieceKinds = 9;

struct PieceWord {
  static constexpr uint32_t kCountMask = 0xffffff;
  uint32_t kind = 0;
  uint32_t lane = 0;
  uint32_t received = 0;  ///< pieces of the lane, in the other direction

  uint32_t pack() const { return kind << 28 | lane << 24 | (received & kCountMask); }
  static PieceWord unpack(uint32_t word) { return {word >> 28, word >> 24 & 0xf, word & kCountMask}; }
};

/// Says in a completion whose it is.
struct WorkId {
  static constexpr uint64_t kPiece = 0xffff;
  static constexpr uint64_t kWrite = 0xfffe;  ///< completes only when it fails
  uint32_t connection = 0;
  uint32_t rail = 0;
  uint32_t attempt = 0;  ///< the low 8 bits
  uint64_t request = 0;  ///< number of a receive, or one of the above

  uint64_t pack() const {
    return uint64_t{connection} << 32 | uint64_t{attempt & 0xff} << 24 | uint64_t{rail} << 16 | request;
  }
  static WorkId unpack(uint64_t id) {
    return {static_cast<uint32_t>(id >> 32), static_cast<uint32_t>(id >> 16 & 0xff),
            static_cast<uint32_t>(id >> 24 & 0xff), id & 0xffff};
  }
};

struct RailOptions {
  uint32_t rank = 0;
  uint32_t peer = 0;
  uint16_t epoch = 0;
  uint32_t connection = 0;  ///< in work requests
  uint32_t index = 0;
  QueuePairOptions queue_pair = {};
};

class Rail {
 public:
  enum class State : uint8_t { kOff, kGreeting, kJoining, kProving, kUp };
  static constexpr uint32_t kNoLane = UINT32_MAX;

  /// `send_memory`: buffers of the connection, which outlive the rail.
  Rail(const Verbs& verbs, const Device& device, const Port& port, PortAddress peer,
       std::span<std::byte> send_memory, const RailOptions& options)
      : verbs_(verbs),
        device_(device),
        port_(port),
        peer_(std::move(peer)),
        send_memory_(send_memory),
        options_(options) {}

  const Device& device() const { return device_; }
  const Port& port() const { return port_; }
  uint32_t index() const { return options_.index; }
  State state() const { return state_; }
  uint32_t attempt() const { return attempt_; }
  /// Of this attempt; no other rail or attempt has it.
  uint32_t key() const { return key_of(options_.index, attempt_); }
  static uint32_t key_of(uint32_t index, uint32_t attempt) { return index << 24 | (attempt & 0xffffff); }
  /// Both ends have seen a piece pass.
  bool is_usable() const { return state_ == State::kUp && peer_is_up_; }
  const std::string& why_off() const { return why_off_; }
  void explain(const std::string& why) { why_off_ = why; }
  std::string describe() const;  ///< "mlx5_0 port 1, GID 10.0.0.1 to mlx5_1 port 1, GID 10.0.0.2"

  /// Makes a queue pair with posted receives. Errors: kSystemError, kOutOfMemory; then the rail stays off.
  Status start(uint32_t attempt);
  Hello hello() const;
  /// Errors: as QueuePair::join.
  Status join(const Hello& peer);
  /// Sends the first piece. It is a full one, because a switch may drop long packets only. Errors:
  /// kSystemError.
  Status prove();
  void take_ready() { has_ready_ = true; }
  /// From kProving to kUp, once the first pieces have passed both ways; then true.
  bool rise();
  void set_peer_up() { peer_is_up_ = true; }
  /// Later attempts have greater numbers than this one, which the peer or this rank has given up.
  void skip(uint32_t attempt) { given_up_ = std::max(given_up_, attempt); }
  uint32_t next_attempt() const { return std::max(attempt_, given_up_) + 1; }
  bool is_idle() const { return state_ == State::kOff && wanted_attempt < next_attempt(); }
  void stop(const std::string& why);
  bool is_drained() const { return state_ == State::kOff && receives_out_ == 0 && sent_.empty(); }
  /// Destroys the queue pair of a drained rail.
  void release();

  bool has_room(uint32_t requests) const {
    return state_ == State::kUp && requests_used_ + requests <= options_.queue_pair.sends;
  }
  /// Sends a buffer of the connection; -1: none. `requests`: writes posted before for this piece.
  Status post_piece(uint32_t lane, uint32_t word, int32_t buffer, uint32_t bytes, uint32_t requests);
  struct Write {
    const std::byte* source = nullptr;
    uint32_t bytes = 0;
    uint32_t local_key = 0;
    uint64_t target = 0;
    uint32_t remote_key = 0;
  };
  Status post_write(const Write& write);

  /// The oldest piece has left the send queue. Returns its lane, or kNoLane.
  uint32_t take_sent();
  std::span<const std::byte> received(uint64_t receive, uint32_t bytes) const {
    return {receive_memory_.base() + receive * kPieceBytes, bytes};
  }
  /// A receive has come back from the device. The caller has read it, and gives it to repost().
  void take_receive() { --receives_out_; }
  /// Posts the receive, now or together with later ones. Errors: kSystemError.
  Status repost(uint64_t receive);
  uint32_t send_queue_length() const { return static_cast<uint32_t>(sent_.size()); }

  // For its connection.
  uint32_t wanted_attempt = 1;
  std::optional<Hello> peer_hello;  ///< of the wanted attempt
  bool peer_has_joined = false;
  uint64_t retry_ns = UINT64_MAX;
  uint64_t retry_wait_ms = 0;
  uint64_t stopped_ns = 0;
  uint64_t up_ns = 0;  ///< when it came up

 private:
  struct Sent {
    uint32_t lane = kNoLane;
    uint32_t requests = 1;
  };
  Status make();
  Status post_returned();

  const Verbs& verbs_;
  const Device& device_;
  const Port& port_;
  PortAddress peer_;
  std::span<std::byte> send_memory_;
  RailOptions options_;
  State state_ = State::kOff;
  uint32_t attempt_ = 0;
  uint32_t given_up_ = 0;
  uint32_t first_packet_ = 0;
  bool has_ready_ = false;
  bool peer_is_up_ = false;
  std::string why_off_;

  Mapping receive_memory_;
  Region receives_;
  Region sends_;
  std::unique_ptr<QueuePair> pair_;  ///< destroyed before the memory
  std::deque<Sent> sent_;
  std::array<uint64_t, kRepostBatch> returned_ = {};  ///< receives to post again
  uint32_t returned_count_ = 0;
  uint32_t requests_used_ = 0;
  uint32_t receives_out_ = 0;
};

}  // namespace tutti::rdma
