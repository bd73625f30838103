// ResultTrials: finds by timing how calls of one size should write their results: with ordinary stores, which
// leave them in the caches, or past the caches.
//
// Ordinary stores to a buffer that is not cached read it first: past the caches is up to 30 % faster. Stores
// past the caches to a cached buffer throw it out: up to twice as slow. Only the caller knows which it is. So
// now and then two calls write each way, and the copies of the second are timed: after the first, the buffer
// is where such calls leave it. Figures: docs/measurements/carriage.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

class ResultTrials {
 public:
  ResultTrials() = default;
  explicit ResultTrials(bool streams_at_first) : streams_(streams_at_first) {}

  /// Whether ordinary stores are the better way, by what copies took with each; same unit.
  static constexpr bool prefers_ordinary(uint64_t ordinary, uint64_t streaming) {
    return ordinary * 100 < kOrdinaryPercent * streaming;
  }

  /// Begins a call. Whether it writes its results past the caches.
  bool begin() {
    finish_call();
    const uint64_t place = calls_ - last_trial();
    ++calls_;
    is_timed_ = place < kTrialCalls && place % 2 == 1;
    if (place == 0) first_kind_ = streams_;
    if (place < kTrialCalls) return timed_kind_ = (place < 2) == first_kind_;
    return streams_;
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
  static constexpr uint64_t kTrialCalls = 4;
  /// What ordinary stores may take, in percent of the time past the caches: that their lines go to memory
  /// later is not in their time. Measured: 36 to 80 % for cached buffers, 83 to 125 % for others.
  static constexpr uint64_t kOrdinaryPercent = 80;
  /// The net number of trials that change the way: one call that lost its core must not decide.
  static constexpr int kVotes = 2;

  /// The call with which the last trial began: 0, 8, 32, 128, then every kPeriod calls.
  uint64_t last_trial() const {
    if (calls_ >= kPeriod) return calls_ / kPeriod * kPeriod;
    return calls_ >= 128 ? 128 : calls_ >= 32 ? 32 : calls_ >= 8 ? 8 : 0;
  }

  void finish_call() {
    if (bytes_ == 0) return;
    costs_[timed_kind_ ? 1 : 0] = std::max<uint64_t>(took_ns_ * 1000 / bytes_, 1);
    bytes_ = took_ns_ = 0;
    if (costs_[0] == 0 || costs_[1] == 0) return;
    votes_ = std::clamp(votes_ + (prefers_ordinary(costs_[0], costs_[1]) ? -1 : 1), -kVotes, kVotes);
    if (votes_ == kVotes) streams_ = true;
    if (votes_ == -kVotes) streams_ = false;
    costs_ = {};
  }

  uint64_t calls_ = 0;
  uint64_t bytes_ = 0;                  ///< copied in the timed call
  uint64_t took_ns_ = 0;                ///< by these copies
  std::array<uint64_t, 2> costs_ = {};  ///< of this trial, picoseconds a byte: ordinary, past the caches
  int votes_ = 0;                       ///< trials that were for streaming, less the others
  bool streams_ = false;
  bool first_kind_ = false;  ///< of the trial that runs
  bool timed_kind_ = false;
  bool is_timed_ = false;
};

}  // namespace tutti
