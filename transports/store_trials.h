// StoreTrials: finds by timing how the writer of a link should store payloads into its slots (core/stores.h).
//
// Between far cores a line that the other core holds takes 250 ns to fetch, for the writer as for the reader,
// and few such fetches overlap: 2 GB/s, where memory gives 13 GB/s. Near cores read each other's caches at 10
// GB/s and more. Nothing tells which it is, and a virtual machine moves its cores. So in two of every kRounds
// rounds of the ring the writer stores the first messages in one way each. Both ends time these messages in
// the second of the two rounds. The reader shows its figures beside the credit.
// Figures: docs/measurements/carriage.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/stores.h"

namespace tutti {

class StoreTrials {
 public:
  /// Shorter payloads get ordinary stores: from here on streaming is faster between far cores.
  static constexpr uint64_t kLeastBytes = 1024;

  /// Slices by the whole that they are cut from: a chunk of a plan, or a message. Those of short ones try no
  /// string moves.
  enum Length : uint8_t { kShortPiece = 0, kMiddlePiece = 1, kLongPiece = 2 };
  static constexpr size_t kLengths = 3;
  static constexpr uint64_t kLeastMiddlePiece = 4096;
  static constexpr uint64_t kLeastLongPiece = 131072;
  static constexpr Length length_of(uint64_t piece_bytes) {
    if (piece_bytes < kLeastMiddlePiece) return kShortPiece;
    return piece_bytes < kLeastLongPiece ? kMiddlePiece : kLongPiece;
  }

  /// What message `number` tries, in a ring of `slots`. The kinds take turns in each slot: the first slice of
  /// a piece takes longer than the others. But of long pieces ordinary stores always come first: between far
  /// cores one slice with them takes 1.3 times as long as one past the caches, a stream of them 2.3 times.
  static constexpr std::optional<Stores> trial_of(uint64_t number, uint64_t slots, Length length) {
    const uint64_t place = number % (kRounds * slots);
    const uint64_t kinds = length == kShortPiece ? kStoresCount - 1 : kStoresCount;
    if (place >= 2 * slots || place % slots >= kinds) return std::nullopt;
    const uint64_t turn = length == kLongPiece ? 0 : number / (kRounds * slots);
    return static_cast<Stores>((place % slots + turn) % kinds);
  }
  /// The trial that both ends time. Its slot has had a trial of the same kind one round before, so its lines
  /// are where a stream of such messages would find them.
  static constexpr std::optional<Stores> timed_trial_of(uint64_t number, uint64_t slots, Length length) {
    return number % (kRounds * slots) >= slots ? trial_of(number, slots, length) : std::nullopt;
  }

  /// Picoseconds a byte with each kind of stores; 0: not known.
  using Costs = std::array<uint32_t, kStoresCount>;

  /// Counts what this end's copy took in a trial.
  void add(Stores trial, uint64_t bytes, uint64_t took_ns) {
    uint32_t& mean = costs_[static_cast<size_t>(trial)];
    uint32_t& weight = weights_[static_cast<size_t>(trial)];
    const uint64_t measured = std::max<uint64_t>(took_ns * 1000 / bytes, 1);
    if (mean / kMostGrowth > measured) weight = 0;  // such a mean is of first touches, or of far cores
    weight = std::min(weight + 1,
                      std::clamp(static_cast<uint32_t>(kMeanBytes / bytes), kLeastWeight, kMostWeight));
    // An end that lost its core in the middle must not decide.
    const uint64_t counted = mean == 0 ? measured : std::min<uint64_t>(measured, kMostGrowth * mean);
    mean = static_cast<uint32_t>((uint64_t{mean} * (weight - 1) + counted) / weight);
  }
  const Costs& costs() const { return costs_; }

  /// How the writer stores.
  struct Choice {
    bool streams = false;
    bool moves_strings = false;  ///< where a step can: only copies can

    Stores stores(bool can_move_strings) const {
      if (moves_strings && can_move_strings) return Stores::kString;
      return streams ? Stores::kStreaming : Stores::kOrdinary;
    }
  };
  /// By the costs of both ends. `now`: how the writer stores now.
  static Choice choose(const Choice& now, Length length, const Costs& writer, const Costs& reader) {
    std::array<uint64_t, kStoresCount> sums = {};
    for (size_t kind = 0; kind < kStoresCount; ++kind) {
      if (writer[kind] != 0 && reader[kind] != 0) sums[kind] = uint64_t{writer[kind]} + reader[kind];
    }
    const auto [ordinary, streaming, strings] = sums;
    if (ordinary == 0 || streaming == 0) return now;
    Choice choice;
    choice.streams = ordinary * 100 > (now.streams ? kStreamingStays : kStreamingComes) * streaming;
    const bool are_far = length == kLongPiece && ordinary * 100 > kFarOrdinary * strings &&
                         streaming * 100 < kFarStreaming * strings;
    choice.moves_strings =
        strings != 0 && !are_far &&
        strings * (now.moves_strings ? kStringsStay : kStringsCome) < std::min(ordinary, streaming) * 100;
    return choice;
  }

 private:
  static constexpr uint64_t kRounds = 4;  ///< of the ring, for each trial
  static constexpr uint64_t kMostGrowth = 4;
  /// Trials that a mean is of, by their bytes: one of 16 KiB comes every 8 MiB, and cores move. Of slices of
  /// 8 KiB three were too few: writers changed back and forth, and 16 KiB took up to 1.08 times as long.
  static constexpr uint64_t kMeanBytes = 49152;
  static constexpr uint32_t kLeastWeight = 3;
  static constexpr uint32_t kMostWeight = 8;
  /// How much slower the others must be, in percent, so that a small difference changes nothing. Near cores
  /// gain more by string moves than trials show.
  static constexpr uint64_t kStreamingComes = 130;
  static constexpr uint64_t kStreamingStays = 110;
  static constexpr uint64_t kStringsCome = 103;
  static constexpr uint64_t kStringsStay = 97;
  /// Between far cores string moves of long pieces lose against streaming, although trials show a gain.
  /// Measured, ordinary stores and streaming in percent of string moves: far cores 150 to 180 and 103 to 135,
  /// near ones 105 to 126 and 142 to 157.
  static constexpr uint64_t kFarOrdinary = 140;
  static constexpr uint64_t kFarStreaming = 136;

  Costs costs_ = {};
  std::array<uint32_t, kStoresCount> weights_ = {};  ///< trials that costs_ are the means of
};

}  // namespace tutti
