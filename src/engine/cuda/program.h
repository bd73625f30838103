// Program: a bound plan as plain data that a kernel runs. What the host engine's Operation is for a thread, a
// Program is for the blocks of a GPU: the same plans, the same cut into rounds, chunks and slices, the same
// messages on the same rings (transports/ring.h).
//
// Life: engine/cuda/bind.h makes the tables of a Program from a Plan and a Geometry; the device communicator
// copies them to the device once and keeps them for every call of the shape; a launch names a Program and two
// buffers. One block runs one lane. A block that waits longer than the launch's bound stores its position and
// leaves the lane; the last one out either finds every lane finished, or rings the host's doorbell. Then the
// host launches what is unfinished again, or, of a launch that stays, the blocks go on by themselves in
// another round. At any time at most one launch of a rank runs, so nothing here is guarded against a second
// one.
//
// All pointers are device-visible addresses. The structs have the same layout for nvcc and for the host's
// compiler, and hold no virtual, no reference and no std type but std::byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/packets.h"
#include "transports/ring.h"

namespace tutti::cuda {

/// Most ranks of one process whose parts one launch can run together.
inline constexpr uint32_t kMaxParts = 16;
/// Most ranks that collect from and publish to each other through multicast memory.
inline constexpr uint32_t kMaxMulticastRanks = 16;
/// Kernels compiled for older architectures have no multicast accesses (multimem.h).
inline constexpr int kMulticastArchitecture = 90;
inline constexpr uint32_t kWarpThreads = 32;
/// Threads of a block. Kernels are correct for any number from two on, that of short calls also for one; on a
/// GPU, whose warps pass barriers as one, only for multiples of this.
inline constexpr uint32_t kBlockThreads = 512;
/// Threads that move bytes in a call by links; the others look ahead (roles.cuh).
inline constexpr uint32_t kMoverThreads = kBlockThreads - kWarpThreads;
/// What the movers copy at once: a slice of a multiple of it leaves nothing over.
inline constexpr uint32_t kTurnBytes = kMoverThreads * 8 * 16;

// Registered memory: memory of a rank that peers in other processes and on other devices have mapped
// (tutti_memory_register). Registrations are numbered from 1 on, equally on all ranks. A location in
// registered memory is the number of the registration and the distance in bytes from its beginning. The
// reader of a location knows where the reader itself has mapped the writer's memory.

/// One past the largest number of a registration.
inline constexpr uint32_t kRegisteredEnd = 512;
/// A location: number << kLocationShift | bytes. Never 0.
inline constexpr uint32_t kLocationShift = 48;

/// The writing end of a link, with its state from operation to operation.
struct SendLink {
  Cell* cells;
  Credit* credit;
  std::byte* slots;
  uint32_t slot_mask;
  uint32_t slot_bytes;
  uint32_t peer;
  uint32_t same_memory;  ///< 1: the peer can load from any address of this rank's memory
  uint32_t by_slot;      ///< 1: what is sent is always in a slot: the slots are multicast memory
  uint32_t comes_back;   ///< 1: slots must be given back before the call ends, as references must
  uint64_t next;
  uint64_t limit;
  uint64_t last_reference;
};

/// The reading end.
struct RecvLink {
  const Cell* cells;
  Credit* credit;
  const std::byte* slots;
  uint32_t slot_mask;
  uint32_t slot_bytes;
  uint32_t peer;
  uint32_t credit_mask;        ///< the writer is told of freed slots when `next` passes a multiple of
                               ///< credit_mask + 1
  const uint64_t* registered;  ///< by number: where the peer's memory begins here; null: the peer sends
                               ///< addresses, not locations
  uint64_t next;
};

/// A receiver's exposed buffer, as seen from here.
struct PeerExposedBuffer {
  const ExposedBuffer* buffer;
  const uint64_t* registered;  ///< as RecvLink::registered
};

enum class EndKind : uint8_t {
  kInput = 0,
  kOutput = 1,
  kScratch = 2,
  kAbsolute = 3,
  kSend = 4,
  kReceive = 5
};

struct End {
  EndKind kind;
  uint16_t lane_link;  ///< links: their number among the lane's sends or receives
  uint32_t index;      ///< links: in Program::sends or receives; memory: its first entry in Program::offsets
};

/// One step. Its chunks are entries first_chunk.. of Program::chunk_bytes; a step that is one piece (tutti's
/// "merged" steps) has one.
struct Step {
  uint32_t first_end;  ///< sources, then sinks, then companions
  uint32_t first_chunk;
  uint32_t chunk_count;
  uint32_t first_exposed;
  uint64_t slice_bytes;
  uint8_t source_count;
  uint8_t sink_count;
  uint8_t exposed_count;  ///< not 0: the result may be written directly into these receivers' buffers
  uint8_t refer_end;      ///< the end, among sources then sinks, that references name
  uint8_t copies;         ///< one source, no arithmetic
  uint8_t refers;         ///< links may carry references of slices of Program::reference_bytes on
  uint8_t sends_empty;    ///< a message of no bytes is sent all the same
  uint8_t finish;         ///< kAvg divides here
  uint32_t scaled_sources;
  uint32_t signature;   ///< messages: xored into the call's
  uint8_t collects;     ///< 1: the one source is a multicast address, and loads from it are reduced
  uint8_t contributes;  ///< 1: to what others collect, from this rank's own slots
  uint8_t published;    ///< bit m: sink m is a multicast address
  /// Links besides those among sources and sinks that must be ready and are told: the other ranks'
  /// contributions to what is collected, and the other readers of what is published.
  uint8_t companion_count;
  uint64_t location;  ///< messages: of the memory that is sent; 0: it is not registered
};

/// Rounds are a lane's own: each stripe of a call cuts its own messages. So are links: no two lanes of a
/// Program name the same one. The lane's entries of a table lie together.
struct Lane {
  uint32_t first_step;
  uint32_t step_count;  ///< 0: a rank that has nothing to do has one such lane
  uint32_t round_count;
  uint32_t most_ends;    ///< of a step
  uint64_t round_bytes;  ///< UINT64_MAX where there is one round
  uint32_t first_end;
  uint32_t first_chunk;
  uint32_t first_offset;
  uint32_t first_link;  ///< in Program::links: the lane's sends, then its receives
  /// Entries that the block copies into its room (slice.h): all of the lane's, or none where they do not fit.
  /// Sends and receives go together.
  uint32_t kept_sends;
  uint32_t kept_receives;
  uint32_t kept_ends;
  uint32_t kept_chunks;
  uint32_t kept_offsets;
  uint32_t kept_steps;
};

/// What the operation computes with; see tutti::reduce::Job.
struct Arithmetic {
  uint32_t type;         ///< tutti::DataType
  uint32_t op;           ///< tutti::ReduceOp
  uint32_t association;  ///< tutti::reduce::Association
  uint32_t element_bytes;
  uint64_t divisor;
  uint64_t scale_bits;
};

/// How a launch has left, as its last block out tells the host.
enum class LaunchEnd : uint32_t {
  kNone = 0,
  kUnfinished = 1,  ///< launch again
  kDone = 2,
  kMismatch = 3,  ///< a message of another call came: Signals::obstacle
  kAborted = 4,
  kGoesOn = 5,  ///< unfinished, of a launch that stays: its blocks go on
};

/// Low bits of Signals::left.
inline constexpr uint32_t kLaunchEndBits = 8;

/// What a lane that left unfinished waits for; of several the one of the lowest lane.
struct Obstacle {
  uint32_t peer;
  uint32_t step;  ///< of Program::steps; one past the lane's last: its references must come back. Of a short
                  ///< call: of the lane's
  uint32_t sending;  ///< 1: waits for room, else for a message
  uint32_t lane;
  uint64_t word;  ///< kMismatch: what came: a message's flag word, or a packet's flag
  uint64_t expected;
};

/// Where a lane left off. All zero: at its beginning.
struct Position {
  uint32_t round;  ///< = Lane::round_count: all steps are done, but references have not come back
  uint32_t step;   ///< short calls: 1 once all is pushed
  uint32_t chunk;
  uint32_t finished;
  uint64_t done_bytes;  ///< of the chunk's part in this round
  Obstacle obstacle;    ///< why it left
};

// ---- short calls (short.cuh) --------------------------------------------------------------------
//
// A short call sends packets in place of messages: data and flag in one store. Every rank has a mailbox for
// each rank, itself included, in its own memory; only the sender writes there. Short calls are counted apart,
// and use the two halves of a mailbox in turn: see short.cuh for why that is enough.

/// Most blocks that work on one.
inline constexpr uint32_t kMaxShortLanes = 32;
/// Words of data in a packet. A flag of 32 bits follows them.
inline constexpr uint32_t kPacketWords = kFullPacketDataBytes / 4;
/// Packets of a half of a mailbox. A lane sends a rank one or two messages, each a chunk of a stripe, and
/// both are cut at multiples of 64 bytes: 20 packets are more than the rounding takes.
inline constexpr uint32_t kMailPackets = kMailboxDataBytes / kFullPacketDataBytes + 20 * kMaxShortLanes;
inline constexpr uint32_t kHalfMailboxBytes = kMailPackets * kWholePacketBytes;
inline constexpr uint32_t kMailboxBytes = 2 * kHalfMailboxBytes;

/// The flag of a packet: signature of the call (20 bits) | number of the short call (12 bits, its epoch).
inline constexpr uint32_t kEpochBits = 12;
inline constexpr uint32_t kEpochMask = (1u << kEpochBits) - 1;
/// So many short calls write all packets of the mailboxes, so that no flag outlives its epoch: each call some
/// of its half, in turn.
inline constexpr uint32_t kRenewalPeriod = 1u << (kEpochBits - 1);
inline constexpr uint32_t kRenewalsOfHalf = kRenewalPeriod / 2;
inline constexpr uint32_t kRenewedPackets = (kMailPackets + kRenewalsOfHalf - 1) / kRenewalsOfHalf;

/// An end of a short step.
struct ShortEnd {
  EndKind kind;       ///< kInput, kOutput, kSend or kReceive
  uint32_t peer;      ///< of a link
  uint64_t location;  ///< memory: bytes from the buffer's start; links: the first packet's address in the
                      ///< first half
};

/// One message to each sink, or from each source.
struct ShortStep {
  uint32_t bytes;
  uint32_t packets;  ///< a message of no bytes has one packet
  uint8_t source_count;
  uint8_t sink_count;
  uint8_t computes;               ///< 1: ShortLane::pushing or ::pulling says what; 0: a copy
  ShortEnd ends[kPacketEndsMax];  ///< sources, then sinks; of a step that reads packets and sends what it
                                  ///< makes of them: both are links
};

/// The packets of a mailbox that a call does not use: those behind the first `used`.
struct UnusedMail {
  uint64_t location;  ///< of the mailbox
  uint32_t used;
};

/// What a block does in a short call: steps that read no packets, then steps that do.
struct alignas(16) ShortLane {
  uint32_t push_count;
  uint32_t step_count;
  uint32_t data_bytes;      ///< in each packet
  uint32_t pushing_scaled;  ///< of the pushes that compute: they have one source each
  uint32_t pulling_sources;
  uint32_t pulling_scaled;
  uint32_t pulling_finishes;
  uint32_t unused_count;
  UnusedMail unused[kPacketRanksMax];
  ShortStep steps[kPacketStepsMax];
};

struct Program;

/// One rank's part in a launch.
struct Part {
  Program* program;
  const void* input;
  void* output;
  const void* scale;     ///< device memory that holds the scalar of a pre-multiplied sum, or null:
                         ///< Arithmetic::scale_bits
  uint32_t first_block;  ///< of the grid
  uint32_t block_count;  ///< = the program's lane_count; or fewer in a launch that stays, whose blocks take
                         ///< the lanes in turn
  Reach input_reach;
  Reach output_reach;
};

/// What a launch that has left, or a round, tells the host.
struct LaunchReport {
  uint64_t moved;     ///< counts those in which a lane moved a slice
  uint64_t ended;     ///< counts operations that have ended, done or failed; those of replayed graphs too
  uint64_t sequence;  ///< RankState::sequence as it left it
  Part part;          ///< kUnfinished, kGoesOn, kMismatch: its own; in a replayed graph only the device knows
  Obstacle obstacle;  ///< kUnfinished, kGoesOn, kMismatch; of the first mismatch
};
inline constexpr uint32_t kReportWords = sizeof(LaunchReport) / sizeof(uint64_t);
static_assert(sizeof(LaunchReport) % sizeof(uint64_t) == 0);

/// The counts of a LaunchReport: its first words.
inline constexpr uint32_t kReportCounts = 3;
/// A count with the Signals::left that it belongs to, in one store: no fence must order the two.
struct alignas(16) StampedCount {
  uint64_t count;
  uint64_t left;
};

/// Words in pinned host memory between a rank's launches and its host.
struct Signals {
  alignas(64) uint32_t abort;  ///< host -> device: not 0: every block leaves at its next look
  /// device -> host and -> streams: 0 from a first launch's start on; 1 once the operation has ended (done,
  /// or failed for good). The user's stream waits for 1.
  alignas(64) uint32_t done;
  /// device -> host: the launches, and rounds of launches that stay, that have left, counted in steps of 1 <<
  /// kLaunchEndBits; the low bits say how the last one did (LaunchEnd). One word, so that the two belong
  /// together. Written after its report's words and before `done`, but where an operation is done in a launch
  /// that stays: then in any order.
  alignas(64) uint64_t left;
  /// device -> host: the counts of the LaunchReport of `left`, and the rest of it word by word, both in
  /// report_slot(left). The next launch or round writes the other slot, the one behind it this one again: who
  /// has copied a slot, with stamps like `left`, and finds `left` as it was, has the report of one moment.
  alignas(64) StampedCount counts[2][kReportCounts];
  alignas(64) uint64_t report[2][kReportWords];
};

constexpr uint32_t report_slot(uint64_t left) {
  return left >> kLaunchEndBits & 1;
}

/// Step of RankState::rounds.
inline constexpr uint32_t kRound = 1u << 16;

/// State of a rank in device memory, shared by its Programs.
struct RankState {
  uint64_t sequence;    ///< of collectives that have ended
  uint64_t history;     ///< of those (core/hash.h)
  uint32_t lanes_out;   ///< left in the present launch or round
  uint32_t lanes_gone;  ///< of those the ones whose blocks have left a launch that stays: they are finished
  uint32_t lanes_finished;
  uint32_t lanes_moved;    ///< in the present launch or round
  uint32_t failed;         ///< not 0 (a LaunchEnd): the blocks of this launch leave
  uint32_t rounds;         ///< that have gone on, in steps of kRound; below, blocks that have deserted one
  ExposedBuffer* exposed;  ///< this rank's own
  uint64_t short_calls;    ///< of `sequence`
  uint64_t left;           ///< what Signals says, kept where the device reads it fast; blocks that stay wait
                           ///< for it to change
  uint64_t moved;
  uint64_t ended;
};

struct Program {
  const Step* steps;
  const End* ends;
  const uint64_t* offsets;  ///< of memory ends, chunk by chunk, relative to the end's base
  const uint64_t* chunk_bytes;
  const uint32_t* links;  ///< indices in `sends` and `receives`, lane by lane
  const Lane* lanes;
  const PeerExposedBuffer* exposed;
  const ShortLane* short_lanes;  ///< one a lane of a short call, which has no other tables; else null
  uint64_t short_bytes;          ///< of each, what is used by any
  Position* positions;           ///< one a lane
  SendLink* sends;
  RecvLink* receives;
  RankState* state;
  Signals* signals;
  unsigned char* scratch;
  uint32_t lane_count;
  uint64_t reference_bytes;  ///< UINT64_MAX: no references
  uint64_t signature_seed;   ///< collectives: continues RankState::history
  uint32_t is_collective;    ///< 1: counts in RankState::sequence; 0: a group of messages
  Arithmetic arithmetic;
};

/// The one argument of the kernels.
struct Launch {
  uint32_t part_count;  ///< 0: does nothing
  uint32_t first;       ///< 1: begins the operations; 0: goes on where they left off
  uint32_t stays;  ///< 1: what is unfinished goes on in this launch, round after round. For grids that the
                   ///< device holds together with all that they wait for
  uint64_t
      poll_limit;  ///< a lane that was not ready so many times in a row leaves; UINT64_MAX: never by itself
  Part parts[kMaxParts];  ///< last, so that few parts are near the words above
};

}  // namespace tutti::cuda
