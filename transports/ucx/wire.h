// What two ranks send each other for a UCX connection, besides TCP's frames (transports/tcp/frame.h): a
// rank's address, the Hello and the notes on the proved socket of the pair, and the head of each active
// message. No UCX: bytes come from peers, and a fuzz target reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "transports/tcp/frame.h"

namespace tutti::ucx {

/// Networks that UCX serves better than TCP does. Bits.
namespace fabric {
inline constexpr uint32_t kVerbs = 1;      ///< InfiniBand and RoCE: UCX's rc, dc and ud
inline constexpr uint32_t kEfa = 2;        ///< srd
inline constexpr uint32_t kGemini = 4;     ///< ugni
inline constexpr uint32_t kSlingshot = 8;  ///< cxi
}  // namespace fabric

/// A rank as its peers see it.
struct Address {
  uint32_t fabrics = 0;
  std::vector<std::byte> worker = {};  ///< UCX's own
};

std::vector<std::byte> encode(const Address& address);
/// Errors: kPeerLost for bytes that encode does not make. UCX itself reads the worker's address.
Result<Address> decode_address(std::span<const std::byte> bytes);

/// One end of a connection. The peer puts `connection` and `token` into all its messages, so that a stranger
/// who reaches the worker is not taken for the peer.
struct Hello {
  uint32_t rank = 0;
  uint16_t epoch = 0;  ///< of the communicator
  uint32_t connection = 0;
  uint64_t token = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};
inline constexpr size_t kHelloBytes = 24;

struct HelloLimits {
  uint32_t rank = 0;  ///< that the peer must have
  uint16_t epoch = 0;
};

std::array<std::byte, kHelloBytes> encode(const Hello& hello);
/// Errors: kPeerLost, with what is wrong.
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes, const HelloLimits& limits);

/// On the socket after the Hello.
struct Note {
  enum class Kind : uint8_t {
    kUsable = 1,  ///< the sender's end of the connection is usable
    kEnd = 2,     ///< the sender has sent `frames` frames and sends no more
    kSeen = 3,    ///< the sender has received the peer's frames up to its end
  };
  Kind kind = Kind::kUsable;
  uint64_t frames = 0;

  friend bool operator==(const Note&, const Note&) = default;
};
inline constexpr size_t kNoteBytes = 16;

std::array<std::byte, kNoteBytes> encode(const Note& note);
/// Errors: kPeerLost, with what is wrong.
Result<Note> decode_note(std::span<const std::byte, kNoteBytes> bytes);

/// The first part of a message's head. The header of a frame follows; in other messages, zeros.
struct MessageHead {
  enum class Kind : uint8_t {
    kFrame = 0,
    kReady = 1,  ///< the first message of a connection
    kProbe = 2,  ///< says nothing: the sender wants to see that it leaves
  };
  uint64_t token = 0;
  uint32_t connection = 0;
  Kind kind = Kind::kFrame;
  uint32_t received = 0;  ///< frames that the sender has received; the low 24 bits

  friend bool operator==(const MessageHead&, const MessageHead&) = default;
};
inline constexpr uint32_t kReceivedMask = (1u << 24) - 1;
inline constexpr size_t kMessageHeadBytes = 16 + tcp::kHeaderBytes;

/// Writes 16 bytes.
void encode(const MessageHead& head, std::byte* bytes);
/// Errors: kPeerLost, with what is wrong.
Result<MessageHead> decode_message(std::span<const std::byte> bytes);

}  // namespace tutti::ucx
