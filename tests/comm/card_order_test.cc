// Which ranks share a machine's network cards out. How near a card is: tests/topology/cards_test.cc.
#include "comm/card_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

TEST(CardOrderTest, TheRanksOfAMachineBeginWithDifferentCards) {
  auto process = Process::instance();
  ASSERT_TRUE(process.is_ok()) << process.status().text();
  std::vector<RankFacts> facts(4);
  facts[1].machine = 9;  // has cards of its own
  facts[3].device.bus_id.fill('z');
  // Software devices have no PCI address, and so no distance.
  const std::vector<std::string> cards = {"", "", ""};
  std::vector<size_t> first;
  for (const uint32_t rank : {0u, 2u, 3u}) {
    const std::vector<CardUse> uses = card_order(**process, facts, rank)(cards);
    ASSERT_EQ(uses.size(), cards.size());
    for (const CardUse& use : uses) {
      EXPECT_TRUE(use.is_near);
      EXPECT_EQ(use.distance, "");
    }
    first.push_back(uses[0].card);
  }
  EXPECT_EQ(first, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(card_order(**process, facts, 1)(cards)[0].card, 0u);
}

}  // namespace
}  // namespace tutti
