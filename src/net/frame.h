// Frames: what ranks say to each other once they have proved themselves, during the bootstrap and, beside
// their data, as long as the communicator lives. A frame is a header of fixed size and then a body. The
// reader bounds the size of the body before it believes it. Pure: bytes in, frames out.
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
  // Of a bootstrap. In a star the rendezvous is every rank's parent.
  kJoin = 1,  ///< rank -> rendezvous: first = rank, count = rank count; body: packed endpoints. The first one
              ///< over a Unix socket: number = version, body = key
  kParent = 2,   ///< rendezvous -> rank: body: its parent's packed endpoints; empty for the tree's root
  kLeave = 3,    ///< rank -> rendezvous: the rank needs nothing more
  kAbsent = 4,   ///< rank -> rendezvous: who is missing? number: of the exchange. Answered in the same words
                 ///< when nobody is, else everybody fails
  kUp = 5,       ///< child -> parent: packed blobs of ranks [first, first + count); number: of the exchange;
                 ///< code: 1 in the last exchange
  kDown = 6,     ///< parent -> child: packed blobs of all ranks
  kMissing = 7,  ///< child -> parent: its deadline has passed; body: text that lists ranks that have not come
  kFail = 8,     ///< any: the bootstrap has failed; code and text
  // Between the ranks of a communicator (health/control_plane.h):
  kAlert = 9,     ///< the communicator has failed; first = rank that found out, code and text
  kLeft = 10,     ///< the sender makes no further call
  kAsk = 11,      ///< what are you doing?
  kReport = 12,   ///< the answer; body: an encoded StatusCopy
  kBeat = 13,     ///< the sender lives
  kMembers = 14,  ///< who makes up the next communicator; body: packed Members
  // From a process to tutti-inspect (health/inspector_server.h):
  kText = 15,  ///< a part of the report; number: how many parts follow
  // Of a bootstrap:
  kTree = 16,  ///< rendezvous -> rank: the ranks are on several hosts; join again with endpoints
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
/// Longest text of a failure.
inline constexpr size_t kMaxFrameText = 4096;

std::array<std::byte, kFrameHeaderBytes> encode(const FrameHeader& header);

struct Frame {
  FrameHeader header;
  std::vector<std::byte> body;
  std::string text() const { return {reinterpret_cast<const char*>(body.data()), body.size()}; }
  /// The failure of a kFail or kAlert; its code is one of ours, and it has a text, whatever the peer said.
  Status failure() const;
};

/// Cuts a stream into frames.
class FrameReader {
 public:
  /// `body_bytes_max`: of frames that carry blobs; texts may be kMaxFrameText long in any case.
  explicit FrameReader(size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  /// Takes bytes and appends the frames that they complete. Errors: kMismatch: no frame of ours; nothing can
  /// be read after that.
  Status feed(std::span<const std::byte> bytes, std::vector<Frame>& frames);

 private:
  Status begin_body();

  size_t body_bytes_max_;
  std::array<std::byte, kFrameHeaderBytes> header_{};
  size_t header_bytes_ = 0;
  Frame frame_;  ///< under way once its header is whole
};

}  // namespace tutti
