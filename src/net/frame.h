// Frames: messages between proved ranks, during the bootstrap and beside the data later: a header of fixed
// size and a body. The reader checks the announced size first. Pure: bytes in, frames out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace tutti {

enum class FrameKind : uint32_t {
  // During a bootstrap. In a star, the rendezvous is every rank's parent.
  kJoin = 1,  ///< rank -> rendezvous: first = rank, count = rank count; body: packed endpoints. The first one
              ///< over a Unix socket: number = version, body = key
  kParent = 2,  ///< rendezvous -> rank: body: the parent's packed endpoints; empty for the root
  kLeave = 3,   ///< rank -> rendezvous: this rank needs nothing more
  kAbsent = 4,  ///< rank -> rendezvous: who is missing? number: of the exchange. If nobody is missing, the
                ///< answer is a kAbsent too, otherwise all ranks fail
  kUp = 5,  ///< child -> parent: packed blobs of ranks [first, first + count); number: of the exchange; code:
            ///< 1 in the last exchange
  kDown = 6,     ///< parent -> child: packed blobs of all ranks
  kMissing = 7,  ///< child -> parent: the child's deadline has passed; body: text with the missing ranks
  kFail = 8,     ///< any: the bootstrap has failed; code and text
  // Between the ranks of a communicator (health/control_plane.h):
  kAlert = 9,     ///< the communicator has failed; first = rank that noticed; code and text
  kLeft = 10,     ///< the sender makes no more calls
  kAsk = 11,      ///< asks for a kReport
  kReport = 12,   ///< body: an encoded StatusCopy
  kBeat = 13,     ///< the sender is alive
  kMembers = 14,  ///< the next communicator; body: packed Members
  // From a process to tutti-inspect (health/inspector_server.h):
  kText = 15,  ///< a part of the report; number: parts that follow
  // In a bootstrap:
  kTree = 16,  ///< rendezvous -> rank: the ranks are on several hosts; join again with endpoints
  // Between the ranks of a communicator (health/socket_exchange.h):
  kRenew = 17,  ///< a data socket is torn; first: its number; count: attempts so far; body: where the sender
                ///< listens for another one (packed endpoints), or empty: the receiver of this should listen
};

struct FrameHeader {
  FrameKind kind = FrameKind::kFail;
  uint32_t body_bytes = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t number = 0;
  uint32_t code = 0;
};
inline constexpr size_t kFrameHeaderBytes = 24;
inline constexpr size_t kMaxFrameText = 4096;

std::array<std::byte, kFrameHeaderBytes> encode(const FrameHeader& header);

struct Frame {
  FrameHeader header;
  std::vector<std::byte> body;
  std::string text() const { return {reinterpret_cast<const char*>(body.data()), body.size()}; }
  /// The failure in a kFail or kAlert. It has a valid code and a text, whatever the peer sent.
  Status failure() const;
};

class FrameReader {
 public:
  /// `body_bytes_max` is for frames with blobs. Texts may always have kMaxFrameText bytes.
  explicit FrameReader(size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  /// Appends the frames that `bytes` complete. Errors: kMismatch for invalid bytes: nothing more can be read.
  Status feed(std::span<const std::byte> bytes, std::vector<Frame>& frames);

  // The same step by step, for bytes that must not be lost where memory is short: only room() takes memory.

  /// Where the next bytes of the frame belong; not empty. Not for a whole frame.
  std::span<std::byte> room();
  /// So many bytes have come into room(). Errors: as feed.
  Status fill(size_t bytes) noexcept;
  bool is_whole() const {
    return header_bytes_ == kFrameHeaderBytes && body_bytes_ == frame_.header.body_bytes;
  }
  /// The whole frame, whose place becomes free for the next one.
  Frame take() noexcept;
  /// Undoes take().
  void put_back(Frame&& frame) noexcept;

 private:
  Status begin_body() noexcept;

  size_t body_bytes_max_;
  std::array<std::byte, kFrameHeaderBytes> header_{};
  size_t header_bytes_ = 0;  ///< that have come
  size_t body_bytes_ = 0;    ///< that have come; the body may be larger
  Frame frame_;              ///< incomplete or whole
};

}  // namespace tutti
