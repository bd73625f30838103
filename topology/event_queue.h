// Event queue: what happens next in a simulation. A heap of four children to a node; a key is one number, so
// that a compare is one instruction or two.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::topology {

/// At one time, lanes that go on come before others, then lower numbers before higher ones, and a lane before
/// a message of the same number. Equal events come in any order.
class EventQueue {
 public:
  struct Event {
    double us;
    uint32_t number;  ///< of a lane, or of a message
    bool is_message;
  };

  bool empty() const { return keys_.empty(); }

  /// `us` is not negative: then its bits ascend as it does.
  void push(double us, uint32_t number, bool is_message, bool goes_on) {
    const uint64_t order = (goes_on ? 0 : kLater) | uint64_t{number} << 1 | (is_message ? 1 : 0);
    const Key key = Key{std::bit_cast<uint64_t>(us)} << 64 | order;
    keys_.push_back(key);
    size_t at = keys_.size() - 1;
    for (; at > 0 && key < keys_[(at - 1) / kChildren]; at = (at - 1) / kChildren)
      keys_[at] = keys_[(at - 1) / kChildren];
    keys_[at] = key;
  }

  Event pop() {
    const Key first = keys_.front();
    const Key last = keys_.back();
    keys_.pop_back();
    if (!keys_.empty()) sink(last);
    const auto order = static_cast<uint64_t>(first);
    return {.us = std::bit_cast<double>(static_cast<uint64_t>(first >> 64)),
            .number = static_cast<uint32_t>(order >> 1),
            .is_message = (order & 1) != 0};
  }

 private:
  __extension__ typedef unsigned __int128 Key;
  static constexpr size_t kChildren = 4;
  static constexpr uint64_t kLater = uint64_t{1} << 33;

  /// Fills the place of the first key.
  void sink(Key key) {
    size_t at = 0;
    for (;;) {
      const size_t child = at * kChildren + 1;
      if (child >= keys_.size()) break;
      size_t least = child;
      const size_t end = std::min(child + kChildren, keys_.size());
      for (size_t other = child + 1; other < end; ++other)
        least = keys_[other] < keys_[least] ? other : least;
      if (key <= keys_[least]) break;
      keys_[at] = keys_[least];
      at = least;
    }
    keys_[at] = key;
  }

  std::vector<Key> keys_;
};

}  // namespace tutti::topology
