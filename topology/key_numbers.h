// Key numbers: numbers keys from 0 in the order in which they first come. A flat hash table, where a map
// would take most of the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/hash.h"

namespace tutti::topology {

class KeyNumbers {
 public:
  /// The key's number, and whether the key is new.
  std::pair<uint32_t, bool> number(uint64_t key) {
    if (2 * size_t{count_} >= places_.size()) grow();
    Place& place = place_of(key);
    const bool is_new = place.number == kFree;
    if (is_new) place = {key, count_++};
    return {place.number, is_new};
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  struct Place {
    uint64_t key = 0;
    uint32_t number = kFree;
  };

  /// Where the key is, or the free place for it.
  Place& place_of(uint64_t key) {
    size_t at = mix_bits(key) & (places_.size() - 1);
    while (places_[at].number != kFree && places_[at].key != key) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }

  void grow() {
    const std::vector<Place> old = std::exchange(places_, std::vector<Place>(places_.size() * 2));
    for (const Place& place : old) {
      if (place.number != kFree) place_of(place.key) = place;
    }
  }

  std::vector<Place> places_ = std::vector<Place>(64);  ///< a power of two, at most half of them taken
  uint32_t count_ = 0;
};

}  // namespace tutti::topology
