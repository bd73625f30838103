// Stores: the ways in which a copy may write a buffer. Which is the fastest depends on the processor and on
// where the buffer's lines are, so links and calls find it by trials.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace tutti {

/// Trials of longer pieces try more of these kinds, in this order (transports/store_trials.h).
enum class Stores : uint8_t {
  kOrdinary = 0,     ///< the lines stay in the core's caches
  kStreaming = 1,    ///< past the caches, into memory
  kString = 2,       ///< the processor's string move: it need not read the lines that it overwrites
  kInterleaved = 3,  ///< ordinary stores to a line of each quarter in turn: more lines are under way
};
inline constexpr uint32_t kStoresCount = 4;

/// The kinds that a step can use.
class StoresSet {
 public:
  constexpr StoresSet(std::initializer_list<Stores> kinds) {
    for (const Stores kind : kinds) add(kind);
  }
  constexpr void add(Stores kind) { bits_ |= 1u << static_cast<uint32_t>(kind); }
  constexpr void remove(Stores kind) { bits_ &= ~(1u << static_cast<uint32_t>(kind)); }
  constexpr bool has(Stores kind) const { return (bits_ >> static_cast<uint32_t>(kind) & 1u) != 0; }
  friend constexpr bool operator==(const StoresSet&, const StoresSet&) = default;

 private:
  uint32_t bits_ = 0;
};
/// What a step that reduces may choose from.
inline constexpr StoresSet kStoresOfSums = {Stores::kOrdinary, Stores::kStreaming};
inline constexpr StoresSet kAllStores = {Stores::kOrdinary, Stores::kStreaming, Stores::kString,
                                         Stores::kInterleaved};

}  // namespace tutti
