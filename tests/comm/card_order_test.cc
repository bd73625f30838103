// Which ranks share a machine's network cards out. How near a card is: tests/topology/cards_test.cc.
#include "comm/card_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

/// The card that a rank uses first. All are equally near.
size_t first_card(Rank& rank, Process& process, const std::vector<RankFacts>& facts, uint32_t of) {
  // Software devices have no PCI address, and so no distance.
  const std::vector<std::string> cards = {"", "", ""};
  const std::vector<CardUse> uses = card_order(process, facts, of)(cards);
  rank.expect_true(uses.size() == cards.size(), "every card is used");
  for (const CardUse& use : uses) rank.expect_true(use.is_near && use.distance.empty(), "a near card");
  return uses.empty() ? cards.size() : uses[0].card;
}

// In a process of its own: a process that has read its machine may not fork ranks.
TEST(CardOrderTest, TheRanksOfAMachineBeginWithDifferentCards) {
  EXPECT_EQ(run_cluster({.layout = {1}},
                        [](Rank& rank) {
                          auto process = Process::instance();
                          rank.expect_true(process.is_ok(), std::string(process.status().text()));
                          std::vector<RankFacts> facts(4);
                          facts[1].machine = 9;  // has cards of its own
                          facts[3].device.bus_id.fill('z');
                          std::vector<size_t> first;
                          for (const uint32_t of : {0u, 1u, 2u, 3u})
                            first.push_back(first_card(rank, **process, facts, of));
                          rank.expect_true(first == std::vector<size_t>{0, 0, 1, 2}, "one each");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
