// ResultTrials: finds by timing how calls of one size should write their results (core/stores.h).
//
// Ordinary stores to a buffer that is not cached read it first: past the caches is up to 1.7 times as fast.
// Stores past the caches to a cached buffer throw it out: up to 2.5 times as slow. Only the caller knows
// which it is. So now and then a trial makes a few calls in each way, and times the copies of the last call
// of each: the calls before have put buffers and slots where such calls leave them. Long calls try only the
// first part of each piece. Figures: docs/measurements/carriage.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/stores.h"
#include "core/trials.h"

namespace tutti {

class ResultTrials {
 public:
  struct Calls {
    bool are_long = false;
    bool are_longest = false;  ///< from 4 MiB on
    bool copy = true;          ///< some result is copied, not summed up
    bool sum = false;          ///< some result is summed up
    bool have_string_moves = false;
  };

  ResultTrials() = default;
  /// Long calls write past the caches at first. These and sums go into them for a smaller difference.
  explicit ResultTrials(const Calls& calls)
      : streaming_(calls.are_long),
        cached_(calls.are_long ? (calls.sum ? kLongSumsCached : kLongCached)
                : calls.copy   ? kCached
                               : kSumsCached),
        first_trials_(calls.are_longest ? kFirstOfLongest
                      : calls.are_long  ? kFirstOfLong
                                        : kFirst),
        tries_strings_(calls.have_string_moves && calls.copy),
        tries_parts_(calls.are_long && !calls.sum) {}

  /// Begins a call. How it writes its results.
  Stores begin() {
    finish_call();
    uint64_t place = calls_ - last_trial_begin();  // before the first trial: behind all of them
    if (place == 0) begin_trial();
    ++calls_;
    is_timed_ = false;
    for (uint32_t i = 0; i < part_count_; ++i) {
      if (place < parts_[i].calls) {
        is_timed_ = place + 1 == parts_[i].calls;
        return stores_ = parts_[i].stores;
      }
      place -= parts_[i].calls;
    }
    return stores_ = choice();
  }
  /// How calls write that belong to no trial.
  Stores choice() const {
    if (streaming_.wins()) return Stores::kStreaming;
    return strings_.wins() ? Stores::kString : Stores::kOrdinary;
  }
  /// Whether the slice `offset` bytes behind the beginning of its piece is written as begin() says, and
  /// timed. The others are written as choice() says: while trials wrote whole calls, messages of 128 MiB took
  /// a quarter longer in them. A piece that travels whole is one slice.
  bool tries(uint64_t offset, uint64_t piece_bytes) const {
    return !tries_parts_ || (offset < piece_bytes / kPartsOfPiece && offset < kMostTriedBytes);
  }
  /// Whether the copies of this call are to be timed.
  bool is_timed() const { return is_timed_; }
  /// Counts a copy of a timed call.
  void add(uint64_t bytes, uint64_t took_ns) {
    bytes_ += bytes;
    took_ns_ += took_ns;
  }

 private:
  /// The calls with which the first trials begin; then each 512th call begins one. Links try their stores in
  /// the first few calls (of the longest ones in the first), and slices of such trials do not count. Of 32,
  /// 96 and 192 KiB one of the first trials is lost by that.
  using FirstTrials = std::array<uint64_t, 4>;
  static constexpr FirstTrials kFirst = {10, 22, 60, 128};
  static constexpr FirstTrials kFirstOfLong = {4, 4, 32, 128};
  static constexpr FirstTrials kFirstOfLongest = {0, 0, 32, 128};
  static constexpr uint64_t kPeriod = 512;
  /// A trial makes so many calls in each way.
  static constexpr uint64_t kCalls = 2;
  /// A trial of long copies writes the first of so many parts of each piece.
  static constexpr uint64_t kPartsOfPiece = 4;
  /// Longer than a trial of a link's stores (StoreTrials), which may begin with the piece.
  static constexpr uint64_t kMostTriedBytes = 6u << 20;
  /// So many with ordinary stores if the calls before it wrote past the caches: the second one finds only
  /// half of a buffer of 2 MiB in the caches, and after the third one two cached buffers still seemed
  /// uncached (all_reduce of 256 KiB).
  static constexpr uint64_t kWarmingCalls = 4;
  /// What stores into the caches may take, in percent of the time past them: that their lines go to memory
  /// later is not in their time. Medians of calls up to 512 KiB: 33 to 80 % for cached buffers, 76 to 150 %
  /// for others; string moves 43 to 62 %, 60 to 110 %, between far cores 49 to 65 %, 84 to 105 %. Calls of 2
  /// MiB: 48 to 88 %, 109 to 172 %; string moves 63 to 97 %, 108 to 151 %.
  struct Percent {
    uint64_t ordinary, string;
  };
  static constexpr Percent kCached = {80, 65};
  /// Granite Rapids, hot, 2 MiB: 80 to 96 %, string moves 82 to 97 %, and 5 % less time for ping-pong.
  static constexpr Percent kLongCached = {97, 93};
  static constexpr Percent kLongSumsCached = {90, 85};
  /// Sums, hot: near 50 to 75 %, far 70 to 88 %; rotated: near 84 to 156 %, far 82 to 101 %, where ordinary
  /// stores are the faster ones up to 512 KiB.
  static constexpr Percent kSumsCached = {90, 0};
  /// What string moves may take, in percent of ordinary stores.
  static constexpr uint64_t kStringPercent = 95;
  /// Trials before one do not count if their time past the caches was more than this percentage of that
  /// trial's: they were of first touches of pages, or lost their cores.
  static constexpr uint64_t kFallPercent = 150;

  /// Calls of a trial that write in one way. The last one is timed.
  struct Part {
    Stores stores;
    uint64_t calls;
  };

  /// With which call the last trial began. Before the first one: with which it will.
  uint64_t last_trial_begin() const {
    if (calls_ >= kPeriod) return calls_ / kPeriod * kPeriod;
    uint64_t last = first_trials_[0];
    for (const uint64_t begin : first_trials_) last = begin <= calls_ ? begin : last;
    return last;
  }

  /// A trial begins as the calls before it. Stores past the caches throw the buffers out of them, so they
  /// come last, if they do not come first.
  void begin_trial() {
    costs_ = {};
    part_count_ = 0;
    const Stores now = choice();
    const bool streams = now == Stores::kStreaming;
    if (streams) add_part(Stores::kStreaming, kCalls);
    if (now == Stores::kString) add_part(Stores::kString, kCalls);
    add_part(Stores::kOrdinary, streams ? kWarmingCalls : kCalls);
    if (tries_strings_ && now != Stores::kString) add_part(Stores::kString, kCalls);
    if (!streams) add_part(Stores::kStreaming, kCalls);
  }
  void add_part(Stores stores, uint64_t calls) { parts_[part_count_++] = {stores, calls}; }

  /// Counts a timed call. Behind the last one of a trial, votes.
  void finish_call() {
    if (bytes_ == 0) return;
    cost(stores_) = std::max<uint64_t>(took_ns_ * 1'000'000 / bytes_, 1);
    bytes_ = took_ns_ = 0;
    const auto is_known = [&](const Part& part) { return cost(part.stores) != 0; };
    if (std::all_of(parts_.begin(), parts_.begin() + part_count_, is_known)) finish_trial();
  }
  void finish_trial() {
    const uint64_t streaming = cost(Stores::kStreaming);
    const uint64_t ordinary = cost(Stores::kOrdinary);
    const uint64_t string = cost(Stores::kString);
    if (kFallPercent * streaming < 100 * last_streaming_cost_) {
      streaming_.begin_anew();
      strings_.begin_anew();
    }
    last_streaming_cost_ = streaming;
    const bool strings = tries_strings_ && string * 100 < kStringPercent * ordinary &&
                         string * 100 < cached_.string * streaming;
    if (tries_strings_) strings_.vote(strings);
    streaming_.vote(!strings && ordinary * 100 >= cached_.ordinary * streaming);
    costs_ = {};
  }
  uint64_t& cost(Stores stores) { return costs_[static_cast<size_t>(stores)]; }

  uint64_t calls_ = 0;
  uint64_t bytes_ = 0;                             ///< copied in the timed call
  uint64_t took_ns_ = 0;                           ///< by these copies
  std::array<uint64_t, kStoresCount> costs_ = {};  ///< of this trial, femtoseconds a byte; 0: not known
  uint64_t last_streaming_cost_ = 0;               ///< of the last trial
  std::array<Part, 3> parts_ = {};                 ///< of the last trial
  uint32_t part_count_ = 0;
  TrialVotes streaming_;
  TrialVotes strings_;
  Percent cached_ = kCached;
  FirstTrials first_trials_ = kFirst;
  Stores stores_ = Stores::kOrdinary;  ///< of this call
  bool tries_strings_ = false;
  bool tries_parts_ = false;
  bool is_timed_ = false;
};

}  // namespace tutti
