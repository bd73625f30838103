// What a rank reads of another rank's status page while that rank goes on.
#include "health/status_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::test {
namespace {

struct Words {
  uint64_t sequence = 0;
  uint64_t history = 0;
  uint64_t completed = 0;
};
/// The page of a rank after each store of its first two collectives.
constexpr std::array<Words, 7> kStores = {
    {{0, 0, 0}, {1, 0, 0}, {1, 11, 0}, {1, 11, 1}, {2, 11, 1}, {2, 22, 1}, {2, 22, 2}}};
constexpr std::array<uint64_t, 3> kHistories = {0, 11, 22};  // by the number of collectives

/// How many of the stores are made when a reader loads a word for the first, second, third, fourth time.
using StoresMade = std::array<size_t, 4>;

/// A page whose rank goes on between a reader's loads.
class MovingPage {
 public:
  explicit MovingPage(const StoresMade& made) : made_(made) {}

  struct Word {
    MovingPage& page;
    uint64_t Words::*word;
    uint64_t load(std::memory_order /*order*/) const { return page.next_state().*word; }
  };
  Word sequence{*this, &Words::sequence};
  Word history{*this, &Words::history};
  Word completed{*this, &Words::completed};

 private:
  const Words& next_state() { return kStores[made_[std::min(loads_++, made_.size() - 1)]]; }

  StoresMade made_;
  size_t loads_ = 0;
};

template <class Visit>
void for_every_order(const Visit& visit) {
  for (size_t first = 0; first < kStores.size(); ++first) {
    for (size_t second = first; second < kStores.size(); ++second) {
      for (size_t third = second; third < kStores.size(); ++third) {
        for (size_t fourth = third; fourth < kStores.size(); ++fourth) visit({first, second, third, fourth});
      }
    }
  }
}

// A rank that left read the history of a peer's call before the peer had stored it, and the end of that call
// after it: it reported a mismatch between two ranks that had made the same calls.
TEST(StatusCopyTest, APeerThatGoesOnHasNoOtherHistory) {
  for_every_order([](const StoresMade& made) {
    for (uint64_t number = 0; number < kHistories.size(); ++number) {
      EXPECT_FALSE(shows_other_history(MovingPage(made), number, kHistories[number]))
          << "after " << number << " collectives, loads after stores " << testing::PrintToString(made);
    }
  });
}

// Goal: another history is found once the peer has finished the collective, and until it enters the next.
TEST(StatusCopyTest, AnotherHistoryIsFoundBetweenTwoCollectives) {
  for (size_t stores = 0; stores < kStores.size(); ++stores) {
    const bool is_between = stores == 3;
    EXPECT_EQ(shows_other_history(MovingPage({stores, stores, stores, stores}), 1, 12), is_between)
        << "after " << stores << " stores";
  }
}

}  // namespace
}  // namespace tutti::test
