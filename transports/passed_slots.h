// PassedSlots: slots between two ranks that go with their messages: who has read one may write it next.
//
// In a ring a writer comes back to slots whose lines its reader holds, so each line crosses twice: to the
// reader, and in the next round as a claim of the writer. A rank that answers in slots that it has read saves
// the second crossing. No credit is needed. A rank that has none left, because its peer sends nothing, uses
// its ring's slots. Figures: docs/measurements/carriage.md.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// The slots that one rank may write now. Each rank has one for each peer, which its two links share.
class PassedSlots {
 public:
  /// Between two ranks.
  static constexpr uint32_t kMost = 64;
  static_assert((kMost & (kMost - 1)) == 0, "counters wrap");
  /// Shorter payloads gain nothing.
  static constexpr uint32_t kLeastBytes = 4096;
  static constexpr uint32_t kLeastBytesWhereDemoted = 1024;
  /// `demotes_lines`: of the processor (core/cache_hints.h).
  static constexpr uint32_t least_bytes_where(bool demotes_lines) {
    return demotes_lines ? kLeastBytesWhereDemoted : kLeastBytes;
  }

  /// `count` slots of `slot_bytes`, of which this rank has the first half at first, or the second one.
  /// `least_bytes`: of a payload in them; both ranks pass the same.
  PassedSlots(std::byte* slots, uint32_t slot_bytes, uint32_t count, bool has_first_half,
              uint32_t least_bytes)
      : slots_(slots),
        slot_bytes_(slot_bytes),
        unused_(count / 2),
        first_(has_first_half ? 0 : count / 2),
        least_bytes_(least_bytes) {
    assert(count <= kMost);
  }

  uint32_t least_bytes() const { return least_bytes_; }

  bool is_empty() const { return read_ == written_ && unused_ == 0; }
  /// The slot to write next: those that this rank has read, in that order, because processors prefetch behind
  /// a slot's end; only then those that nobody has used yet. Requires that there is one.
  uint32_t front() const { return read_ != written_ ? order_[written_ % kMost] : first_; }
  void take_front() {
    if (read_ != written_) {
      ++written_;
    } else {
      ++first_;
      --unused_;
    }
  }
  /// This rank has read the slot.
  void put(uint32_t slot) { order_[read_++ % kMost] = static_cast<uint16_t>(slot); }
  std::byte* at(uint32_t slot) const { return slots_ + size_t{slot} * slot_bytes_; }

 private:
  std::byte* slots_;
  uint32_t slot_bytes_;
  uint32_t unused_;  ///< slots, from first_ on
  uint32_t first_;
  uint32_t least_bytes_;
  uint32_t read_ = 0;     ///< slots that this rank has read
  uint32_t written_ = 0;  ///< slots of these that this rank has written again
  std::array<uint16_t, kMost> order_{};
};

}  // namespace tutti
