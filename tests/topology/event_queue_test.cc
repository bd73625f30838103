// Goal: events come in the order of time, and at one time in the order that the queue promises.
#include "topology/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace tutti::topology {
namespace {

// Method: events of few times and few numbers, so that most meet another one; some are taken in between.
TEST(EventQueueTest, EventsComeInOrderWithManyAtOneTime) {
  using Key = std::tuple<double, bool, uint32_t, bool>;  // time, comes later, number, is a message
  std::mt19937 random(7);
  std::vector<Key> waiting;
  EventQueue queue;
  double now_us = 0;
  const auto take = [&] {
    const auto least = std::ranges::min_element(waiting);
    const EventQueue::Event event = queue.pop();
    const auto& [us, later, number, is_message] = *least;
    EXPECT_EQ(std::tuple(event.us, event.number, event.is_message), std::tuple(us, number, is_message));
    now_us = event.us;
    waiting.erase(least);
  };
  for (int i = 0; i < 3000; ++i) {
    const double us = now_us + static_cast<double>(random() % 8) / 4;
    const bool goes_on = random() % 2 == 0;
    const auto number = static_cast<uint32_t>(random() % 16 == 0 ? UINT32_MAX - random() % 4 : random() % 64);
    const bool is_message = !goes_on && random() % 2 == 0;
    queue.push(us, number, is_message, goes_on);
    waiting.emplace_back(us, !goes_on, number, is_message);
    if (random() % 3 == 0) take();
  }
  while (!waiting.empty()) take();
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace tutti::topology
