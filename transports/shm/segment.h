// Segment: what one rank of a communicator shares with the ranks of its host: a status page, an alert
// that any of them may raise, and the rings that this rank writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/limits.h"
#include "core/result.h"
#include "transports/link.h"
#include "transports/shm/memory.h"

namespace tutti {

/// What a rank is doing; plain stores by the rank, read by its peers and the control thread.
struct alignas(kLineBytes) StatusPage {
  enum Presence : uint32_t {
    kHere = 0,
    kLeft = 1,  ///< finalized, destroyed, or its process has exited in good order
    kDied = 2,
    kSilent = 3,  ///< its process is stopped, or its host cannot be reached
  };

  std::atomic<uint64_t> sequence;   ///< collectives that the rank has entered
  std::atomic<uint64_t> completed;  ///< collectives that it has left
  std::atomic<uint64_t> call;       ///< what it entered: CallDescriptor, packed
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> shrink;     ///< ShrinkState, packed
  std::atomic<uint32_t> waits_for;  ///< peer + 1 while it has waited for long, else 0
  std::atomic<uint32_t> step;
  std::atomic<uint32_t> beat;         ///< counts the looks that found it still waiting for waits_for
  std::atomic<uint32_t> in_messages;  ///< 1 while it is in a send, a receive or a group of them
  std::atomic<uint32_t> has_left;     ///< Presence; kDied and kSilent are written by those that found out
  std::atomic<uint32_t> heartbeat;    ///< counted up by its process's control thread while it runs
  std::atomic<uint32_t> closed_registrations;  ///< that it does not use any more

  /// Whether the rank is inside an operation, and so may be reading memory that peers refer it to. For who
  /// has raised the alert before: a rank that enters an operation in which it may shows that here before it
  /// looks at the alert, in the one order of all such accesses, so that one of the two sees the other.
  bool may_read_peers() const {
    if (has_left.load(std::memory_order_acquire) != kHere) return false;
    return in_messages.load() != 0 || sequence.load() != completed.load(std::memory_order_acquire);
  }
};

/// Raised once, by any rank of the communicator; lowered never.
struct alignas(kLineBytes) Alert {
  enum State : uint32_t { kQuiet = 0, kClaimed = 1, kRaised = 2 };
  std::atomic<uint32_t> state;
  std::atomic<int32_t> code;   ///< Code
  std::atomic<uint32_t> from;  ///< rank that raised it
  char text[460];              ///< written between kClaimed and kRaised
};

/// Which ranks make up the next communicator, and the unique id under which they meet: decided by one rank,
/// read by the others; a later decision replaces an earlier one.
struct alignas(kLineBytes) Decision {
  std::atomic<uint64_t> number;  ///< even: complete; 0: there is none; odd: being written
  std::atomic<uint64_t> members[kMaxCommRanks / 64];  ///< a bit each
  std::atomic<uint64_t> lost[kMaxCommRanks / 64];     ///< as members: ranks that the decider has seen gone
  std::atomic<uint64_t> id[16];
};

struct SegmentHeader {
  StatusPage status;
  Alert alert;
  ExposedBuffer exposed;
  Decision decision;
};
static_assert(sizeof(SegmentHeader) <= 4096);

/// Rings of one rank: published rings, and per channel one ring to every rank.
struct SegmentShape {
  uint32_t rank_count = 1;
  uint32_t published = 1;
  uint32_t channels = 5;
  uint32_t slots = 32;
  uint32_t slot_bytes = 16384;

  RingShape publish_ring() const { return {.slots = slots, .slot_bytes = slot_bytes, .readers = rank_count}; }
  RingShape peer_ring() const { return {.slots = slots, .slot_bytes = slot_bytes, .readers = 1}; }
  size_t header_bytes() const { return 4096; }
  size_t publish_offset(uint32_t index) const { return header_bytes() + index * publish_ring().ring_bytes(); }
  size_t peer_offset(uint32_t channel, uint32_t reader) const {
    return publish_offset(published) +
           (static_cast<size_t>(channel) * rank_count + reader) * peer_ring().ring_bytes();
  }
  size_t bytes() const { return peer_offset(channels, 0); }
};

/// A mapped segment, of this rank or of a peer.
class Segment {
 public:
  Segment() = default;
  Segment(Mapping mapping, const SegmentShape& shape) : mapping_(std::move(mapping)), shape_(shape) {}

  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(mapping_.base()); }
  std::byte* publish_ring(uint32_t index) const { return mapping_.base() + shape_.publish_offset(index); }
  std::byte* peer_ring(uint32_t channel, uint32_t reader) const {
    return mapping_.base() + shape_.peer_offset(channel, reader);
  }

 private:
  Mapping mapping_;
  SegmentShape shape_;
};

/// How a rank reaches another rank's memory.
struct PeerSegment {
  /// Of a rank on another host only the header is there: what this rank knows of that rank's status.
  std::shared_ptr<Segment> segment;
  bool is_remote = false;
  bool same_process = false;
  uint64_t reference_offset = 0;  ///< added to an address in the peer's symmetric heap
  int pull_pid = 0;               ///< the peer's process; 0: its memory cannot be pulled
};

/// Puts `alert` up if nobody has; the first one wins.
void raise_alert(Alert& alert, Code code, uint32_t from, std::string_view text);

/// Ok while quiet, else what was raised.
Status alert_status(const Alert& alert);

}  // namespace tutti
