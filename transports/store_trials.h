// StoreTrials: finds by timing how the writer of a link should store payloads into its slots: with ordinary
// stores, which leave them in the writer's caches, or past the caches, into memory.
//
// Between far cores a line that the other core holds takes 250 ns to fetch, for the writer as for the reader,
// and few such fetches overlap: 2 GB/s, where memory gives 13 GB/s. Near cores read each other's caches at 10
// GB/s and more. Nothing tells which it is, and a virtual machine moves its cores. So in two of every kRounds
// rounds of the ring the writer stores the first message with ordinary stores and the second past the caches.
// Both ends time these two in the second of these rounds. The reader shows its figures beside the credit.
// Figures: docs/measurements/carriage.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tutti {

class StoreTrials {
 public:
  /// Shorter payloads get ordinary stores: from here on streaming is faster between far cores.
  static constexpr uint64_t kLeastBytes = 1024;

  enum class Trial : uint8_t { kOrdinary = 0, kStreaming = 1, kNone = 2 };
  /// What the stores of message `number` try, in a ring of `slots`.
  static constexpr Trial trial_of(uint64_t number, uint64_t slots) {
    const uint64_t place = number % (kRounds * slots);
    return place < 2 * slots && place % slots < 2 ? static_cast<Trial>(place % slots) : Trial::kNone;
  }
  /// The trial that both ends time. Its slot has had a trial of the same kind one round before, so its lines
  /// are where a stream of such messages would find them.
  static constexpr Trial timed_trial_of(uint64_t number, uint64_t slots) {
    return number % (kRounds * slots) >= slots ? trial_of(number, slots) : Trial::kNone;
  }

  /// Picoseconds a byte with either kind of stores; 0: not known yet.
  using Costs = std::array<uint32_t, 2>;

  /// Counts what this end's copy took in a trial.
  void add(Trial trial, uint64_t bytes, uint64_t took_ns) {
    uint32_t& mean = costs_[static_cast<size_t>(trial)];
    const uint64_t measured = std::max<uint64_t>(took_ns * 1000 / bytes, 1);
    // An end that lost its core in the middle must not decide.
    const uint64_t counted = mean == 0 ? measured : std::min<uint64_t>(measured, kMostGrowth * mean);
    mean = static_cast<uint32_t>(mean == 0 ? counted : (mean * (kWeight - 1) + counted) / kWeight);
  }
  const Costs& costs() const { return costs_; }

  /// Whether the writer should stream, by the costs of both ends. `now`: whether it does.
  static bool choose(bool now, const Costs& writer, const Costs& reader) {
    if (writer[0] == 0 || writer[1] == 0 || reader[0] == 0 || reader[1] == 0) return now;
    const uint64_t ordinary = uint64_t{writer[0]} + reader[0];
    const uint64_t streaming = uint64_t{writer[1]} + reader[1];
    return ordinary * 100 > (now ? kStayPercent : kChangePercent) * streaming;
  }

 private:
  static constexpr uint64_t kRounds = 4;  ///< of the ring, for each trial
  static constexpr uint64_t kMostGrowth = 4;
  static constexpr uint64_t kWeight = 3;
  /// How much slower ordinary stores must be.
  static constexpr uint64_t kChangePercent = 130;
  static constexpr uint64_t kStayPercent = 110;

  Costs costs_ = {};
};

}  // namespace tutti
