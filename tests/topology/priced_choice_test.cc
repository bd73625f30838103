// Tests of choices by price.
#include "algorithms/priced_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/placements.h"
#include "topology/describe.h"
#include "topology/placement.h"

namespace tutti {
namespace {

using topology::Graph;
using topology::Placement;
using topology::RanksAre;
using topology::Routes;

/// Ranks on the cores of a machine that is described in words.
class Job {
 public:
  Job(const char* text, std::vector<uint32_t> host_of)
      : graph_(*topology::parse_description(text)),
        routes_(std::move(*Routes::of(graph_, RanksAre::kCores))),
        host_of_(std::move(host_of)),
        placement_(
            *topology::place_ranks(routes_, host_of_, std::vector<CpuSet>(host_of_.size(), CpuSet().set()))),
        // As JobTopology does.
        choice_({.routes = routes_,
                 .costs = topology::usual_costs(false),
                 .places = routes_.keep_ranks(placement_.places)
                               ? std::span<const uint32_t>()
                               : std::span<const uint32_t>(placement_.places)}) {}

  Facts facts() const {
    const uint32_t hosts = *std::ranges::max_element(host_of_) + 1;
    return {.can_publish = hosts == 1,
            .host_count = hosts,
            .host_of = hosts == 1 ? std::span<const uint32_t>() : std::span<const uint32_t>(host_of_),
            .levels = placement_.levels,
            .order = placement_.order,
            .cores = 8,
            .slots = 32};
  }

  Request request(Collective collective, uint64_t bytes) const {
    const auto ranks = static_cast<uint32_t>(host_of_.size());
    return {.collective = collective,
            .rank_count = ranks,
            .block_bytes = block_bytes_of(collective, ranks, bytes)};
  }

  const PricedRow& choose(Collective collective, uint64_t bytes, const char* by_table) {
    return choice_.choose(request(collective, bytes), facts(), {find_algorithm(collective, by_table)});
  }
  std::string print() const { return choice_.print(); }

 private:
  Graph graph_;
  Routes routes_;
  std::vector<uint32_t> host_of_;
  Placement placement_;
  PricedChoice choice_;
};

std::vector<uint32_t> blocks(uint32_t hosts, uint32_t each) {
  return test::place_contiguous(std::vector<uint32_t>(hosts, each)).host_of;
}

constexpr const char* kFourHosts = "4 hosts x 8 cores, nic 10 Gbit/s";

// Goal: the fastest by price wins, and says against what. A ring over 4 hosts of a slow network has 62
// latencies for a short message.
TEST(PricedChoiceTest, TheFastestByPriceTakesThePlaceOfASlowRow) {
  Job job(kFourHosts, blocks(4, 8));
  const PricedRow& row = job.choose(Collective::kAllReduce, 1024, "ring");
  EXPECT_NE(row.way.algorithm->name, "ring");
  EXPECT_EQ(row.by_table.algorithm->name, "ring");
  EXPECT_LT(row.price_us * 1.1, row.by_table_us);
  EXPECT_EQ(row.row.algorithm, row.way.algorithm->name);
  EXPECT_EQ(row.row.bytes_min, 1024u);
  EXPECT_EQ(row.row.bytes_max, 2047u);
  EXPECT_NE(row.limit, "");
}

TEST(PricedChoiceTest, TheTableStaysWhereThePriceDoesNotKnowBetter) {
  Job job(kFourHosts, blocks(4, 8));
  const PricedRow winner = job.choose(Collective::kAllReduce, 1024, "ring");
  const PricedRow& row =
      job.choose(Collective::kAllReduce, 1024, std::string(winner.way.algorithm->name).c_str());
  EXPECT_EQ(row.way, winner.way);
  EXPECT_EQ(row.way, row.by_table);
}

// Goal: a row is one decision: of the class, not of the size that came first, so ranks that make calls of
// other sizes first agree.
TEST(PricedChoiceTest, AllSizesOfAClassShareARow) {
  Job job(kFourHosts, blocks(4, 8));
  const PricedRow& row = job.choose(Collective::kAllReduce, 2047, "ring");
  EXPECT_EQ(&job.choose(Collective::kAllReduce, 1024, "ring"), &row);
  EXPECT_NE(&job.choose(Collective::kAllReduce, 2048, "ring"), &row);
  Job other(kFourHosts, blocks(4, 8));
  EXPECT_EQ(other.choose(Collective::kAllReduce, 1024, "ring").price_us, row.price_us);
}

// Goal: no cliffs: a longer message is never predicted to be faster by more than the choice's tolerance.
TEST(PricedChoiceTest, TimeIsMonotoneInSize) {
  const std::vector<std::pair<Collective, const char*>> cases = {{Collective::kAllReduce, "ring"},
                                                                 {Collective::kAllGather, "ring"},
                                                                 {Collective::kReduceScatter, "ring"},
                                                                 {Collective::kAllToAll, "direct"},
                                                                 {Collective::kBroadcast, "chain"}};
  for (const auto& [collective, by_table] : cases) {
    Job job("2 hosts x 4 cores, nic 25 Gbit/s", blocks(2, 4));
    double before_us = 0;
    for (uint64_t bytes = 64; bytes <= uint64_t{16} << 20; bytes *= 2) {
      const PricedRow& row = job.choose(collective, bytes, by_table);
      EXPECT_GE(row.price_us * 1.11, before_us) << collective_name(collective) << " " << bytes;
      before_us = row.price_us;
    }
  }
}

// Goal: rows have the form of the choice table, so that a user can keep them. Method: parse what is printed.
TEST(PricedChoiceTest, RowsAreRowsOfATable) {
  Job job(kFourHosts, blocks(4, 8));
  job.choose(Collective::kAllReduce, 1024, "ring");
  job.choose(Collective::kBroadcast, 1 << 20, "chain");
  job.choose(Collective::kBarrier, 1, "direct");
  const auto table = ChoiceTable::parse(job.print());
  ASSERT_TRUE(table) << table.status().text() << job.print();
  EXPECT_EQ(table->rows().size(), 3u) << job.print();
  EXPECT_EQ(table->choose(job.request(Collective::kAllReduce, 1500), job.facts()),
            job.choose(Collective::kAllReduce, 1024, "ring").way.algorithm);
}

// Goal: a rank of a job of 16,384 ranks chooses in less than a second and 100 MiB. The time is not asserted:
// what is asserted is that no more than kStepsMax steps are walked, by the row being decided at all.
TEST(PricedChoiceTest, ManyRanksGetARow) {
  Job job("2048 hosts x 8 cores, nic 100 Gbit/s, fat tree 2:1", blocks(2048, 8));
  const PricedRow& row = job.choose(Collective::kAllReduce, 1 << 20, "recursive_halving_doubling");
  EXPECT_NE(row.way.algorithm, nullptr);
}

TEST(ChoiceRowTest, APrintedRowIsReadBack) {
  const char* text =
      "all_reduce * ..64K hosts ring estimate\nreduce 3..8 1025..4G any chain\nbarrier 2 7 publish direct\n";
  const auto table = ChoiceTable::parse(text);
  ASSERT_TRUE(table) << table.status().text();
  std::string printed;
  for (const ChoiceRow& row : table->rows()) printed += print_row(row) + "\n";
  const auto again = ChoiceTable::parse(printed);
  ASSERT_TRUE(again) << again.status().text() << printed;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(print_row(again->rows()[i]), print_row(table->rows()[i]));
    EXPECT_EQ(again->rows()[i].is_estimate, i == 0);
  }
}

}  // namespace
}  // namespace tutti
