// CarriageTrials: finds by timing whether long messages between processes should go through slots or be
// pulled by their readers.
//
// The faster way depends on caches, cores and buffers, and a virtual machine moves its cores. So now and then
// a trial sends some calls through slots, which brings the slots back into the caches, and then pulls some.
// Of the last three or four times of each way the second shortest counts, if the shortest is within 25 %: a
// call that lost its core, or waited for a late rank, must not decide. A trial against the present way is
// repeated at once. Trials begin at the same calls on all ranks: otherwise one rank would try slots while
// another one pulls. Only a repetition, or the rest of a trial that was given up, may be one rank's alone.
// Where slots take much less than the kernel's copy, no trial pulls.
// Figures: docs/measurements/carriage.md.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/trials.h"

namespace tutti {

/// Pulled calls at the end of a trial.
inline constexpr uint32_t kPulledCalls = 6;
/// The same of calls from 8 MiB on, which are few. A pulled message of 128 MiB took 27 ms, through slots 8.
/// Three were too few: of 16 MiB, hot, they took 2.7, 3.1 and 2.0 ms, the next ones 1.7.
inline constexpr uint32_t kLongPulledCalls = 5;

/// Trials of results (engine/result_trials.h) begin with the calls 10, 22, 60, 128 (of long calls 4 or 0, 32,
/// 128) and multiples of 512, and take up to so many calls.
inline constexpr uint64_t kResultTrialCalls = 8;

/// The number, of calls or messages, with which the last trial began: `first`, `growth` times that and so on,
/// then every `period`. Before them: 0.
constexpr uint64_t last_trial(uint64_t number, uint64_t first, uint64_t growth, uint64_t period) {
  if (number < first) return 0;
  if (number >= period) return number / period * period;
  while (growth * first <= number) first *= growth;
  return first;
}

/// How many calls a trial makes in each way, and then perhaps once more.
struct PullTrial {
  static constexpr uint64_t kLeastThroughSlots = 4;
  static constexpr uint64_t kMostThroughSlots = 32;
  /// A long call fills most rings. Three: the first one behind pulled calls takes longer, and two must agree.
  static constexpr uint64_t kLongThroughSlots = 3;
  static constexpr uint64_t kPeriodPerCall = 512;
  static constexpr uint64_t kGrowth = 4;
  static constexpr uint64_t kEarly = 8;

  uint64_t through_slots = kLeastThroughSlots;
  uint32_t pulled = kPulledCalls;
  bool is_early = false;  ///< the first trial begins at kEarly, not at first()

  /// The trial for calls of `call_bytes`. Its calls through slots fill a ring of `ring_bytes` once, if that
  /// takes 4 to 32 calls; long ones, if it takes 4 or more.
  static constexpr PullTrial of(uint64_t ring_bytes, uint64_t call_bytes) {
    constexpr uint64_t kLong = 8u << 20;
    const uint64_t round = ring_bytes / std::max<uint64_t>(call_bytes, 1);
    const bool is_long = call_bytes >= kLong;
    const uint64_t filling = std::bit_ceil(std::clamp(round, kLeastThroughSlots, kMostThroughSlots));
    return {.through_slots = is_long && round <= kLongThroughSlots ? kLongThroughSlots : filling,
            .pulled = is_long ? kLongPulledCalls : kPulledCalls,
            .is_early = is_long && round <= 2};
  }
  constexpr uint64_t calls() const { return through_slots + pulled; }
  /// The first trial, but for an early one, begins so many calls behind those of results.
  constexpr uint64_t first() const {
    // Two rounds of the ring pay for first touches of pages, and their trials of stores must be over.
    constexpr uint64_t kRounds = 4;
    return std::bit_ceil(kResultTrialCalls + kRounds * through_slots + kPulledCalls);
  }
  constexpr uint64_t period() const { return kPeriodPerCall * std::max(through_slots, kLeastThroughSlots); }
  /// With which call the last trial began, up to call `number`, both counted behind the trials of results.
  constexpr std::optional<uint64_t> last(uint64_t number) const {
    if (number < (is_early ? kEarly : first())) return std::nullopt;
    if (is_early && number < kGrowth * first()) return kEarly;
    return last_trial(number, first(), kGrowth, period());
  }
};

/// A call of a trial.
struct TrialCall {
  bool pulled = false;
  bool is_repetition = false;
  friend constexpr bool operator==(const TrialCall&, const TrialCall&) = default;
};

/// What a trial makes of call `number`, of those of one size. No value: the call belongs to no trial. Trials
/// are rare, because where slots are faster a pulled call takes up to four times as long: of 4 calls through
/// slots they begin at calls 40, 136, 520, then every 2048 calls; if the first one is early, at 16, not 40.
constexpr std::optional<TrialCall> trial_call(uint64_t number, const PullTrial& trial) {
  if (number < kResultTrialCalls) return std::nullopt;
  number -= kResultTrialCalls;
  const std::optional<uint64_t> began = trial.last(number);
  if (!began || number - *began >= 2 * trial.calls()) return std::nullopt;
  const uint64_t place = number - *began;
  return TrialCall{.pulled = place % trial.calls() >= trial.through_slots,
                   .is_repetition = place >= trial.calls()};
}

/// What the trials of one size have shown so far.
struct PullPreference {
  bool is_preferred = false;
  bool may_gain = true;
  bool repeats = false;  ///< the last trial spoke against what is preferred

  /// Whether a call of which trial_call says `trial` is one of a trial.
  constexpr bool tries(const std::optional<TrialCall>& trial) const {
    return trial && (!trial->is_repetition || repeats);
  }
  /// Whether it is pulled.
  constexpr bool pulls(const std::optional<TrialCall>& trial) const {
    return !tries(trial) || (trial->pulled && !may_gain) ? is_preferred : trial->pulled;
  }
};

/// What pulling takes at least: a system call and a copy within the caches. {}: not known.
struct PullCost {
  uint64_t call_ns = 0;
  uint64_t ps_per_byte = 0;

  constexpr uint64_t least_ns(uint64_t bytes) const { return call_ns + bytes * ps_per_byte / 1000; }
};

/// Counts what calls of one size took.
class CarriageVotes {
 public:
  /// A trial is worth while if slots took about as long as pulling does at least, or longer. Pages of 2 MiB
  /// make the kernel's copy faster than what was measured.
  PullPreference preference(uint64_t least_pulled_ns) const {
    const uint64_t slots_ns = std::ranges::min(took_ns_[0]);  // 0: not known
    return {.is_preferred = votes_.wins(),
            .may_gain = calls_left_ == 0 && (slots_ns == 0 || slots_ns >= least_pulled_ns / 4 * 3),
            .repeats = repeats_ || calls_left_ > 0};
  }

  /// `pulled_calls`: of a trial.
  void add(bool pulled, uint64_t took_ns, uint32_t pulled_calls = kPulledCalls) {
    if (calls_left_ > 0) {
      --calls_left_;
      return;
    }
    run_ = pulled == last_pulled_ ? std::min(run_ + 1, kPulledCalls + 1) : 1;
    last_pulled_ = pulled;
    LastCalls& took = took_ns_[pulled ? 1 : 0];
    if (run_ == 1) took.fill(UINT64_MAX);
    std::rotate(took.begin(), took.begin() + 1, took.end());
    // The first pulled call finds the buffers where slots have left them.
    took.back() = pulled && run_ == 1 ? UINT64_MAX : took_ns;
    if (!pulled) return;
    const auto slots_ns = agreed(took_ns_[0]);
    const uint64_t before_ns = std::exchange(last_pulled_ns_, took_ns);
    const bool gives_up = pulled_calls == kLongPulledCalls && run_ == 2 && slots_ns &&
                          std::min(before_ns, took_ns) > *slots_ns * kHopelessPercent / 100;
    if (gives_up) calls_left_ = pulled_calls - run_;
    if (!gives_up && run_ != pulled_calls) return;
    repeats_ = false;
    const std::optional<uint64_t> pulled_ns = gives_up ? took_ns : agreed(took_ns_[1]);
    if (slots_ns && pulled_ns) vote(*slots_ns, *pulled_ns);
  }

 private:
  /// UINT64_MAX: there were fewer.
  using LastCalls = std::array<uint64_t, 4>;
  /// By how many percent the two shortest ones may differ. Undisturbed ones differ by less than 10. A host
  /// that takes each core back for 3 us every 50 disturbs about every third call of 10 us, so the last two
  /// often differed.
  static constexpr uint64_t kMostDifference = 25;
  /// Pulled calls that take less of the time through slots count twice, because long calls are few. If they
  /// change the choice, the next trial alone can undo that: they may have been disturbed.
  static constexpr uint64_t kClearPercent = 75;
  /// A smaller difference speaks for the present way: a repetition would cost more.
  static constexpr uint64_t kClosePercent = 4;
  /// A trial of long calls is given up if its first two pulled ones take more than this part of the time
  /// through slots. Of 128 MiB, pulled ones took 31 to 36 ms, through slots 14.6. Some of 16 MiB took 1.5 and
  /// 1.7 times as long at first, and less later.
  static constexpr uint64_t kHopelessPercent = 175;
  static_assert(kLongPulledCalls != kPulledCalls, "long calls are known by it");
  /// The time that counts; none if the calls do not agree.
  static std::optional<uint64_t> agreed(LastCalls took) {
    std::ranges::sort(took);
    if (took[1] - took[0] > took[0] * kMostDifference / 100) return std::nullopt;
    return took[1];
  }

  void vote(uint64_t slots_ns, uint64_t pulled_ns) {
    const bool preferred = votes_.wins();
    const uint64_t most = preferred ? slots_ns * (100 + kClosePercent) : slots_ns * (100 - kClosePercent);
    const bool speaks_for = pulled_ns * 100 < most;
    votes_.vote(speaks_for);
    if (pulled_ns * 100 < slots_ns * kClearPercent) {
      votes_.vote(true);
      if (!preferred && votes_.wins()) votes_.begin_anew();
    }
    repeats_ = speaks_for != votes_.wins();
  }

  std::array<LastCalls, 2> took_ns_ = {};  ///< through slots, pulled
  uint32_t run_ = 0;                       ///< calls in a row that took the same way
  uint32_t calls_left_ = 0;                ///< of a trial that was given up: their times do not count
  uint64_t last_pulled_ns_ = 0;
  bool last_pulled_ = false;
  bool repeats_ = false;
  TrialVotes votes_;  ///< for pulling
};

/// The schedule and the votes of the collectives of one shape.
class CarriageTrials {
 public:
  CarriageTrials() = default;
  /// `least_pulled_ns`: what pulling takes at least in a call.
  explicit CarriageTrials(const PullTrial& shape, uint64_t least_pulled_ns = 0)
      : shape_(shape), least_pulled_ns_(least_pulled_ns) {}

  /// Whether to pull in the next call.
  bool begin() {
    const std::optional<TrialCall> trial = trial_call(calls_++, shape_);
    const PullPreference preference = votes_.preference(least_pulled_ns_);
    is_trial_ = preference.tries(trial);
    return preference.pulls(trial);
  }
  /// Whether the call is to be timed.
  bool is_trial() const { return is_trial_; }
  /// `pulled`: what begin() wanted may have been impossible.
  void end(bool pulled, uint64_t took_ns) { votes_.add(pulled, took_ns, shape_.pulled); }

 private:
  PullTrial shape_;
  uint64_t least_pulled_ns_ = 0;
  uint64_t calls_ = 0;
  bool is_trial_ = false;
  CarriageVotes votes_;
};

/// Messages have no shape, so their sizes are classed: 32 KiB, 64 KiB, ... 8 MiB and more.
inline constexpr uint32_t kMessageClasses = 9;
inline constexpr uint64_t kLeastClassBytes = 32768;
constexpr uint32_t message_class(uint64_t bytes) {
  return size_class(bytes, kLeastClassBytes, kMessageClasses);
}

/// How many messages a link has carried. Both ends count.
struct MessageCounts {
  std::array<uint64_t, kMessageClasses> counts = {};

  /// Counts the next message.
  std::optional<TrialCall> begin(uint64_t bytes, uint64_t ring_bytes) {
    const uint32_t size_class = message_class(bytes);
    return trial_call(counts[size_class]++, PullTrial::of(ring_bytes, kLeastClassBytes << size_class));
  }
};
/// The trials of a link for messages. The reader times them, and shows what it prefers beside its credit,
/// because a writer does not see when a message has been read. The writer chooses.
struct MessageVotes {
  MessageCounts counts;
  std::array<CarriageVotes, kMessageClasses> votes = {};
  /// For each class a bit if pulling is preferred, one, kHopelessShift higher, if it cannot gain, and one,
  /// kRepeatShift higher, if the last trial spoke against what is preferred.
  uint32_t preferences = 0;

  static PullPreference preference(uint32_t preferences, uint64_t bytes) {
    const uint32_t size_class = message_class(bytes);
    const auto has = [&](uint32_t shift) { return (preferences >> (size_class + shift) & 1u) != 0; };
    return {.is_preferred = has(0), .may_gain = !has(kHopelessShift), .repeats = has(kRepeatShift)};
  }
  void add(bool pulled, uint64_t bytes, uint64_t took_ns, const PullCost& cost = {}) {
    const uint32_t size_class = message_class(bytes);
    CarriageVotes& of = votes[size_class];
    const uint32_t pulled_calls = PullTrial::of(0, kLeastClassBytes << size_class).pulled;
    of.add(pulled, took_ns * kLeastClassBytes / bytes, pulled_calls);
    const PullPreference now = of.preference(cost.least_ns(bytes) * kLeastClassBytes / bytes);
    set_bit(size_class, now.is_preferred);
    set_bit(size_class + kHopelessShift, !now.may_gain);
    set_bit(size_class + kRepeatShift, now.repeats);
  }

 private:
  static constexpr uint32_t kHopelessShift = 10;
  static constexpr uint32_t kRepeatShift = 20;
  static_assert(kMessageClasses <= kHopelessShift && kHopelessShift + kMessageClasses <= kRepeatShift &&
                kRepeatShift + kMessageClasses <= 32);

  void set_bit(uint32_t place, bool is_set) {
    preferences = is_set ? preferences | 1u << place : preferences & ~(1u << place);
  }
};

}  // namespace tutti
