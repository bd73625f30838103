// UcxConnection: the links to one peer over an endpoint of UCX. The frames are TCP's
// (transports/tcp/frame.h).
//
// An active message is a head (wire.h) and, after it, the payloads of a frame. UCX keeps no order between
// messages of different protocols, and needs none: a message's number gives its place. UCX chooses between
// eager and rendezvous by size. An eager payload is copied to its place, a posted receive or a slot. For a
// rendezvous the receiver names these places, and UCX fills them.
//
// A socket beside the endpoint carries the Hello of both ends during set-up, and how many messages a rank has
// sent when it ends (Note). The socket's end tells that the peer's process is gone.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "transports/connection.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/ucx/wire.h"
#include "transports/ucx/worker.h"

namespace tutti::ucx {

struct UcxOptions {
  uint32_t rank = 0;
  uint32_t peer = 0;
  RingShape shape;  ///< of all rings on both sides
  uint16_t epoch = 0;
  uint32_t number = 0;  ///< of this connection
};

class UcxConnection final : public Connection {
 public:
  /// `address`: of the peer's worker. Errors: kSystemError, kOutOfMemory, kPeerLost.
  static Result<std::unique_ptr<UcxConnection>> make(Worker& worker, std::span<const std::byte> address,
                                                     std::span<const ChannelRings> channels,
                                                     FileDescriptor socket, const UcxOptions& options);
  /// The worker must be gone: its callbacks refer to the connection.
  ~UcxConnection() override;

  // Set-up.
  bool is_usable() const { return phase_ == Phase::kUsable; }
  /// Goes on as far as the peer allows. Errors: kPeerLost.
  Status greet();
  int socket() const { return socket_.get(); }
  /// Whether the socket may still tell something.
  bool watches_socket() const { return !socket_has_ended_; }
  uint32_t peer() const { return options_.peer; }

  bool advance() override;
  void advance_fully() override;
  bool drained() const override;
  uint64_t unconfirmed_bytes() const override { return unconfirmed_bytes_.load(std::memory_order_relaxed); }
  PeerState state() const override { return state_; }
  const Status& status() const override { return failure_; }
  void withdraw() override;
  void finish() override;

  /// Takes a message for this connection; `token` came with it. False: it does not come from the peer.
  bool accepts(uint64_t token) const { return token == token_; }
  ucs_status_t receive(const MessageHead& head, const std::byte* header, void* data, size_t bytes,
                       bool is_rendezvous) noexcept;
  /// Sends what it can, and draws conclusions from what has happened. Not from a callback.
  bool turn();
  /// Reads notes and notices a peer that is gone. Costs a system call. Not from a callback.
  void look_at_socket();
  /// Begins to close the endpoint.
  void close();
  bool is_closed();
  /// UCX has requests of this connection.
  bool is_busy() const { return sends_ > 0 || fillings_ > 0; }
  /// The worker must not be destroyed before.
  void release_close();

 private:
  enum class Phase : uint8_t {
    kGreeting,  ///< waits for the peer's Hello
    kProving,   ///< waits until a message has passed in both directions
    kWaiting,   ///< for the peer, whose end may need this rank's progress to become usable
    kUsable,
  };
  /// A message on its way.
  struct Sent {
    static constexpr size_t kParts = 16;
    UcxConnection* owner = nullptr;
    std::optional<tcp::OutFrame> frame = {};  ///< empty: another kind of message
    std::array<std::byte, kMessageHeadBytes> head = {};
    std::array<ucp_dt_iov_t, kParts> parts = {};
  };
  /// A rendezvous on its way.
  struct Filled {
    UcxConnection* owner = nullptr;
    tcp::Frame frame = {};
    uint64_t first = 0;
    std::vector<ucp_dt_iov_t> parts = {};
    bool is_offered = false;  ///< a part is a posted receive
  };

  UcxConnection(Worker& worker, std::span<const ChannelRings> channels, FileDescriptor socket,
                const UcxOptions& options);
  Status open_endpoint(std::span<const std::byte> address);
  Status say_hello();
  Status receive_hello();
  Status failed_in_set_up() const;
  Status check_socket();

  bool send();
  bool send_credits();
  /// Whether UCX took the message at once.
  bool post(MessageHead::Kind kind, std::optional<tcp::OutFrame> frame);
  void complete(Sent& sent);
  void make_sure();
  static void on_sent(void* request, ucs_status_t status, void* user) noexcept;
  static void on_filled(void* request, ucs_status_t status, size_t bytes, void* user) noexcept;
  static void on_failure(void* user, ucp_ep_h endpoint, ucs_status_t status) noexcept;
  /// Does the work of a callback. Above it are UCX's functions of C, which no exception may pass: it becomes
  /// a fault.
  template <class Work>
  void shield(Work&& work) noexcept;

  Status take_receipt(uint32_t received);
  Status take_frame(const std::byte* header, void* data, size_t bytes, bool is_rendezvous, bool& is_started);
  void copy_payloads(const tcp::Frame& frame, uint64_t first, const std::byte* data);
  Status begin_filling(const tcp::Frame& frame, uint64_t first, void* data, size_t bytes);
  void filled(Filled& what);
  bool lies_in_slots(uint32_t channel, const std::byte* place) const;

  bool send_note(const Note& note);
  /// Empty: none has come. Errors: kPeerLost.
  Result<std::optional<Note>> read_note();
  void take_note(const Note& note);
  void settle();
  bool has_everything() const { return end_ && frames_received_ == *end_; }
  bool is_fault_news() const;
  void fault(std::string what);
  void end(PeerState state, const std::string& what);
  std::string who() const;

  Worker& worker_;
  const Ucp& ucp_;
  UcxOptions options_;
  FileDescriptor socket_;
  std::string address_;  ///< of the peer, for messages
  tcp::FrameLimits limits_;
  tcp::Outbox outbox_;
  tcp::Inbox inbox_;
  std::vector<std::byte*> incoming_slots_;  ///< by channel
  uint64_t token_ = 0;
  ucp_ep_h endpoint_ = nullptr;
  void* closing_ = nullptr;  ///< a request

  std::vector<std::byte> hello_bytes_;
  Hello hello_;  ///< of the peer
  Phase phase_ = Phase::kGreeting;
  bool has_passed_ = false;  ///< the peer's ready message has come

  std::vector<std::unique_ptr<Sent>> sent_;
  std::vector<Sent*> free_sent_;
  uint32_t sends_ = 0;      ///< on their way
  bool is_unsure_ = false;  ///< what was sent last may not have left this host
  uint64_t frames_sent_ = 0;
  uint64_t large_sent_ = 0;        ///< the number of frames up to the last long one
  uint64_t frames_confirmed_ = 0;  ///< the peer has received so many

  std::vector<std::unique_ptr<Filled>> filled_;
  std::vector<Filled*> free_filled_;
  uint32_t fillings_ = 0;          ///< on their way
  uint32_t offered_fillings_ = 0;  ///< of those, into posted receives
  uint64_t frames_received_ = 0;

  std::vector<std::byte> note_bytes_;
  std::optional<uint64_t> end_;  ///< frames that the peer sent before its end
  bool socket_has_ended_ = false;
  uint64_t missing_limit_ns_ = UINT64_MAX;  ///< for messages that the peer's end has overtaken
  bool has_finished_ = false;
  uint64_t seen_limit_ns_ = 0;  ///< while this rank waits for the peer's word; else 0
  std::string fault_;           ///< noticed in a callback
  /// For a fault without memory for its text; made with the connection.
  std::string ready_fault_ = "this rank has no memory left for what UCX tells it";
  bool is_faulty_ = false;  ///< a fault is being looked into
  bool violation_ = false;  ///< the peer broke the protocol; fault_ says how
  std::atomic<uint64_t> unconfirmed_bytes_ = 0;
  PeerState state_ = PeerState::kOpen;
  Status failure_;
};

}  // namespace tutti::ucx
