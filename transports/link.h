// Link: one ordered path of slots from a writing rank to one or more reading ranks, in a ring that both sides
// can reach (ring.h). The writer reads the credit only when it has no slots left.
//
// For shared memory the ring is the transport. A network transport moves messages between a local ring and
// its sockets.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <optional>

#include "core/shared_word.h"
#include "transports/carriage_trials.h"
#include "transports/passed_slots.h"
#include "transports/ring.h"
#include "transports/store_trials.h"

namespace tutti {

static_assert(PassedSlots::kLeastBytesWhereDemoted >= StoreTrials::kLeastBytes,
              "payloads of PlainPayload::kSlot are in no passed slot");
static_assert(sizeof(Credit::store_costs) == StoreTrials::kLengths * kStoresCount * sizeof(uint16_t));

/// Number of slots that messages of `bytes` go round: the ring's, or the wide ones.
uint64_t slots_for(uint64_t bytes, const auto& link) {
  return bytes <= link.slot_bytes ? link.slot_mask + uint64_t{1} : link.wide_slots;
}

/// Where a payload of `bytes` of message `number` lies, from the first slot on.
uint64_t slot_offset(uint64_t number, uint64_t bytes, const auto& link) {
  if (bytes <= link.slot_bytes) return (number & link.slot_mask) * link.slot_bytes;
  return (link.slot_mask + uint64_t{1}) * link.slot_bytes +
         (number & (link.wide_slots - 1)) * uint64_t{kWideSlotBytes};
}

/// Where a payload lies that fits a slot and is neither a reference nor pulled.
enum class PlainPayload : uint8_t {
  kInline,
  kSlot,
  kPassable,  ///< in a passed slot, if it is long enough and the writer has one left
};
constexpr Carriage carriage_of(PlainPayload payload) {
  return payload == PlainPayload::kInline ? Carriage::kInline : Carriage::kSlot;
}

/// How a writer stores payloads of one length.
struct WriterStores {
  StoreTrials trials;
  Stores choice = Stores::kOrdinary;  ///< as of the last look at the credit
};

/// The writing end. One thread at a time may use it.
struct SendLink {
  Cell* cells = nullptr;
  Credit* credits = nullptr;  ///< one per reader
  std::byte* slots = nullptr;
  uint32_t slot_mask = 0;
  uint32_t slot_bytes = 0;
  uint32_t wide_slots = 0;
  uint32_t reader_count = 0;
  uint32_t self_reader = UINT32_MAX;  ///< a published ring has an unused credit at the writer's own index
  uint32_t peer = 0;                  ///< rank; for a published ring the writer itself
  bool same_process = false;
  bool reads_registered = false;  ///< the transport reads buffers that the user has registered
  bool readers_pull = false;      ///< all readers have shown that they can pull
  bool may_stream = false;        ///< the reader is another core: payloads may be written past the caches
  /// By Length. Apart, because a sum takes longer than a copy with any stores.
  std::array<WriterStores, StoreTrials::kLengths> of_copies{};
  std::array<WriterStores, StoreTrials::kLengths> of_sums{};
  MessagesByLength messages;
  uint64_t next = 0;
  uint64_t limit = 0;           ///< messages below this number have a slot
  uint64_t last_reference = 0;  ///< messages below this number carry references that the readers must return
  uint64_t history = 0;         ///< of the sends on this link (core/hash.h)
  MessageCounts counts;
  PassedSlots* passed = nullptr;  ///< null: payloads lie in the ring's own slots; see pass_slots
  uint64_t least_passed_bytes = UINT64_MAX;
  uint32_t preferences = 0;  ///< credits[0].pull_preferences, up to a round of the ring ago

  static SendLink at(std::byte* ring, const RingShape& shape) {
    SendLink link;
    link.cells = reinterpret_cast<Cell*>(ring);
    link.credits = reinterpret_cast<Credit*>(ring + shape.cells_bytes());
    link.slots = ring + shape.header_bytes();
    link.slot_mask = shape.slots - 1;
    link.slot_bytes = shape.slot_bytes;
    link.wide_slots = shape.wide_slots;
    link.reader_count = shape.readers;
    link.limit = shape.slots;
    return link;
  }

  /// Null: none.
  void pass_slots(PassedSlots* shared) {
    passed = shared;
    least_passed_bytes = shared != nullptr ? shared->least_bytes() : UINT64_MAX;
  }

  Cell& cell() const { return cells[next & slot_mask]; }

  /// Messages that all readers have released.
  uint64_t released() const {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < reader_count; ++i) {
      if (i == self_reader) continue;
      const uint64_t value = load_shared(credits[i].released, std::memory_order_acquire);
      least = value < least ? value : least;
    }
    return least;
  }
  /// The reader that has released the fewest messages: a writer without slots waits for it.
  uint32_t slowest_reader() const {
    if (reader_count == 1) return peer;
    uint32_t slowest = self_reader == 0 ? 1 : 0;
    for (uint32_t i = slowest + 1; i < reader_count; ++i) {
      if (i != self_reader && load_shared(credits[i].released, std::memory_order_acquire) <
                                  load_shared(credits[slowest].released, std::memory_order_acquire)) {
        slowest = i;
      }
    }
    return slowest;
  }
  /// Whether the next message, of `bytes`, has a slot.
  bool can_write(uint64_t bytes = 0) {
    assert(bytes <= slot_bytes || wide_slots != 0);
    const uint64_t ahead = slot_mask + 1 - slots_for(bytes, *this);
    if (next + ahead < limit) [[likely]]
      return true;
    return ask_for_room(ahead);
  }
  /// Whether the next message has a slot, not a wide one, as far as the writer knows without asking its
  /// readers.
  bool knows_room() const { return next < limit; }
  /// Counts the next message, a trial that has just been written. `possible`: as for next_stores.
  void judge(Stores trial, StoreTrials::Length length, uint64_t bytes, StoresSet possible, uint64_t began_ns,
             uint64_t end_ns) {
    WriterStores& of = possible == kStoresOfSums ? of_sums[length] : of_copies[length];
    of.trials.count(trial, {messages.place(next, length), slots_for(bytes, *this), length, bytes}, began_ns,
                    end_ns);
  }
  /// A run of slices does not go on from the piece before.
  void end_run(StoreTrials::Length length) {
    of_copies[length].trials.end_run();
    of_sums[length].trials.end_run();
  }
  struct NextStores {
    Stores stores = Stores::kOrdinary;
    bool is_trial = false;
    bool is_timed = false;  ///< the message belongs to a trial and is to be timed
  };
  /// How to write the next payload, of StoreTrials::kLeastBytes or more.
  NextStores next_stores(StoreTrials::Length length, uint64_t bytes, StoresSet possible) {
    if (!may_stream) return {};
    const uint64_t number = messages.place(next, length);
    const uint64_t count = slots_for(bytes, *this);
    const auto trial = StoreTrials::trial_of(number, count, length);
    if (!trial || !possible.has(trial->stores))
      return {.stores = (possible == kStoresOfSums ? of_sums[length] : of_copies[length]).choice};
    return {.stores = trial->stores, .is_trial = true, .is_timed = trial->is_timed};
  }
  /// Whether the next payload, of `bytes`, goes into a passed slot. In the first two rounds of the ring none
  /// does: these touch its pages.
  bool passes(uint64_t bytes) const {
    return bytes >= least_passed_bytes && bytes <= slot_bytes && next > 2 * uint64_t{slot_mask} + 1 &&
           !passed->is_empty();
  }
  /// Address for a payload of `bytes`. Call only when can_write().
  std::byte* span(uint64_t bytes) const {
    if (bytes <= kInlineBytes) return cell().payload;
    if (bytes >= least_passed_bytes) [[unlikely]]
      return long_span(bytes);
    return slots + slot_offset(next, bytes, *this);
  }

  void commit(uint32_t signature, uint64_t bytes) {
    if (bytes >= least_passed_bytes) [[unlikely]]
      name_passed_slot(bytes);
    publish(flag::make(next, signature, bytes), bytes <= kInlineBytes ? Carriage::kInline : Carriage::kSlot);
  }
  /// `span` and `commit` of a plain payload.
  template <PlainPayload kPayload>
  std::byte* place(uint64_t bytes) const {
    if constexpr (kPayload == PlainPayload::kInline) return cell().payload;
    if constexpr (kPayload == PlainPayload::kPassable) {
      if (passes(bytes)) return passed->at(passed->front());
    }
    return slots + slot_offset(next, bytes, *this);
  }
  template <PlainPayload kPayload>
  void commit_as(uint32_t signature, uint64_t bytes) {
    if constexpr (kPayload == PlainPayload::kPassable) {
      if (bytes >= least_passed_bytes) put_name(bytes);
    }
    publish(flag::make(next, signature, bytes), carriage_of(kPayload));
  }
  /// Whether the next payload, of `bytes`, at most a slot, is no trial of stores.
  bool is_quiet(StoreTrials::Length length, [[maybe_unused]] uint64_t bytes) {
    assert(bytes <= slot_bytes);
    return !may_stream || messages.is_quiet(next, length, slot_mask + uint64_t{1});
  }
  /// How to write a payload that is no trial.
  Stores quiet_stores(StoreTrials::Length length, StoresSet possible) const {
    return (possible == kStoresOfSums ? of_sums[length] : of_copies[length]).choice;
  }
  void commit_reference(uint32_t signature, uint64_t bytes, const void* address) {
    std::memcpy(cell().payload, &address, sizeof(address));
    publish(flag::make(next, signature, bytes), Carriage::kReference);
    last_reference = next;
  }
  /// One message for all slices of `run`, of which the first has `bytes`.
  void commit_pull(uint32_t signature, uint64_t bytes, const PulledRun& run) {
    std::memcpy(cell().payload, &run, sizeof(run));
    publish(flag::make(next, signature, bytes), Carriage::kPull);
    last_reference = next;
  }
  /// For a payload that is already in every reader's buffer.
  void commit_direct_write(uint32_t signature, uint64_t bytes) {
    const uint64_t nowhere = kWrittenDirectly;
    std::memcpy(cell().payload, &nowhere, sizeof(nowhere));
    publish(flag::make(next, signature, bytes), Carriage::kReference);
  }
  bool can_pull() {
    if (readers_pull) return true;
    for (uint32_t i = 0; i < reader_count; ++i) {
      if (i != self_reader && load_shared(credits[i].can_pull, std::memory_order_relaxed) == 0) return false;
    }
    readers_pull = true;
    return true;
  }
  /// Counts the next message that is long enough to be pulled, however it travels. Whether to pull it, where
  /// that is possible.
  bool choose_pulling(uint64_t message_bytes) {
    const auto trial = counts.begin(message_bytes, (slot_mask + 1ull) * slot_bytes);
    // Pulled messages need few slots, so the writer seldom asks for room.
    if (trial) preferences = load_shared(credits[0].pull_preferences, std::memory_order_relaxed);
    return MessageVotes::preference(preferences, message_bytes).pulls(trial);
  }
  bool references_returned() { return last_reference == 0 || released() >= last_reference; }

 private:
  [[gnu::noinline]] bool ask_for_room(uint64_t ahead) {
    limit = released() + slot_mask + 1;
    if (next + ahead >= limit) return false;
    preferences = load_shared(credits[0].pull_preferences, std::memory_order_relaxed);
    for (size_t length = 0; may_stream && length < of_copies.size(); ++length) {
      const StoreTrials::Costs reader = highest_costs(length);
      for (WriterStores* of : {&of_copies[length], &of_sums[length]})
        of->choice = StoreTrials::choose(of->choice, static_cast<StoreTrials::Length>(length),
                                         of->trials.costs(), reader);
    }
    return true;
  }
  [[gnu::noinline]] std::byte* long_span(uint64_t bytes) const {
    return passes(bytes) ? passed->at(passed->front()) : slots + slot_offset(next, bytes, *this);
  }
  /// Tells the reader whether the payload is in the passed slot that `span` has given, and gives that away.
  [[gnu::noinline]] void name_passed_slot(uint64_t bytes) { put_name(bytes); }
  void put_name(uint64_t bytes) {
    uint32_t name = 0;
    if (passes(bytes)) {
      name = passed->front() + 1;
      passed->take_front();
    }
    std::memcpy(cell().payload, &name, sizeof(name));
  }
  StoreTrials::Costs highest_costs(size_t length) const {
    StoreTrials::Costs highest = {};
    for (uint32_t i = 0; i < reader_count; ++i) {
      for (size_t kind = 0; kind < highest.size(); ++kind)
        highest[kind] = std::max(
            highest[kind],
            StoreTrials::seen(load_shared(credits[i].store_costs[length][kind], std::memory_order_relaxed)));
    }
    return highest;
  }
  void publish(uint64_t word, Carriage carriage) {
    store_shared(cell().word, word | (static_cast<uint64_t>(carriage) << flag::kCarriageShift),
                 std::memory_order_release);
    ++next;
  }
};

/// Where a reader wants the payloads of its next messages, in order. A transport may deliver there and
/// publish references to that memory, until the reader has read the last of these messages or has withdrawn
/// (Connection::withdraw).
struct PostedReceive {
  uint64_t first = 0;  ///< number of the message whose payload begins at `address`
  std::byte* address = nullptr;
  uint64_t bytes = 0;        ///< of all these messages; 0: nothing is posted
  uint64_t slice_bytes = 1;  ///< of every message but the last
  bool on_device = false;    ///< only a network card may write there

  /// Address for a payload. Null if no message of this size is posted under this number.
  std::byte* place(uint64_t number, uint64_t message_bytes) const {
    const uint64_t index = number - first;  // before `first`, this wraps to a huge index
    if (index >= (bytes + slice_bytes - 1) / slice_bytes) return nullptr;
    const uint64_t start = index * slice_bytes;
    const uint64_t expected = bytes - start < slice_bytes ? bytes - start : slice_bytes;
    return message_bytes == expected ? address + start : nullptr;
  }
};

/// The reading end. One thread at a time may use it.
struct RecvLink {
  const Cell* cells = nullptr;
  Credit* credit = nullptr;
  const std::byte* slots = nullptr;
  uint32_t slot_mask = 0;
  uint32_t slot_bytes = 0;
  uint32_t wide_slots = 0;
  uint32_t peer = 0;  ///< rank
  /// Added to an address in a reference, to reach the same memory here (modulo 2^64).
  uint64_t reference_offset = 0;
  uint32_t credit_mask = 0;     ///< the reader releases every credit_mask + 1 messages
  int pull_pid = 0;             ///< the writer's process, if this rank can pull from it
  std::byte* bounce = nullptr;  ///< bounce_bytes, for data that is pulled and then reduced
  uint64_t bounce_bytes = 0;
  const std::byte* pulled = nullptr;  ///< pulled bytes that the reader has not used yet
  uint64_t pulled_left = 0;           ///< of these
  uint64_t pulled_end = 0;            ///< messages below this number have been pulled
  uint64_t run_left = 0;           ///< bytes of the kPull message `next` that are not used yet; 0: not begun
  PostedReceive* offer = nullptr;  ///< null: the transport fills no posted receives
  uint64_t next = 0;
  uint64_t history = 0;                                     ///< of the receives on this link
  bool judges = false;                                      ///< the writer is another core, and may stream
  std::array<StoreTrials, StoreTrials::kLengths> trials{};  ///< by Length
  MessagesByLength messages;
  MessageVotes* votes = nullptr;  ///< null: messages are not pulled
  PassedSlots* passed = nullptr;  ///< not null: the writer's link has one, too; see pass_slots
  uint64_t least_passed_bytes = UINT64_MAX;

  static RecvLink at(std::byte* ring, const RingShape& shape, uint32_t reader) {
    RecvLink link;
    link.cells = reinterpret_cast<const Cell*>(ring);
    link.credit = reinterpret_cast<Credit*>(ring + shape.cells_bytes()) + reader;
    link.slots = ring + shape.header_bytes();
    link.slot_mask = shape.slots - 1;
    link.slot_bytes = shape.slot_bytes;
    link.wide_slots = shape.wide_slots;
    const uint32_t fewest = shape.wide_slots != 0 ? shape.wide_slots : shape.slots;
    link.credit_mask = std::max(1u, fewest / kCreditsPerRing) - 1;
    return link;
  }

  /// Null: none.
  void pass_slots(PassedSlots* shared) {
    passed = shared;
    least_passed_bytes = shared != nullptr ? shared->least_bytes() : UINT64_MAX;
  }

  const Cell& cell(uint64_t ahead = 0) const { return cells[(next + ahead) & slot_mask]; }
  uint64_t word(uint64_t ahead = 0) const { return load_shared(cell(ahead).word, std::memory_order_acquire); }

  /// Whether the next message has come, of whatever call.
  bool has_arrived() const { return (word() & flag::kNumberMask) == ((next + 1) & flag::kNumberMask); }

  /// Whether the next message, of `bytes`, has come as SendLink::commit_as sends it.
  template <PlainPayload kPayload>
  bool has(uint32_t signature, uint64_t bytes) const {
    constexpr uint64_t kBits = static_cast<uint64_t>(carriage_of(kPayload)) << flag::kCarriageShift;
    return word() == (flag::make(next, signature, bytes) | kBits);
  }
  /// `span` of such a message.
  template <PlainPayload kPayload>
  const std::byte* place(uint64_t bytes) const {
    if constexpr (kPayload == PlainPayload::kInline) return cell().payload;
    if constexpr (kPayload == PlainPayload::kPassable) {
      if (const uint32_t name = plain_name(bytes); name != 0) return passed->at(name - 1);
    }
    return slots + slot_offset(next, bytes, *this);
  }
  /// Whether the next message, of `bytes`, at most a slot, is no trial of stores.
  bool is_quiet(StoreTrials::Length length, [[maybe_unused]] uint64_t bytes) {
    assert(bytes <= slot_bytes);
    return !judges || messages.is_quiet(next, length, slot_mask + uint64_t{1});
  }

  /// Which trial the next message is, if it has arrived in a slot. A sum can neither move strings nor
  /// interleave: there the trial counts what the sum took instead, at this end only.
  std::optional<StoreTrials::Trial> trial(uint64_t arrived_word, StoreTrials::Length length) {
    if (!judges) return std::nullopt;
    const uint64_t number = messages.place(next, length);
    if (flag::carriage(arrived_word) != Carriage::kSlot) return std::nullopt;
    return StoreTrials::trial_of(number, slots_for(flag::bytes(arrived_word), *this), length);
  }
  /// Counts the next message, a trial that has just been copied, and shows the writer the costs.
  void judge(Stores trial, StoreTrials::Length length, uint64_t bytes, uint64_t began_ns, uint64_t end_ns) {
    trials[length].count(trial, {messages.place(next, length), slots_for(bytes, *this), length, bytes},
                         began_ns, end_ns);
    for (size_t kind = 0; kind < kStoresCount; ++kind)
      store_shared(credit->store_costs[length][kind], StoreTrials::shown(trials[length].costs()[kind]),
                   std::memory_order_relaxed);
  }

  /// Whether the next message belongs to a trial of pulling. As for the writer, every message counts that is
  /// long enough to be pulled.
  bool begin_trial(uint64_t message_bytes) {
    return votes != nullptr &&
           MessageVotes::preference(votes->preferences, message_bytes)
               .tries(votes->counts.begin(message_bytes, (slot_mask + 1ull) * slot_bytes));
  }
  /// Whether the message released last has been pulled.
  bool has_pulled() const { return pulled_end >= next; }
  /// Counts what a message of a trial took, from when its first slice was here. `cost`: of pulling.
  void judge_message(bool was_pulled, uint64_t bytes, uint64_t took_ns, const PullCost& cost) {
    const uint32_t before = votes->preferences;
    votes->add(was_pulled, bytes, took_ns, cost);
    if (votes->preferences != before)
      store_shared(credit->pull_preferences, votes->preferences, std::memory_order_relaxed);
  }

  /// The address in a kReference message that has arrived.
  uint64_t address() const {
    uint64_t value = 0;
    std::memcpy(&value, cell().payload, sizeof(value));
    return value;
  }
  /// The run in a kPull message that has arrived.
  PulledRun run(uint64_t ahead = 0) const {
    PulledRun run = {};
    std::memcpy(&run, cell(ahead).payload, sizeof(run));
    return run;
  }
  /// Whether the next slice belongs to the run that the reader is in. `word`: of the cell. `expected`: of a
  /// message with the slice.
  bool is_in_run(uint64_t word, uint64_t expected) const {
    return run_left != 0 && run_left >= flag::bytes(expected) && flag::is_same_message(word, expected);
  }
  /// Uses `bytes` of the run. Whether it has come to its end.
  bool use_pulled(uint64_t bytes) {
    pulled += bytes;
    pulled_left -= bytes;
    run_left -= bytes;
    return run_left == 0;
  }
  /// The payload of a message that has arrived and need not be pulled.
  const std::byte* span(uint64_t word) const {
    switch (flag::carriage(word)) {
      case Carriage::kInline: return cell().payload;
      case Carriage::kSlot:
        if (may_have_passed(word)) [[unlikely]]
          return long_span(word);
        return slots + slot_offset(next, flag::bytes(word), *this);
      case Carriage::kReference:
      case Carriage::kPull: break;
    }
    // Translated to this process's mapping of the same memory.
    return reinterpret_cast<const std::byte*>(address() + reference_offset);
  }
  /// Releases the slot of an arrived message; a passed one is now this rank's. The credit is written once per
  /// quarter of the slots, or of the wide slots, so its cache line seldom moves; a plan needs at most half of
  /// them. References are reported with the last message of those pulled together.
  void release(uint64_t word) {
    if (may_have_passed(word)) [[unlikely]]
      keep_passed_slot(word);
    ++next;
    const bool refers = flag::carriage(word) >= Carriage::kReference;
    if (refers ? next >= pulled_end : (next & credit_mask) == 0)
      store_shared(credit->released, next, std::memory_order_release);
  }
  /// `release` of a message that `has` has found.
  template <PlainPayload kPayload>
  void release_plain(uint64_t bytes) {
    if constexpr (kPayload == PlainPayload::kPassable) {
      if (const uint32_t name = plain_name(bytes); name != 0) passed->put(name - 1);
    }
    ++next;
    if ((next & credit_mask) == 0) store_shared(credit->released, next, std::memory_order_release);
  }

 private:
  bool may_have_passed(uint64_t word) const { return flag::bytes(word) >= least_passed_bytes; }
  /// 1 + the passed slot that the message's payload is in, or 0. Requires may_have_passed.
  uint32_t passed_name(uint64_t word) const {
    return flag::carriage(word) == Carriage::kSlot && flag::bytes(word) <= slot_bytes ? name_in_cell() : 0;
  }
  /// The same of a plain payload of `bytes`.
  uint32_t plain_name(uint64_t bytes) const { return bytes >= least_passed_bytes ? name_in_cell() : 0; }
  uint32_t name_in_cell() const {
    uint32_t name = 0;
    std::memcpy(&name, cell().payload, sizeof(name));
    return name;
  }
  [[gnu::noinline]] const std::byte* long_span(uint64_t word) const {
    const uint32_t name = passed_name(word);
    return name != 0 ? passed->at(name - 1) : slots + slot_offset(next, flag::bytes(word), *this);
  }
  [[gnu::noinline]] void keep_passed_slot(uint64_t word) {
    if (const uint32_t name = passed_name(word); name != 0) passed->put(name - 1);
  }
};

}  // namespace tutti
