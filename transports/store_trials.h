// StoreTrials: finds by timing how the writer of a link should store payloads into its slots (core/stores.h).
//
// Between far cores a line that the other core holds takes 250 ns to fetch, for the writer as for the reader,
// and few such fetches overlap: 2 GB/s, where memory gives 13 GB/s. Near cores read each other's caches at 10
// GB/s and more. Nothing tells which it is, and a virtual machine moves its cores. So now and then the writer
// stores a few messages in each way, in two rounds of the ring. Both ends time those of the second round: of
// shorter pieces their copies of single slices, of long ones runs of slices, waiting included. Long pieces
// are streams: the slower end decides, and what it waits for. The reader shows its figures beside the credit.
// Figures: docs/measurements/carriage.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/limits.h"
#include "core/stores.h"

namespace tutti {

class StoreTrials {
 public:
  /// Shorter payloads get ordinary stores: from here on streaming is faster between far cores.
  static constexpr uint64_t kLeastBytes = 1024;

  /// Slices by the whole that they are cut from: a chunk of a plan, or a message.
  enum Length : uint8_t { kShortPiece = 0, kMiddlePiece = 1, kLongPiece = 2, kWideSlices = 3 };
  static constexpr size_t kLengths = 4;
  static constexpr uint64_t kLeastMiddlePiece = 4096;
  static constexpr uint64_t kLeastLongPiece = 131072;
  static constexpr Length length_of(uint64_t piece_bytes, uint64_t slice_bytes) {
    if (piece_bytes < kLeastMiddlePiece) return kShortPiece;
    if (piece_bytes < kLeastLongPiece) return kMiddlePiece;
    return slice_bytes < kWideSlotBytes ? kLongPiece : kWideSlices;
  }
  /// The first so many kinds are tried: string moves where slices are not short, interleaved ones where they
  /// are long.
  static constexpr uint64_t kinds_for(Length length) {
    return length == kShortPiece ? 2 : length == kMiddlePiece ? 3 : kStoresCount;
  }
  /// Whether both ends time whole runs, waiting included, not the copies of single slices.
  static constexpr bool times_runs(Length length) { return length >= kLongPiece; }

  struct Trial {
    Stores stores{};
    /// Both ends time it, in the second round: its slot has had a trial of the same kind one round before, so
    /// its lines are where a stream of such messages would find them. A passed slot may have had another
    /// kind, but in a run only the first few have.
    bool is_timed = false;
    friend constexpr bool operator==(const Trial&, const Trial&) = default;
  };
  /// What message `number` of its length tries, in a ring of `slots`, a power of two. The kinds take turns in
  /// each place: the first slice of a piece takes longer than the others. The first trial is at once. In
  /// runs, each later one begins kBehindResults messages behind a multiple of the period. There trials of
  /// results begin (engine/result_trials.h: at multiples of 512 calls, for many lengths of 2048 messages).
  static constexpr std::optional<Trial> trial_of(uint64_t number, uint64_t slots, Length length) {
    const uint64_t kinds = kinds_for(length);
    const uint64_t run = run_slices(slots, length);
    if (slots == 0 || run == 0) return std::nullopt;
    const uint64_t period = period_of(slots, run), behind = behind_results(number, slots, run);
    if (number < behind) return std::nullopt;
    const uint64_t place = (number - behind) & (period - 1);
    const uint64_t place_in_round = place & (slots - 1);
    if (place >= 2 * slots || place_in_round >= kinds * run) return std::nullopt;
    return Trial{.stores = static_cast<Stores>((place_in_round / run + number / period) % kinds),
                 .is_timed = place >= slots};
  }
  /// The first message from `number` on that may be a trial.
  static constexpr uint64_t next_trial(uint64_t number, uint64_t slots, Length length) {
    const uint64_t run = run_slices(slots, length);
    if (slots == 0 || run == 0) return UINT64_MAX;
    const uint64_t period = period_of(slots, run), behind = behind_results(number, slots, run);
    if (number < behind) return behind;
    const uint64_t place = (number - behind) & (period - 1);
    const uint64_t place_in_round = place & (slots - 1);
    if (place >= 2 * slots) return number - place + period;
    return place_in_round < kinds_for(length) * run ? number : number - place_in_round + slots;
  }
  /// Slices that a trial stores in one way: one string move among other stores takes up to 1.4 times as long.
  /// 0: the ring is too short for trials.
  static constexpr uint64_t run_slices(uint64_t slots, Length length) {
    const uint64_t run = std::min(kRunSlices, slots / 4) / 2 * 2;
    return length == kShortPiece ? 1 : times_runs(length) ? run : std::max<uint64_t>(run, 1);
  }

  /// What a byte costs with each kind of stores, in kUnit; 0: not known.
  using Costs = std::array<uint32_t, kStoresCount>;
  /// A cost of one nanosecond a byte. Means of whole picoseconds were up to 4 of 40 too low: such a mean
  /// does not rise by less than its weight.
  static constexpr uint64_t kUnit = 64'000;

  /// Counts what this end took in a trial: for a copy, or for a run. `is_first`: in the link's first trial.
  /// Its copies may be the first to touch the caller's buffers, so the next trial begins new means, of all
  /// kinds.
  void add(Stores trial, uint64_t bytes, uint64_t took_ns, bool is_first = false) {
    uint32_t& mean = costs_[static_cast<size_t>(trial)];
    uint32_t& weight = weights_[static_cast<size_t>(trial)];
    if (!is_first && first_means_.has(trial)) weight = 0;
    if (is_first)
      first_means_.add(trial);
    else
      first_means_.remove(trial);
    const uint64_t measured = std::clamp<uint64_t>(took_ns * kUnit / bytes, 1, UINT32_MAX / kMostGrowth);
    if (mean / kMostGrowth > measured) weight = 0;  // such a mean is of first touches, or of far cores
    weight = std::min(weight + 1,
                      std::clamp(static_cast<uint32_t>(kMeanBytes / bytes), kLeastWeight, kMostWeight));
    // An end that lost its core in the middle must not decide.
    const uint64_t counted = mean == 0 ? measured : std::min<uint64_t>(measured, kMostGrowth * mean);
    mean = static_cast<uint32_t>((uint64_t{mean} * (weight - 1) + counted) / weight);
  }
  const Costs& costs() const { return costs_; }

  /// A cost as the reader shows it in its credit: few bits, and 0 only if it is not known.
  static constexpr uint16_t shown(uint32_t cost) {
    return static_cast<uint16_t>(
        std::min<uint32_t>(cost / kShownUnit + (cost % kShownUnit != 0 ? 1 : 0), UINT16_MAX));
  }
  static constexpr uint32_t seen(uint16_t shown) { return shown * kShownUnit; }

  /// A slice of a trial. `number`: of its message among those of its length; `slots`: that such messages take
  /// in turns.
  struct Slice {
    uint64_t number = 0;
    uint64_t slots = 0;
    Length length = kShortPiece;
    uint64_t bytes = 0;
  };
  /// Counts a slice that this end has just copied: alone, or with the run that it belongs to.
  void count(Stores trial, const Slice& slice, uint64_t began_ns, uint64_t end_ns) {
    if (!times_runs(slice.length))
      return add(trial, slice.bytes, end_ns - began_ns, slice.number < 2 * slice.slots);
    if (run_.began_ns != 0 && run_.next == slice.number && run_.trial == trial) {
      run_.bytes += slice.bytes;
      run_.end_ns = end_ns;
    } else {
      end_run();
      run_ = {.trial = trial, .began_ns = end_ns};
    }
    run_.next = slice.number + 1;
    if (run_.next % run_slices(slice.slots, slice.length) == 0) end_run();
  }
  /// Call this before the first slice of a piece: a run does not go on from the piece before.
  void end_run() {
    if (run_.bytes != 0) add(run_.trial, run_.bytes, run_.end_ns - run_.began_ns);
    run_ = {};
  }

  /// How the writer stores, by the costs of both ends. `now`: how it stores now. Kinds whose costs are not
  /// known are not chosen.
  static Stores choose(Stores now, Length length, const Costs& writer, const Costs& reader) {
    std::array<uint64_t, kStoresCount> costs = {};
    for (size_t kind = 0; kind < kStoresCount; ++kind) {
      if (writer[kind] != 0 && reader[kind] != 0) costs[kind] = uint64_t{writer[kind]} + reader[kind];
    }
    const uint64_t ordinary = costs[0], streaming = costs[1];
    if (ordinary == 0 || streaming == 0) return now;
    const Limits& limits = times_runs(length) ? kLimitsOfRuns : kLimits;
    const uint64_t limit = now == Stores::kStreaming ? limits.streaming_stays : limits.streaming_comes;
    Stores choice = ordinary * 100 > limit * streaming ? Stores::kStreaming : Stores::kOrdinary;
    uint64_t least = UINT64_MAX;
    for (const Stores kind : {Stores::kString, Stores::kInterleaved}) {
      const uint64_t cost = costs[static_cast<size_t>(kind)];
      const Limits::OfCopies& of = now == kind ? limits.stays : limits.comes;
      if (cost == 0 || cost * of.streaming >= streaming * 100 || cost * of.ordinary >= ordinary * 100)
        continue;
      if (cost * of.streaming >= least) continue;
      least = cost * of.streaming;
      choice = kind;
    }
    return choice;
  }

 private:
  static constexpr uint32_t kShownUnit = 32;  ///< up to 32 ns a byte
  static constexpr uint64_t kRounds = 4;      ///< of the ring, for each trial
  /// Messages from one trial in runs to the next; 64 of them may take three times as long.
  static constexpr uint64_t kPeriodOfRuns = 2048;
  static constexpr uint64_t kBehindResults = 576;
  static constexpr uint64_t kRunSlices = 8;
  static constexpr uint64_t period_of(uint64_t slots, uint64_t run) {
    return run > 1 ? std::max(kPeriodOfRuns, kRounds * slots) : kRounds * slots;
  }
  static constexpr uint64_t behind_results(uint64_t number, uint64_t slots, uint64_t run) {
    return run > 1 && number >= 2 * slots ? kBehindResults : 0;
  }
  static constexpr uint64_t kMostGrowth = 4;
  /// Trials that a mean is of, by their bytes: eight of 16 KiB come every 32 MiB, and cores move. Three were
  /// too few: of slices of 8 KiB, writers changed back and forth, of 16 KiB one bad copy decided.
  static constexpr uint64_t kMeanBytes = 81920;
  static constexpr uint32_t kLeastWeight = 3;
  static constexpr uint32_t kMostWeight = 8;
  /// How much slower the others must be, in percent, so that a small difference changes nothing.
  struct Limits {
    uint64_t streaming_comes, streaming_stays;
    /// How much slower streaming and ordinary stores must be than string moves or interleaved stores.
    /// String moves gain more over ordinary stores than trials of single slices show.
    struct OfCopies {
      uint64_t streaming, ordinary;
    } comes, stays;
  };
  static constexpr Limits kLimits = {115, 105, {103, 100}, {97, 95}};
  static constexpr Limits kLimitsOfRuns = {105, 97, {110, 110}, {103, 103}};

  /// Slices of a trial that have followed each other in one piece.
  struct Run {
    Stores trial{};
    uint64_t next = 0;      ///< message
    uint64_t began_ns = 0;  ///< when the first slice had been copied; 0: none has
    uint64_t end_ns = 0;
    uint64_t bytes = 0;  ///< of the slices behind the first one
  };

  Costs costs_ = {};
  std::array<uint32_t, kStoresCount> weights_ = {};  ///< trials that costs_ are the means of
  StoresSet first_means_ = {};                       ///< kinds whose means are of the first trial
  Run run_;
};

/// The messages of a link by Length, each counted from its first one, so that its trials begin at once. Both
/// ends count alike.
class MessagesByLength {
 public:
  MessagesByLength() { first_.fill(UINT64_MAX); }
  /// Which one of its length message `number` is.
  uint64_t place(uint64_t number, StoreTrials::Length length) {
    uint64_t& first = first_[length];
    first = std::min(first, number);
    return number - first;
  }
  /// Whether message `number`, the next one, is no trial in a ring of `slots`. Counts it as place() does.
  /// Pass the same `slots` each time.
  bool is_quiet(uint64_t number, StoreTrials::Length length, uint64_t slots) {
    return number < quiet_until_[length] || find_quiet(number, length, slots);
  }

 private:
  [[gnu::noinline]] bool find_quiet(uint64_t number, StoreTrials::Length length, uint64_t slots) {
    const uint64_t in_length = place(number, length);
    const uint64_t quiet = StoreTrials::next_trial(in_length, slots, length) - in_length;
    quiet_until_[length] = number + std::min(quiet, UINT64_MAX - number);
    return quiet != 0;
  }

  std::array<uint64_t, StoreTrials::kLengths> quiet_until_{};
  std::array<uint64_t, StoreTrials::kLengths> first_;
};

}  // namespace tutti
