// Tests of Hosts: who is where and whose counterpart, and when the order of hosts is that of the canonical
// tree.
#include "algorithms/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "algorithms/builder.h"
#include "algorithms/order.h"
#include "tests/support/placements.h"

namespace tutti::generators {
namespace {

using test::Placement;
using ::testing::ElementsAre;

std::vector<uint32_t> sizes_of(const Hosts& hosts) {
  std::vector<uint32_t> sizes;
  for (uint32_t host = 0; host < hosts.count(); ++host) sizes.push_back(hosts.size(host));
  return sizes;
}

TEST(HostsTest, RanksAreNumberedWithinTheirHost) {
  const Placement placement = test::place("mixed", {5, 5, 9, 5, 9, 0});
  EXPECT_THAT(placement.host_of, ElementsAre(0, 0, 1, 0, 1, 2));
  const Hosts hosts({.rank_count = 6}, placement.facts());
  EXPECT_THAT(sizes_of(hosts), ElementsAre(3, 2, 1));
  EXPECT_EQ(hosts.most_ranks(), 3u);
  EXPECT_THAT(hosts.ranks(0), ElementsAre(0, 1, 3));
  EXPECT_THAT(hosts.ranks(1), ElementsAre(2, 4));
  EXPECT_EQ(hosts.host_of(4), 1u);
  EXPECT_EQ(hosts.number(3), 2u);
  EXPECT_EQ(hosts.counterpart(1, 1), 4u);
  EXPECT_EQ(hosts.counterpart(1, 3), 2u) << "the third of two is the first again";
  EXPECT_EQ(hosts.counterpart(0, 4), 1u);
}

TEST(HostsTest, WithoutPlacesAllRanksShareOneHost) {
  const Request request{.rank_count = 4};
  EXPECT_TRUE(knows_hosts(request, {}));
  EXPECT_TRUE(hosts_are_canonical({}));
  const Hosts hosts(request, {});
  EXPECT_THAT(hosts.ranks(0), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(hosts.counterpart(0, 2), 2u);
}

TEST(HostsTest, SeveralHostsWithoutPlacesAreNotKnown) {
  EXPECT_FALSE(knows_hosts({.rank_count = 4}, {.host_count = 2}));
  const Placement placement = test::place_cyclic(2, 2);
  EXPECT_TRUE(knows_hosts({.rank_count = 4}, placement.facts()));
  EXPECT_FALSE(knows_hosts({.rank_count = 5}, placement.facts()));
}

TEST(HostsTest, GroupsOfOneHostTakeThePlaceOfHosts) {
  const Placement placement = test::as_groups(test::place("mixed", {5, 5, 9, 5}));
  const Request request{.rank_count = 4};
  const Facts grouped = by_groups(request, placement.facts());
  EXPECT_EQ(grouped.host_count, 2u);
  const Hosts hosts(request, grouped);
  EXPECT_THAT(hosts.ranks(0), ElementsAre(0, 1, 3));
  EXPECT_EQ(by_groups({.rank_count = 3}, placement.facts()).host_count, 1u) << "groups of other ranks";
  Facts two_hosts = placement.facts();
  two_hosts.host_count = 2;
  two_hosts.host_of = placement.levels[0];
  EXPECT_EQ(by_groups(request, two_hosts).host_of.data(), placement.levels[0].data());
}

TEST(OrderTest, NeighboursStandNextToEachOther) {
  const Placement placement = test::by_hosts(test::place_cyclic(2, 2));
  const Order order({.rank_count = 4}, placement.facts());
  std::vector<uint32_t> ranks;
  for (uint32_t place = 0; place < 4; ++place) {
    ranks.push_back(order.rank_at(place));
    EXPECT_EQ(order.place_of(ranks.back()), place);
  }
  EXPECT_THAT(ranks, ElementsAre(0, 3, 1, 2)) << "the last of the first host stands before the first";
  EXPECT_EQ(Order({.rank_count = 5}, placement.facts()).rank_at(1), 1u) << "an order of other ranks";
}

TEST(OrderTest, ChannelsHaveOrdersOfTheirOwn) {
  const Placement placement = test::with_two_orders(test::place_contiguous({2, 2}));
  const Request request{.rank_count = 4};
  ASSERT_EQ(Order::channels_of(request, placement.facts()), 2u);
  EXPECT_EQ(Order::channels_of({.rank_count = 3}, placement.facts()), 1u) << "orders of other ranks";
  const Order second(request, placement.facts(), 1);
  std::set<uint32_t> ranks;
  for (uint32_t place = 0; place < 4; ++place) ranks.insert(second.rank_at(place));
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_NE(second.rank_at(1), Order(request, placement.facts()).rank_at(1));
}

/// The canonical tree over terms, as text.
std::string tree(const std::vector<std::string>& terms, size_t begin, size_t end) {
  if (end - begin == 1) return terms[begin];
  const size_t middle = begin + canonical_split(static_cast<uint32_t>(end - begin));
  return std::string("(") + tree(terms, begin, middle) + "+" + tree(terms, middle, end) + ")";
}

// Goal: hosts are called canonical exactly when they are. Method: compare with the trees as text, for every
// way to lay up to 9 ranks on hosts one after another, and for mixed ones.
TEST(HostsTest, AreCanonicalAgreesWithTheTreesThatTheyMake) {
  std::vector<Placement> placements = test::uneven_placements();
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (uint32_t ends = 0; ends < 1u << (ranks - 1); ++ends) {
      std::vector<uint32_t> sizes = {1};
      for (uint32_t rank = 1; rank < ranks; ++rank) {
        if ((ends >> (rank - 1) & 1) != 0) {
          sizes.push_back(1);
        } else {
          ++sizes.back();
        }
      }
      placements.push_back(test::place_contiguous(sizes));
    }
  }
  std::set<bool> seen;
  for (const Placement& placement : placements) {
    const Hosts hosts({.rank_count = placement.rank_count()}, placement.facts());
    std::vector<std::string> ranks;
    for (uint32_t rank = 0; rank < placement.rank_count(); ++rank) ranks.push_back(std::to_string(rank));
    std::vector<std::string> sums;
    for (uint32_t host = 0; host < hosts.count(); ++host) {
      std::vector<std::string> members;
      for (const uint32_t rank : hosts.ranks(host)) members.push_back(ranks[rank]);
      sums.push_back(tree(members, 0, members.size()));
    }
    const bool is_canonical = tree(sums, 0, sums.size()) == tree(ranks, 0, ranks.size());
    EXPECT_EQ(hosts_are_canonical(placement.facts()), is_canonical) << placement.name;
    seen.insert(is_canonical);
  }
  EXPECT_EQ(seen.size(), 2u);
}

}  // namespace
}  // namespace tutti::generators
