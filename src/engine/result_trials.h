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

namespace tutti {

class ResultTrials {
 public:
  ResultTrials() = default;
  ResultTrials(bool streams_at_first, bool tries_strings)
      : streaming_{.wins = streams_at_first}, tries_strings_(tries_strings) {}

  /// Whether a way into the caches is better than past them, by what copies took with each; same unit.
  static constexpr bool prefers_caches(uint64_t into_caches, uint64_t past_them) {
    return into_caches * 100 < kCachedPercent * past_them;
  }

  /// Begins a call. How it writes its results.
  Stores begin() {
    finish_call();
    const uint64_t place = calls_ - last_trial();
    if (place == 0) {
      costs_ = {};
      first_streams_ = streaming_.wins;
      tried_ =
          calls_ > 0 && tries_strings_ && tried_ == Stores::kOrdinary ? Stores::kString : Stores::kOrdinary;
      cached_calls_ = streaming_.wins && tried_ == Stores::kOrdinary ? kWarmingCalls : kCalls;
    }
    ++calls_;
    const uint64_t first_calls = first_streams_ ? kCalls : cached_calls_;
    const uint64_t trial_calls = kCalls + cached_calls_;
    is_timed_ = place == first_calls - 1 || place == trial_calls - 1;
    const bool streams = place < trial_calls ? (place < first_calls) == first_streams_ : streaming_.wins;
    if (is_timed_) times_streaming_ = streams;
    return streams ? Stores::kStreaming : place < trial_calls ? tried_ : cached_;
  }
  /// Whether the copies of this call are to be timed.
  bool is_timed() const { return is_timed_; }
  /// Counts a copy of a timed call.
  void add(uint64_t bytes, uint64_t took_ns) {
    bytes_ += bytes;
    took_ns_ += took_ns;
  }

 private:
  static constexpr uint64_t kPeriod = 512;
  /// A trial makes so many calls in each way.
  static constexpr uint64_t kCalls = 2;
  /// A trial makes so many calls with ordinary stores if the calls before it wrote past the caches: the
  /// second one finds only half of a buffer of 2 MiB in the caches, and after the third one two cached
  /// buffers still seemed uncached (all_reduce of 256 KiB).
  static constexpr uint64_t kWarmingCalls = 4;
  /// What stores into the caches may take, in percent of the time past them: that their lines go to memory
  /// later is not in their time. Measured, medians: 33 to 80 % for cached buffers, 76 to 150 % for others.
  static constexpr uint64_t kCachedPercent = 80;
  /// What string moves may take, in percent of ordinary stores and of stores past the caches. Measured of the
  /// latter: 43 to 60 % for cached buffers, 60 to 110 % for others.
  static constexpr uint64_t kStringPercent = 95;
  static constexpr uint64_t kCachedStringPercent = 60;
  /// Trials before one whose time past the caches was longer by this percentage do not count: they were of
  /// first touches of pages, or lost their cores.
  static constexpr uint64_t kFallPercent = 150;

  /// Changes by a net number of trials: one call that lost its core must not decide.
  struct Vote {
    static constexpr int kVotes = 2;
    bool wins = false;
    int votes = 0;         ///< trials for it, less the others
    bool is_anew = false;  ///< the next trial decides alone if it is against it

    void begin_anew() {
      votes = 0;
      is_anew = true;
    }
    void vote(bool is_for) {
      votes = std::clamp(votes + (is_for ? 1 : -1), -kVotes, kVotes);
      if (votes == kVotes) wins = true;
      if (votes == -kVotes || (is_anew && !is_for)) wins = false;
      is_anew = false;
    }
  };

  /// The call with which the last trial began: 0, 8, 32, 128, then every kPeriod calls.
  uint64_t last_trial() const {
    if (calls_ >= kPeriod) return calls_ / kPeriod * kPeriod;
    return calls_ >= 128 ? 128 : calls_ >= 32 ? 32 : calls_ >= 8 ? 8 : 0;
  }

  void finish_call() {
    if (bytes_ == 0) return;
    costs_[times_streaming_ ? 1 : 0] = std::max<uint64_t>(took_ns_ * 1000 / bytes_, 1);
    bytes_ = took_ns_ = 0;
    if (costs_[0] == 0 || costs_[1] == 0) return;
    if (kFallPercent * costs_[1] < 100 * last_streaming_cost_) {
      streaming_.begin_anew();
      strings_.begin_anew();
      ordinary_cost_ = string_cost_ = 0;
    }
    last_streaming_cost_ = costs_[1];
    const bool tried_strings = tried_ == Stores::kString;
    uint64_t& cost = tried_strings ? string_cost_ : ordinary_cost_;
    cost = std::max<uint64_t>(costs_[0] * kUnit / costs_[1], 1);
    costs_ = {};
    const bool strings = string_cost_ != 0 && string_cost_ * 100 < kStringPercent * ordinary_cost_ &&
                         string_cost_ * 100 < kCachedStringPercent * kUnit;
    if (tried_strings && ordinary_cost_ != 0) strings_.vote(strings);
    cached_ = strings_.wins ? Stores::kString : Stores::kOrdinary;
    // Only for what this trial has measured.
    if (tried_strings ? strings : prefers_caches(ordinary_cost_, kUnit)) {
      streaming_.vote(false);
    } else if (!tried_strings && !strings) {
      streaming_.vote(true);
    }
  }

  /// The time past the caches, in which the other times are kept: it varies from trial to trial as they do.
  static constexpr uint64_t kUnit = 1000;

  uint64_t calls_ = 0;
  uint64_t bytes_ = 0;                  ///< copied in the timed call
  uint64_t took_ns_ = 0;                ///< by these copies
  std::array<uint64_t, 2> costs_ = {};  ///< of this trial, picoseconds a byte: into the caches, past them
  uint64_t ordinary_cost_ = 0;          ///< of the last trial, in kUnit; 0: not tried
  uint64_t string_cost_ = 0;            ///< of the last trial, in kUnit; 0: not tried
  uint64_t last_streaming_cost_ = 0;    ///< of the last trial, picoseconds a byte
  Vote streaming_;
  Vote strings_;
  Stores tried_ = Stores::kOrdinary;   ///< into the caches, in the trial that runs
  Stores cached_ = Stores::kOrdinary;  ///< the better way into the caches
  bool tries_strings_ = false;
  bool first_streams_ = false;      ///< the trial that runs began so
  uint64_t cached_calls_ = kCalls;  ///< calls into the caches, in the trial that runs
  bool times_streaming_ = false;
  bool is_timed_ = false;
};

}  // namespace tutti
