// PassedSlots: slots between two ranks that go with their messages: who has read one may write it next.
//
// In a ring a writer comes back to slots whose lines its reader holds, so each line crosses twice: to the
// reader, and in the next round as a claim of the writer. A rank that answers in the slots that it has just
// read saves the second crossing: between far cores messages of 4 to 256 KiB take 0.7 to 0.85 of the time.
// No credit is needed. A rank that has none left, because its peer sends nothing, uses its ring's slots.
// Figures: docs/measurements/carriage.md.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// The slots that one rank may write now. Both links between two ranks share it, on each side.
class PassedSlots {
 public:
  /// Between two ranks.
  static constexpr uint32_t kMost = 64;
  /// Shorter payloads gain nothing.
  static constexpr uint64_t kLeastBytes = 4096;

  /// `count` slots of `slot_bytes`, of which this rank has the first half at first, or the second one.
  PassedSlots(std::byte* slots, uint32_t slot_bytes, uint32_t count, bool has_first_half)
      : slots_(slots), slot_bytes_(slot_bytes) {
    assert(count <= kMost);
    for (uint32_t i = 0; i < count / 2; ++i) put(has_first_half ? i : count / 2 + i);
  }

  bool is_empty() const { return count_ == 0; }
  /// The one that was put last, which this core has touched last. Requires that there is one.
  uint32_t top() const { return owned_[count_ - 1]; }
  void take_top() { --count_; }
  void put(uint32_t slot) {
    assert(count_ < kMost);
    owned_[count_++] = static_cast<uint16_t>(slot);
  }
  std::byte* at(uint32_t slot) const { return slots_ + size_t{slot} * slot_bytes_; }

 private:
  std::byte* slots_;
  uint32_t slot_bytes_;
  uint32_t count_ = 0;
  std::array<uint16_t, kMost> owned_{};
};

}  // namespace tutti
