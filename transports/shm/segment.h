// Segment: what a rank shares with its host: a status page, an alert that any rank may raise, and the rings
// that it writes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/limits.h"
#include "core/result.h"
#include "transports/link.h"
#include "transports/shm/memory.h"

namespace tutti {

/// Collectives of one shape in a row, from number `first` on.
struct CallRun {
  std::atomic<uint64_t> first;
  std::atomic<uint64_t> call;  ///< agreed_word of the shape
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> counts;  ///< counts_digest

  void store(uint64_t number, uint64_t its_call, uint64_t its_count, uint64_t its_counts) {
    first.store(number, std::memory_order_relaxed);
    call.store(its_call, std::memory_order_relaxed);
    count.store(its_count, std::memory_order_relaxed);
    counts.store(its_counts, std::memory_order_relaxed);
  }
};
/// How far back a mismatch can name the first call that differed.
inline constexpr uint32_t kCallRuns = 4;
/// In the place of a peer, where a rank waits for a message of whatever rank.
inline constexpr uint32_t kAnyRank = UINT32_MAX - 1;

/// Written by the rank with plain stores; read by its peers and the control thread.
struct alignas(kLineBytes) StatusPage {
  enum Presence : uint32_t {
    kHere = 0,
    kLeft = 1,  ///< finalized, destroyed, or its process has exited normally
    kDied = 2,
    kSilent = 3,  ///< its process is stopped, or its host cannot be reached
  };

  std::atomic<uint64_t> sequence;   ///< collectives entered
  std::atomic<uint64_t> completed;  ///< collectives finished
  std::atomic<uint64_t> history;    ///< of the collectives entered (core/hash.h)
  std::atomic<uint32_t> waits_for;  ///< peer + 1 after a long wait for that peer (or kAnyRank), else 0
  std::atomic<uint32_t> step;
  std::atomic<uint32_t> waited_ms;             ///< without progress, while waits_for is set
  std::atomic<uint32_t> beat;                  ///< counts the checks that found the rank still waiting
  std::atomic<uint32_t> in_messages;           ///< 1 during a send, a receive or a group
  std::atomic<uint32_t> presence;              ///< Presence; peers that notice write kDied and kSilent
  std::atomic<uint32_t> heartbeat;             ///< counted up by the process's control thread
  std::atomic<uint32_t> closed_registrations;  ///< registrations that the rank no longer uses
  std::atomic<uint32_t> run_count;             ///< the newest run is runs[(run_count - 1) % kCallRuns]
  std::atomic<uint64_t> shrink;                ///< ShrinkState, packed
  CallRun runs[kCallRuns];                     ///< for texts

  /// Collective `number` is such a call; call this before storing `sequence`. Only the rank itself calls
  /// this.
  void show_call(uint64_t number, uint64_t call, uint64_t count, uint64_t counts);
  /// The same for a rank that does not see all its calls: the page keeps none before this one.
  void show_only_call(uint64_t number, uint64_t call, uint64_t count, uint64_t counts);

  /// Whether the rank is inside an operation and may be reading its peers' memory. Call it after raising the
  /// alert. A rank first stores that it enters an operation, then looks at the alert, both sequentially
  /// consistent. So it sees the alert, or the caller sees it inside.
  bool may_read_peers() const {
    if (presence.load(std::memory_order_acquire) != kHere) return false;
    return in_messages.load() != 0 || sequence.load() != completed.load(std::memory_order_acquire);
  }
};

/// Raised once, by any rank. Never lowered.
struct alignas(kLineBytes) Alert {
  enum State : uint32_t { kQuiet = 0, kClaimed = 1, kRaised = 2 };
  /// While rank `rank` writes the alert. The number tells the others whether the writer still lives.
  static constexpr uint32_t claimed_by(uint32_t rank) { return kClaimed | (rank + 1) << 2; }

  std::atomic<uint32_t> state;  ///< kQuiet, claimed_by(from) or kRaised
  std::atomic<int32_t> code;    ///< Code
  std::atomic<uint32_t> from;
  char text[460];  ///< written between claimed_by and kRaised
};

/// The ranks of the next communicator and its unique id, from the deciding rank. A later decision replaces an
/// earlier one.
struct alignas(kLineBytes) Decision {
  std::atomic<uint64_t> number;                       ///< even: complete; odd: being written; 0: none
  std::atomic<uint64_t> members[kMaxCommRanks / 64];  ///< one bit each
  std::atomic<uint64_t> lost[kMaxCommRanks / 64];     ///< one bit each: ranks that the decider found lost
  std::atomic<uint64_t> id[16];
};

struct SegmentHeader {
  StatusPage status;
  Alert alert;
  ExposedBuffer exposed;
  Decision decision;
};
static_assert(sizeof(SegmentHeader) <= 4096);

/// Slots of a short ring: those from each of 8 ranks to all others then take 14 MiB, not 112.
inline constexpr uint32_t kShortRingSlots = 16;

/// Published rings, for each channel one ring to every rank, and for some channels a short ring, too.
struct SegmentShape {
  uint32_t rank_count = 1;
  uint32_t published = 1;
  uint32_t channels = 5;
  uint32_t short_channels = 0;
  uint32_t slots = 32;
  uint32_t slot_bytes = 16384;
  bool has_wide_slots = false;  ///< not in short rings
  bool demotes_lines = false;   ///< the processor can (core/cache_hints.h)

  /// None where slots are few: a process then has a limit on its addresses, or many rings.
  uint32_t wide_slots() const { return has_wide_slots && slots >= 64 ? slots / kCreditsPerRing : 0; }
  RingShape publish_ring() const {
    return {.slots = slots, .slot_bytes = slot_bytes, .readers = rank_count, .wide_slots = wide_slots()};
  }
  RingShape peer_ring() const {
    const uint32_t passed = wide_slots() != 0 ? std::min(slots / 2, PassedSlots::kMost) : 0;
    return {.slots = slots,
            .slot_bytes = slot_bytes,
            .readers = 1,
            .wide_slots = wide_slots(),
            .passed_slots = passed,
            .least_passed_bytes = PassedSlots::least_bytes_where(demotes_lines)};
  }
  RingShape short_ring() const {
    return {.slots = std::min(slots, kShortRingSlots), .slot_bytes = slot_bytes, .readers = 1};
  }
  size_t header_bytes() const { return 4096; }
  size_t publish_offset(uint32_t index) const { return header_bytes() + index * publish_ring().ring_bytes(); }
  size_t peer_offset(uint32_t channel, uint32_t reader) const {
    return publish_offset(published) +
           (static_cast<size_t>(channel) * rank_count + reader) * peer_ring().ring_bytes();
  }
  size_t short_offset(uint32_t channel, uint32_t reader) const {
    return peer_offset(channels, 0) +
           (static_cast<size_t>(channel) * rank_count + reader) * short_ring().ring_bytes();
  }
  size_t bytes() const { return short_offset(short_channels, 0); }
};

class Segment {
 public:
  Segment() = default;
  Segment(Mapping mapping, const SegmentShape& shape) : mapping_(std::move(mapping)), shape_(shape) {}

  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(mapping_.base()); }
  /// Ranks may have rings of different lengths, and pass slots from different sizes on.
  const SegmentShape& shape() const { return shape_; }
  std::byte* publish_ring(uint32_t index) const { return mapping_.base() + shape_.publish_offset(index); }
  std::byte* peer_ring(uint32_t channel, uint32_t reader) const {
    return mapping_.base() + shape_.peer_offset(channel, reader);
  }
  std::byte* short_ring(uint32_t channel, uint32_t reader) const {
    return mapping_.base() + shape_.short_offset(channel, reader);
  }

 private:
  Mapping mapping_;
  SegmentShape shape_;
};

struct PeerSegment {
  /// For a rank on another host, a header only: what this rank knows of its status.
  std::shared_ptr<Segment> segment;
  bool is_remote = false;
  bool same_process = false;
  uint64_t reference_offset = 0;  ///< added to an address in the peer's symmetric heap
  int pull_pid = 0;               ///< the peer's process; 0: this rank cannot pull from it
};

/// The first alert wins. `from`: the rank that found the failure. On one host its process writes; what ranks
/// of other hosts have found, the control thread of this process writes.
void raise_alert(Alert& alert, Code code, uint32_t from, std::string_view text);

/// Undoes `claim`, a state whose writer does not complete the alert, so that another alert can be raised.
/// Does nothing if the writer has completed the alert after all.
void withdraw_claim(Alert& alert, uint32_t claim);

/// Ok, or the raised error.
Status alert_status(const Alert& alert);

}  // namespace tutti
