// ResultTrials: finds by timing how calls of one size should write their results (core/stores.h).
//
// Ordinary stores to a buffer that is not cached read it first: past the caches is up to 1.7 times as fast.
// Stores past the caches to a cached buffer throw it out: up to 2.5 times as slow. Only the caller knows
// which it is. So now and then some calls write past the caches and some into them, and all copies of the
// last of each are timed: after the others, the buffers and slots are where such calls leave them. Of the two
// ways into the caches, each trial takes the other one. Figures: docs/measurements/carriage.md.
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
  ResultTrials() = default;
  /// Long calls write past the caches at first, and go into them for a smaller difference.
  ResultTrials(bool is_long, bool tries_strings)
      : streaming_(is_long), cached_(is_long ? kLongCached : kCached), tries_strings_(tries_strings) {}

  /// Begins a call. How it writes its results.
  Stores begin() {
    finish_call();
    const uint64_t place = calls_ - last_trial(calls_, kFirstTrial, kGrowth, kPeriod);
    if (place == 0) begin_trial();
    ++calls_;
    const bool is_trial = place < trial_calls_;
    is_timed_ = place == kCalls - 1 || place == trial_calls_ - 1;
    // A trial begins as the calls before it, and then takes the other way.
    streams_ = streaming_.wins() != (is_trial && place >= kCalls);
    if (streams_) return Stores::kStreaming;
    return is_trial ? tried_ : strings_.wins() ? Stores::kString : Stores::kOrdinary;
  }
  /// Whether the copies of this call are to be timed.
  bool is_timed() const { return is_timed_; }
  /// Counts a copy of a timed call.
  void add(uint64_t bytes, uint64_t took_ns) {
    bytes_ += bytes;
    took_ns_ += took_ns;
  }

 private:
  /// Trials begin with the calls 0, 8, 16, 32 and so on, then every 512.
  static constexpr uint64_t kFirstTrial = 8;
  static constexpr uint64_t kGrowth = 2;
  static constexpr uint64_t kPeriod = 512;
  /// A trial makes so many calls in each way.
  static constexpr uint64_t kCalls = 2;
  /// A trial makes so many calls with ordinary stores if the calls before it wrote past the caches: the
  /// second one finds only half of a buffer of 2 MiB in the caches, and after the third one two cached
  /// buffers still seemed uncached (all_reduce of 256 KiB).
  static constexpr uint64_t kWarmingCalls = 4;
  /// What stores into the caches may take, in percent of the time past them: that their lines go to memory
  /// later is not in their time. Medians of calls up to 512 KiB: 33 to 80 % for cached buffers, 76 to 150 %
  /// for others; string moves 43 to 60 %, 60 to 110 %. Calls of 2 MiB: 48 to 88 %, 109 to 172 %; string moves
  /// 63 to 97 %, 108 to 151 %.
  struct Percent {
    uint64_t ordinary, string;
  };
  static constexpr Percent kCached = {80, 60};
  static constexpr Percent kLongCached = {90, 85};
  /// What string moves may take, in percent of ordinary stores.
  static constexpr uint64_t kStringPercent = 95;
  /// Trials before one do not count if their time past the caches was more than this percentage of that
  /// trial's: they were of first touches of pages, or lost their cores.
  static constexpr uint64_t kFallPercent = 150;
  /// The time past the caches, in which the other times are kept: it varies from trial to trial as they do.
  static constexpr uint64_t kUnit = 1000;

  void begin_trial() {
    costs_ = {};
    const bool strings_turn = calls_ > 0 && tries_strings_ && tried_ == Stores::kOrdinary;
    tried_ = strings_turn ? Stores::kString : Stores::kOrdinary;
    const bool warms = streaming_.wins() && tried_ == Stores::kOrdinary;
    trial_calls_ = kCalls + (warms ? kWarmingCalls : kCalls);
  }

  /// Counts a timed call. Behind the second one of a trial, votes.
  void finish_call() {
    if (bytes_ == 0) return;
    costs_[streams_ ? 1 : 0] = std::max<uint64_t>(took_ns_ * 1'000'000 / bytes_, 1);
    bytes_ = took_ns_ = 0;
    if (costs_[0] != 0 && costs_[1] != 0) finish_trial();
  }
  void finish_trial() {
    if (kFallPercent * costs_[1] < 100 * last_streaming_cost_) {
      streaming_.begin_anew();
      strings_.begin_anew();
      ordinary_cost_ = string_cost_ = 0;
    }
    last_streaming_cost_ = costs_[1];
    const uint64_t cost = std::max<uint64_t>(costs_[0] * kUnit / costs_[1], 1);
    costs_ = {};
    (tried_ == Stores::kString ? string_cost_ : ordinary_cost_) = cost;
    const bool strings = string_cost_ != 0 && string_cost_ * 100 < kStringPercent * ordinary_cost_ &&
                         string_cost_ * 100 < cached_.string * kUnit;
    // A trial votes only for what it has measured.
    if (tried_ == Stores::kString) {
      if (ordinary_cost_ != 0) strings_.vote(strings);
      if (strings) streaming_.vote(false);
    } else if (ordinary_cost_ * 100 < cached_.ordinary * kUnit) {
      streaming_.vote(false);
    } else if (!strings) {
      streaming_.vote(true);
    }
  }

  uint64_t calls_ = 0;
  uint64_t bytes_ = 0;                  ///< copied in the timed call
  uint64_t took_ns_ = 0;                ///< by these copies
  std::array<uint64_t, 2> costs_ = {};  ///< of this trial, femtoseconds a byte: into the caches, past them
  uint64_t ordinary_cost_ = 0;          ///< of the last trial, in kUnit; 0: not tried
  uint64_t string_cost_ = 0;            ///< of the last trial, in kUnit; 0: not tried
  uint64_t last_streaming_cost_ = 0;    ///< of the last trial, femtoseconds a byte
  uint64_t trial_calls_ = 0;            ///< of the last trial
  TrialVotes streaming_;
  TrialVotes strings_;
  Percent cached_ = kCached;
  Stores tried_ = Stores::kOrdinary;  ///< into the caches, in the last trial
  bool tries_strings_ = false;
  bool streams_ = false;  ///< this call
  bool is_timed_ = false;
};

}  // namespace tutti
