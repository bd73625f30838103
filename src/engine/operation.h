// Operation: one rank's plan bound to the buffers of a call, and the interpreter of the plan.
//
// Binding turns chunks into offsets, links into pointers and the type into a kernel. Calls of the same shape
// share one operation. Running is resumable: `advance` goes as far as the links allow, without allocation,
// lock or system call. The caller decides how to wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/cut.h"
#include "engine/geometry.h"
#include "engine/links.h"
#include "engine/result_trials.h"
#include "plan/plan.h"
#include "reduce/reduce.h"
#include "transports/device_span.h"
#include "transports/shm/pull.h"

namespace tutti {

enum class Progress : uint8_t {
  kDone,
  kMoved,     ///< something moved, then nothing more could
  kBlocked,   ///< nothing moved
  kMismatch,  ///< a message of another call arrived, or one that cannot be read: see Operation::obstacle
};

/// What a blocked operation waits for.
struct Obstacle {
  uint32_t peer = 0;
  uint32_t step = 0;
  bool sending = false;  ///< true: waits for room; false: for a message
  uint64_t word = 0;     ///< kMismatch: the flag word that arrived
  uint64_t expected = 0;
  int pull_error = 0;  ///< not 0: kMismatch, because a message cannot be pulled; an errno
};

/// What a call adds to a plan.
struct BindOptions {
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  uint64_t premul_scalar_bits = 0;  ///< kPremulSum
  bool reproducible = false;
  uint64_t message_bytes = 0;  ///< of the whole call
  /// From this size on, calls find out how to write their results (result_trials.h).
  uint64_t streaming_bytes = UINT64_MAX;
  uint64_t long_call_bytes = UINT64_MAX;  ///< ... and from this size on they are long (ResultTrials)
  uint64_t reference_bytes = UINT64_MAX;  ///< from this size on, slices travel by reference in shared memory
  uint64_t pull_bytes = UINT64_MAX;       ///< from this size on, the reader pulls slices where it can
  /// From this size on, messages are pulled where that is faster (transports/carriage_trials.h).
  uint64_t pulled_message_bytes = UINT64_MAX;
  PullCost pull_cost{};        ///< messages are not pulled where slots take less
  bool direct_writes = false;  ///< allow direct writes into exposed buffers
  bool string_moves = false;   ///< reduce::has_string_moves()
  uint32_t slots = 32;
  uint32_t slot_bytes = 16384;
  uint64_t least_slice_bytes = SliceLimits{}.least;
  uint32_t wanted_slices = SliceLimits{}.wanted;
  uint32_t wide_slots = 0;  ///< SliceLimits::wide_slots

  SliceLimits slices() const {
    return {
        .least = least_slice_bytes, .most = slot_bytes, .wanted = wanted_slices, .wide_slots = wide_slots};
  }
};

struct Buffers {
  const void* input = nullptr;
  void* output = nullptr;
  bool input_shared = false;  ///< every peer can read `input` (symmetric heap)
  bool output_shared = false;
  bool input_registered = false;  ///< transports that read registered buffers can read `input`
  bool output_registered = false;
  uint64_t call = 0;  ///< number of the collective, for exposed buffers; 0: no direct writes
};

struct Message {
  void* buffer = nullptr;
  uint64_t bytes = 0;
  uint32_t peer = 0;
  bool sending = false;
  uint64_t seed = 0;        ///< message_seed, or of an all_to_all_v
  uint64_t history = 0;     ///< of the link before this message: see copy_histories
  bool shared = false;      ///< the peer can read the buffer (symmetric heap)
  bool registered = false;  ///< as Buffers::input_registered
  DataType type = DataType::kUint8;
  uint16_t tag = 0;
  DeviceCopier* device = nullptr;  ///< not null: the buffer is registered memory of the rank's device
  /// With `device`: host memory that stands for the last slice, if that is too short for a card (tail_bytes).
  std::byte* tail = nullptr;
};

/// The bytes of a message's last slice, if it travels behind its header in a network; else 0.
uint64_t tail_bytes(uint64_t message_bytes, const SliceLimits& limits);

class Operation {
 public:
  /// Errors: kOutOfMemory.
  static std::unique_ptr<Operation> bind(const Plan& plan, const Geometry& geometry,
                                         const BindOptions& options, LinkTable& links);
  /// Binds a group of messages: one lane per peer and direction, in call order. Only the byte limits of
  /// `options` count. Both ends of a link count the messages in its history, so start each group that is
  /// bound.
  static std::unique_ptr<Operation> bind_messages(std::span<const Message> messages,
                                                  const BindOptions& options, LinkTable& links);
  /// Reuses this operation for other messages. False unless peers, directions and order are the same.
  /// Allocates nothing.
  bool rebind_messages(std::span<const Message> messages);

  /// Whether `repeat` can start this operation: it is bound to one message with the same peer, and `message`
  /// is so short that it travels in its cell or slot. Requires the same direction, and memory of the host.
  bool can_repeat(const Message& message) const {
    return message.bytes - 1 < most_repeated_bytes_ && message.peer == repeated_peer_;
  }
  /// rebind_messages, `start` and `advance` in one. Requires can_repeat. Of a message like the last one,
  /// only the buffer is new.
  Progress repeat(const Message& message, uint32_t polls);

  /// Binds an all_to_all_v. Blocks of up to `most_bytes`, at most a slot, travel by the plan of an all_to_all
  /// of variable counts; longer ones as messages. A rank that hands blocks on finds their sizes in the
  /// messages that bring them (bind_blocks.cc).
  static std::unique_ptr<Operation> bind_blocks(const Plan& plan, uint64_t most_bytes,
                                                const BindOptions& options, LinkTable& links);
  /// The blocks of the next call, as messages to and from every other rank. `signature`: of what travels by
  /// the plan. Allocates nothing, except in the first calls.
  void set_blocks(std::span<const Message> messages, uint32_t signature);

  /// All ranks pass the same `signature`, and each call has its own. Messages are counted in the histories of
  /// their links.
  void start(const Buffers& buffers, uint32_t signature);

  /// After `start`: sets the histories of the messages that were bound or set.
  void copy_histories(std::span<Message> messages) const;

  /// The short path of a repeated call: `start` and `advance` in one. Requires is_short.
  Progress start_short(const void* input, void* output, uint32_t signature, uint32_t polls);
  /// Whether there is one lane of one-slice steps, all too short for references and for trials of results.
  bool is_short() const { return short_ && !may_refer_ && results_ == nullptr; }

  /// The bytes of a plan that one rank must copy at least if all messages are pulled: this rank copies those
  /// that it receives, a peer those that this rank sends to it.
  uint64_t least_pulled_bytes() const;

  /// Whether this rank receives in this operation.
  bool receives() const { return receives_; }
  /// Messages, before `start`: whether this rank has just received, so that a peer may wait for its answer.
  void answers(bool received_before) { expect_waiting(receives_ || received_before); }

  /// Runs until done or blocked. Polls a link that is not ready up to `polls` times; with several lanes,
  /// once.
  Progress advance(uint32_t polls);

  /// Whether readers may pull long slices of collectives. Call before `start`.
  void allow_pulling(bool allowed) { pulling_ = allowed; }

  /// Whether direct writes are possible. If so, the caller opens its ExposedBuffer before `start`.
  bool writes_directly() const { return !exposed_.empty(); }

  const Obstacle& obstacle() const { return obstacle_; }
  /// Whether peers may still read this call's buffers.
  bool holds_references() const;

 private:
  /// Messages of one operation may differ in size: 32 KiB, 64 KiB, ... 128 MiB and more.
  static constexpr uint32_t kSizeClasses = 13;
  static constexpr uint64_t kLeastSizeClass = 32768;
  /// The lines of a short payload that the reader waits for are demoted: it has them a fifth sooner. Longer
  /// payloads gain nothing, and a writer that runs ahead would lose (docs/measurements/carriage.md).
  static constexpr uint64_t kMostDemotedBytes = 1024;

  /// Shorter payloads are sent before the rank copies them to its own memory. Of longer ones all copies are
  /// made at once (docs/measurements/carriage.md).
  static constexpr uint64_t kLeastCopiedTogether = 4096;

  /// Longer messages gain nothing by `repeat`.
  static constexpr uint64_t kMostRepeatedBytes = 4096;

  /// The longest slice that may take the plain short path.
  static constexpr uint64_t kMostPlainBytes = 8192;

  static constexpr uint32_t kNoStep = UINT32_MAX;  ///< a block that travels by the plan

  enum Base : uint8_t { kInputBase = 0, kOutputBase = 1, kScratchBase = 2, kAbsoluteBase = 3 };

  /// An end of a bound step: a link, or memory relative to a base.
  struct BoundEnd {
    SendLink* send = nullptr;
    RecvLink* recv = nullptr;
    Base base = kInputBase;
    uint32_t first_chunk = 0;
    uint64_t address = 0;  ///< kAbsoluteBase
  };
  struct BoundStep {
    uint32_t first_end = 0;  ///< sources, then sinks
    uint8_t source_count = 0;
    uint8_t sink_count = 0;
    bool merged = false;                ///< the chunks form one piece, at the ends' offsets
    bool send_empty = false;            ///< sends a message of no bytes too
    bool copies = false;                ///< one source and no arithmetic
    uint8_t sent_first = 0;             ///< copies to links and then to memory: the links
    uint32_t trial_outputs = 0;         ///< sinks in the receive buffer whose stores ResultTrials choose
    StoreTrials::Length length{};       ///< of the current chunk or message
    uint64_t refer_bytes = UINT64_MAX;  ///< from this size on, slices may travel as references to `refer_end`
    bool shared = false;                ///< messages: every peer can read the source
    bool pulled = false;                ///< messages: the readers pull, or have pulled
    bool timed = false;                 ///< messages: the reader times it
    bool tries = true;                  ///< results of the slice at hand are written as the call tries
    bool is_plain = false;              ///< may take the short path between trials
    bool whole = false;                 ///< the piece travels as one run: no slices
    uint64_t began_ns = 0;              ///< timed: when the first slice was here
    bool registered = false;            ///< messages: Message::registered
    DeviceCopier* device = nullptr;     ///< messages: Message::device
    std::byte* tail = nullptr;          ///< messages: Message::tail
    uint8_t refer_end = 0;              ///< the source of a copy, or a sink in the receive buffer
    uint32_t first_exposed = 0;
    uint32_t exposed_count = 0;  ///< not 0: these receivers' buffers may take the result
    uint32_t signature = 0;      ///< of a message; else 0
    uint64_t seed = 0;           ///< Message::seed
    uint64_t history = 0;        ///< Message::history
    uint32_t first_chunk = 0;
    uint32_t chunk_count = 0;
    uint64_t merged_bytes = 0;
    uint64_t slice_bytes = 0;
    bool early = false;        ///< bytes of later rounds may come before their turn
    uint64_t later_bytes = 0;  ///< early: bytes of the chunk behind the current piece
    reduce::Kernel kernel = nullptr;
    uint8_t element_shift = 0;  ///< log2 of the bytes per element of the kernel
    reduce::Job job;            ///< binding sets all but pointers and count
  };
  struct BoundLane {
    uint32_t first_step = 0;
    uint32_t step_count = 0;
    // Position of the current run:
    uint32_t step = 0;
    uint32_t round = 0;
    uint32_t chunk = 0;
    uint64_t done_bytes = 0;  ///< of the current piece
    uint64_t piece_bytes = 0;
    bool piece_ready = false;
    bool done = false;
    std::array<uint64_t, reduce::kMaxSources + reduce::kMaxSinks> offsets{};  ///< of the current piece's ends
  };

  /// A block of an all_to_all_v, in a user's buffer or in scratch.
  struct Block {
    uint64_t offset = 0;  ///< from the base of its end; of a user's block: the address
    uint64_t bytes = 0;
    bool is_message = false;  ///< too long for the plan, which carries an empty message with a mark
    bool shared = false;      ///< as Message
    bool registered = false;
  };
  struct Blocks {
    uint64_t most_bytes = 0;
    uint32_t signature = 0;
    uint32_t rank = 0;
    uint32_t plan_lanes = 0;
    uint32_t plan_steps = 0;     ///< behind them: for each other rank the step of a send and of a receive
    std::vector<Block> input;    ///< by rank; the own block is empty
    std::vector<Block> output;   ///< by rank; the own block is empty
    std::vector<Block> scratch;  ///< by chunk
  };

  Operation() = default;
  void bind_step(const Plan& plan, const Step& planned, const BindOptions& options, LinkTable& links);
  BoundEnd bind_end(const End& end, bool is_sink, LinkTable& links) const;
  void choose_kernel(const Plan& plan, const Step& step, const BindOptions& options, const StepUse& use,
                     BoundStep& bound) const;
  void prepare_result_trials(const BindOptions& options, bool copies, bool sums);
  void choose_result_trials(uint64_t bytes);
  bool times_copies() const { return results_ != nullptr && results_->is_timed(); }
  void find_exposed_buffers(const std::vector<uint32_t>& peers, LinkTable& links, BoundStep& bound);
  void allow_repeats(const Message& message);
  void count_messages();
  void count_message(BoundStep& step);
  void choose_carriage(BoundStep& step);
  void judge_carriage(const BoundStep& step);
  void merge_step(BoundStep& bound, const Step& step);
  void set_length(BoundStep& step, uint64_t bytes) const;
  static void find_plain(BoundStep& step);
  bool is_plain_now(const BoundStep& step) const;
  bool has_quiet_ends(const BoundStep& step) const;
  void use_quiet_stores(BoundStep& step) const;
  void bind_message(const Message& message, LinkTable& links);
  void place_message(const Message& message, uint32_t step_number);
  void place_buffer(const Message& message, const BoundStep& step);
  void enter_history(BoundStep& step);
  void settle_messages();
  void settle_links();
  void expect_waiting(bool expected) { most_demoted_bytes_ = expected ? kMostDemotedBytes : 0; }
  void demote(const BoundStep& step, uint64_t bytes) const;
  void claim_slots(const BoundStep& step, uint64_t bytes) const;
  bool messages_are_short() const;
  uint64_t end_offset(const BoundEnd& end, uint32_t k, uint64_t start) const;

  void find_early_steps();
  bool may_be_early(const BoundLane& lane, uint32_t index) const;
  std::span<const std::byte> first_chunk_of(const BoundEnd& end) const;
  static bool only_receives(const BoundStep& step, const BoundEnd* ends);
  void end_runs(const BoundStep& step) const;
  void next_piece(BoundLane& lane, BoundStep& step);
  bool next_step(BoundLane& lane);
  bool is_block(const BoundStep& step) const { return blocks_ != nullptr && !step.merged; }
  Block* block_at(const BoundEnd& end, uint32_t chunk) const;
  bool next_block(BoundLane& lane, BoundStep& step);
  bool learn_block(const BoundStep& step, const RecvLink& link, Block& block);
  void blame_sender(const BoundLane& lane, const BoundStep& step);
  uint32_t message_step_of(const Message& message) const;
  Progress advance_short(uint32_t polls);
  Progress run_short_step(BoundStep& step, uint32_t polls);
  bool pass_plain(BoundStep& step, uint32_t sink_count, bool copies, uint32_t polls);
  template <PlainPayload kPayload>
  bool pass_as(BoundStep& step, uint32_t sink_count, bool copies, uint32_t polls);
  template <PlainPayload kPayload>
  bool copy_plain(const BoundStep& step, uint32_t sink_count) const;
  void copy_to_memory(const BoundStep& step, const std::byte* source, const uint64_t* offsets, uint64_t shift,
                      uint64_t bytes) const;
  template <PlainPayload kPayload>
  bool compute_plain(BoundStep& step) const;
  template <PlainPayload kPayload>
  void send_plain(const BoundStep& step, uint32_t sink_count) const;
  template <PlainPayload kPayload>
  bool has_another(const BoundStep& step) const;
  bool is_copy_in_memory() const;
  void copy_in_memory() const;
  Progress advance_lane(BoundLane& lane, uint32_t polls);
  Progress run_slice(BoundStep& step, const uint64_t* offsets, uint64_t shift, uint64_t bytes, uint64_t left);
  Progress run_device_slice(const BoundStep& step, const uint64_t* offsets, uint64_t shift, uint64_t bytes,
                            uint64_t left);
  Progress send_device_slice(const BoundStep& step, std::byte* source, uint64_t bytes, bool is_tail);
  void keep_reference(SendLink& link);
  static reduce::Job only_to(const reduce::Job& all, uint32_t written);
  static uint32_t sinks_unlike_source(const BoundStep& step);
  static void write_sinks(BoundStep& step, uint32_t written);
  void write_all(BoundStep& step, const uint64_t* offsets, uint64_t shift, uint64_t bytes, uint64_t began_ns);
  void write_some(BoundStep& step, uint64_t bytes, bool refers, uint64_t began_ns);
  bool write_directly(const BoundStep& step, uint64_t bytes, uint64_t began_ns);
  uint64_t choose_stores(BoundStep& step, uint64_t bytes, uint64_t shift, uint64_t left) const;
  /// For short payloads. No trial: returns 0.
  static uint64_t use_ordinary_stores(BoundStep& step) {
    step.job.streaming_sinks = step.job.string_sinks = step.job.interleaved_sinks = 0;
    return 0;
  }
  static void set_stores(reduce::Job& job, uint32_t sink, Stores stores) {
    if (stores == Stores::kStreaming) job.streaming_sinks |= 1u << sink;
    if (stores == Stores::kString) job.string_sinks |= 1u << sink;
    if (stores == Stores::kInterleaved) job.interleaved_sinks |= 1u << sink;
  }
  static bool sends_first(const BoundStep& step, uint64_t bytes) {
    return step.sent_first != 0 && bytes < kLeastCopiedTogether;
  }
  /// Whether the slice at hand adds to its own result; a sum has one in the receive buffer. Then its lines
  /// are in the cache, because they have been read, and ordinary stores are the faster ones.
  bool sums_in_place(const BoundStep& step) const;
  /// Whether the slice is timed as a trial of results. Not if links are written first, nor for a sum in
  /// place.
  bool times_results(const BoundStep& step, uint64_t bytes) const {
    return times_copies() && step.tries && !sends_first(step, bytes) && !sums_in_place(step);
  }
  StoresSet stores_of(const BoundStep& step) const { return step.copies ? stores_of_copies_ : kStoresOfSums; }
  void judge_stores(const BoundStep& step, uint64_t bytes, uint64_t began_ns, uint32_t slot_sinks) const;
  void* output_place(const BoundStep& step) const;
  Carriage carriage_for(const BoundStep& step, SendLink& link, uint64_t bytes) const;
  bool travels_whole(const BoundStep& step, uint64_t bytes) const;
  Progress pull_sources(BoundStep& step, uint64_t bytes, uint64_t left);
  static int pull_ahead(RecvLink& link, std::byte* target, uint64_t bytes, uint64_t left, uint64_t room);
  static bool is_straight(const BoundStep& step, const BoundEnd* ends);
  void release(const BoundStep& step, RecvLink& link, uint64_t bytes);
  void offer(const BoundStep& step, const RecvLink& link, const uint64_t* offsets, uint64_t shift,
             uint64_t left);
  Progress not_arrived(const BoundStep& step, const RecvLink& link, uint64_t word, uint64_t expected);
  bool references_returned();
  uint32_t step_number(const BoundStep& step) const { return static_cast<uint32_t>(&step - steps_.data()); }

  Geometry geometry_;
  std::vector<BoundStep> steps_;
  std::vector<BoundEnd> ends_;
  std::vector<uint64_t> offsets_;  ///< of merged ends, parallel to ends_
  std::vector<BoundLane> lanes_;
  std::vector<uint32_t> message_steps_;  ///< of each message that was bound or set; may be kNoStep
  std::unique_ptr<Blocks> blocks_;       ///< an all_to_all_v by a plan
  std::vector<std::byte> scratch_;
  std::vector<SendLink*> reference_links_;
  std::vector<PeerExposedBuffer> exposed_;
  uint64_t call_ = 0;
  uint32_t round_count_ = 1;
  uint64_t round_bytes_ = 0;
  uint64_t slice_bytes_ = 0;
  SliceLimits slices_;                     ///< messages
  uint64_t streaming_bytes_ = UINT64_MAX;  ///< messages
  std::array<ResultTrials, kSizeClasses> result_trials_{};
  ResultTrials* results_ = nullptr;  ///< of this call's size; null: ordinary stores
  Stores result_stores_{};           ///< in this call
  StoresSet stores_of_copies_ = {Stores::kOrdinary, Stores::kStreaming, Stores::kInterleaved};
  uint64_t scratch_stride_ = 0;
  uint64_t reference_bytes_ = UINT64_MAX;
  uint64_t pull_bytes_ = UINT64_MAX;
  uint64_t pulled_message_bytes_ = UINT64_MAX;
  PullCost pull_cost_;
  PullableBuffer pullable_;          ///< of messages
  uint64_t most_demoted_bytes_ = 0;  ///< not 0: peers probably wait for what this rank sends
  bool pulling_ = true;
  uint32_t lanes_left_ = 0;
  uint64_t beyond_bytes_ = 0;  ///< that the last slice has moved beyond its own
  bool short_ = false;
  uint32_t repeated_peer_ = 0;
  uint64_t most_repeated_bytes_ = 0;  ///< 0: cannot be repeated
  uint64_t repeated_bytes_ = 0;       ///< of the last message that `repeat` placed; 0: shared or registered
  bool copies_in_memory_ = false;     ///< one step without links: a communicator of one rank
  bool receives_ = false;
  bool may_refer_ = false;  ///< slices of some step may travel by reference
  uint32_t signature_ = 0;
  std::array<std::byte*, 4> bases_{};
  std::array<bool, 4> shared_{};
  std::array<bool, 4> registered_{};
  Obstacle obstacle_;
};

}  // namespace tutti
