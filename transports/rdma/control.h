// Control: what two ranks tell each other over the proved socket of their connection: how rails begin and
// end, how lanes go on after a fault, and the pieces of lanes that have no rail.
//
// A message is a head of 16 bytes and a payload. Bytes come from a peer; a fuzz target reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti::rdma {

inline constexpr uint32_t kMostRails = 4;  ///< of two ranks
inline constexpr uint32_t kPieceBytes = 4096;

enum class ControlKind : uint8_t {
  kHello = 1,   ///< a queue pair for a rail; the payload is a Hello
  kJoined = 2,  ///< the rail's queue pair sends and receives
  kUp = 3,      ///< a piece has passed in both directions of the rail
  kBroken = 4,  ///< the rail's queue pair is given up, or cannot be made
  kResume = 5,  ///< a lane has stopped; the payload is a Resume
  kPiece = 6,   ///< of a lane without a rail
};

struct Control {
  ControlKind kind = ControlKind::kHello;
  uint32_t index = 0;  ///< of the rail or lane
  uint32_t turn = 0;   ///< the rail's attempt, or the lane's generation
  uint32_t word = 0;   ///< kPiece: its word (lane.h)
  uint32_t bytes = 0;  ///< of the payload

  friend bool operator==(const Control&, const Control&) = default;
};
inline constexpr size_t kControlBytes = 16;

std::array<std::byte, kControlBytes> encode(const Control& control);
/// Errors: kPeerLost, for a kind, index or length that encode() never makes.
Result<Control> decode_control(std::span<const std::byte, kControlBytes> bytes);

/// Where a lane stands when it stops. Numbers of pieces have 24 bits.
struct Resume {
  uint32_t sent = 0;           ///< pieces of this end
  uint32_t received = 0;       ///< pieces of the other end
  uint32_t usable_rails = 0;   ///< one bit a rail
  bool has_lost_rail = false;  ///< `received` cannot grow: the sender repeats what comes after

  friend bool operator==(const Resume&, const Resume&) = default;
};
inline constexpr size_t kResumeBytes = 16;

std::array<std::byte, kResumeBytes> encode(const Resume& resume);
/// Errors: kPeerLost.
Result<Resume> decode_resume(std::span<const std::byte> bytes);

/// The socket, read and written without blocking.
class ControlSocket {
 public:
  explicit ControlSocket(FileDescriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }
  /// Queues a message and writes what the socket takes.
  void send(Control control, std::span<const std::byte> payload);
  bool flush();  ///< returns whether bytes moved
  bool has_unsent() const { return written_ < unsent_.size(); }
  size_t unsent_bytes() const { return unsent_.size() - written_; }
  size_t held_bytes() const { return unsent_.capacity(); }  ///< memory for unsent bytes

  enum class Input : uint8_t { kNothing, kMessage, kEnd };
  /// The next message; `payload` is valid until the next call. Errors: kPeerLost for invalid bytes.
  Result<Input> next(Control& control, std::span<const std::byte>& payload);

 private:
  bool fill();

  FileDescriptor socket_;
  std::vector<std::byte> unsent_;
  size_t written_ = 0;
  std::vector<std::byte> input_;
  size_t parsed_ = 0;  ///< of the input
  bool has_ended_ = false;
};

}  // namespace tutti::rdma
