// Goal: the table that is made for a machine is one that the library reads, and it names the fastest
// algorithm.
#include "tools/priced_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "algorithms/choice.h"

namespace tutti::tool {
namespace {

Machine machine(const std::string& description) {
  auto found = Machine::load("", description);
  EXPECT_TRUE(found) << found.status().text();
  return std::move(*found);
}

ChoiceTable table_of(Machine& at, std::span<const uint32_t> ranks) {
  const auto text = priced_table(at, ranks);
  EXPECT_TRUE(text) << text.status().text();
  auto table = ChoiceTable::parse(*text);
  EXPECT_TRUE(table) << table.status().text();
  return std::move(*table);
}

// Method: sizes inside and at the ends of classes. Expectation: the choice costs at most 3 % more than the
// best at the size for which a class was priced, and never more than half beyond it.
TEST(PricedTableTest, TheChoiceIsTheFastestAlgorithm) {
  for (const char* text :
       {"8 cores", "8 gpus, nvswitch 450 GB/s", "4 hosts x 4 gpus, nic 4 x 25 GB/s, rails"}) {
    Machine at = machine(text);
    const std::array<uint32_t, 1> ranks = {at.rank_count()};
    const ChoiceTable table = table_of(at, ranks);
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast}) {
      double last_us = 0;
      for (uint64_t bytes = 256; bytes <= 1 << 28; bytes *= 2) {
        const Request request{.collective = collective,
                              .rank_count = ranks[0],
                              .block_bytes = block_bytes_of(collective, ranks[0], bytes)};
        const Algorithm* chosen = table.choose(request, at.facts(ranks[0]));
        const auto candidates = predict(at, request);
        ASSERT_TRUE(candidates);
        const auto own = std::ranges::find(*candidates, Way{chosen}, &Candidate::way);
        ASSERT_NE(own, candidates->end()) << text << bytes;
        const double ratio = own->simulation.microseconds / candidates->front().simulation.microseconds;
        const bool was_priced = std::countr_zero(bytes) % 2 == 0;
        EXPECT_LT(ratio, was_priced ? 1.031 : 1.5) << text << " " << chosen->name << " " << bytes;
        EXPECT_GE(own->simulation.microseconds, 0.9 * last_us) << text << " " << bytes << ": a cliff";
        last_us = own->simulation.microseconds;
      }
    }
  }
}

TEST(PricedTableTest, OtherCountsAndModesFindTheBuiltInRows) {
  Machine at = machine("4 cores");
  const std::array<uint32_t, 2> counts = {2, 4};
  const ChoiceTable table = table_of(at, counts);
  Request request{.collective = Collective::kAllReduce, .rank_count = 7, .block_bytes = 1 << 20};
  Facts facts;
  EXPECT_EQ(table.choose(request, facts), ChoiceTable::built_in().choose(request, facts));
  request.rank_count = 4;
  request.reproducible = true;
  EXPECT_TRUE(table.choose(request, facts)->supports(request, facts));
}

}  // namespace
}  // namespace tutti::tool
