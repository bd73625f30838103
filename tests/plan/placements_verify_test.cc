// Goal: algorithms that look at places are proved wherever the ranks are: 2 to 8 hosts of 1 to 8 ranks in
// blocks and in turns, hosts of different sizes, more hosts than one step can reduce, groups inside one host,
// groups inside groups, and one or two orders that go host by host. Method: all of the registry; one test a
// collective, so that they can run side by side. (algorithms_verify_test.cc proves them on one host.)
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/verify.h"
#include "tests/support/placements.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

constexpr std::array<uint32_t, 3> kSlots = {1, 2, 8};  // a link

std::vector<Placement> placements() {
  std::vector<Placement> all = uneven_placements();
  for (uint32_t hosts = 2; hosts <= 8; ++hosts) {
    for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
      all.push_back(place_contiguous(std::vector<uint32_t>(hosts, ranks)));
      if (ranks > 1) all.push_back(place_cyclic(hosts, ranks));
    }
  }
  for (const uint32_t hosts : {9u, 12u, 17u})
    all.push_back(place_contiguous(std::vector<uint32_t>(hosts, 2)));
  all.push_back(place_cyclic(10, 3));
  const size_t hosts_only = all.size();
  for (size_t i = 0; i < hosts_only; ++i) {
    if (all[i].rank_count() > 16) continue;
    all.push_back(by_hosts(all[i]));
    all.push_back(with_two_orders(all[i]));
    all.push_back(as_groups(all[i]));
  }
  for (const Placement& placement : level_placements()) {
    all.push_back(placement);
    if (placement.rank_count() <= 16) all.push_back(as_groups(placement));
  }
  // Proofs of the large ones take most of the time, and show nothing more of the verifier's code.
  if (sanitized() && !full_run()) {
    std::erase_if(all, [](const Placement& placement) { return placement.rank_count() > 20; });
  }
  return all;
}

/// What varies besides placement and root. The full run takes the whole product; otherwise large
/// communicators take some, so that every pair of values occurs at many of them.
std::vector<Request> variants(const Placement& placement, Collective collective, uint32_t salt) {
  std::vector<Request> requests;
  for (uint32_t bits = 0; bits < 16; ++bits) {
    const uint32_t ranks = placement.rank_count();
    const uint32_t one_in = full_run() || ranks <= 8 ? 1 : ranks <= 16 ? 2 : ranks <= 32 ? 4 : 8;
    if (bits % one_in != salt % one_in) continue;
    requests.push_back({.collective = collective,
                        .rank_count = placement.rank_count(),
                        .block_bytes = (bits & 8) != 0 ? 64u : 64u << 20,
                        .reproducible = (bits & 1) != 0,
                        .in_place = (bits & 2) != 0,
                        .variable_counts = (bits & 4) != 0});
  }
  return requests;
}

class PlacementsVerifyTest : public ::testing::TestWithParam<Collective> {
 protected:
  void prove(const Algorithm& algorithm, const Placement& placement, const Request& request, uint32_t slots) {
    const Facts facts = placement.facts(slots);
    if (!algorithm.supports(request, facts)) return;
    std::vector<Plan> plans;
    for (uint32_t rank = 0; rank < request.rank_count; ++rank) {
      plans.push_back(algorithm.make(request, facts, rank));
    }
    const std::string name =
        std::string(algorithm.name) +
        format(" of %s, root %u, %llu bytes%s%s%s, %u slots", placement.name.c_str(), request.root,
               static_cast<unsigned long long>(request.block_bytes), request.in_place ? ", in place" : "",
               request.reproducible ? ", reproducible" : "",
               request.variable_counts ? ", variable counts" : "", slots);
    const Status status =
        verify_plans(plans, {.in_place = request.in_place, .variable_counts = request.variable_counts});
    ASSERT_TRUE(status.is_ok()) << name << ": " << status.text();
    EXPECT_LE(plans[0].slots_needed, slots) << name;
    if (request.reproducible && reduces(request.collective)) {
      EXPECT_EQ(plans[0].association, PlanAssociation::kCanonical) << name;
    }
    ++proved_;
  }

  size_t proved_ = 0;
};

TEST_P(PlacementsVerifyTest, AlgorithmsThatLookAtPlacesAreProvedWhereverRanksAre) {
  uint32_t salt = 0;
  for (const Placement& placement : placements()) {
    const uint32_t last = placement.rank_count() - 1;
    std::set<uint32_t> roots = {0};
    if (has_root(GetParam())) roots = {0, placement.rank_count() / 2, last};
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.collective != GetParam()) continue;
      const bool is_ordered = follows_order(algorithm) && !placement.order.empty();
      if (!is_hierarchical(algorithm) && !is_ordered) continue;
      for (Request& request : variants(placement, GetParam(), ++salt)) {
        for (const uint32_t root : roots) {
          request.root = root;
          prove(algorithm, placement, request, kSlots[(salt + root) % kSlots.size()]);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(proved_, 100u);
  RecordProperty("proved", std::to_string(proved_));
}

INSTANTIATE_TEST_SUITE_P(Collectives, PlacementsVerifyTest,
                         ::testing::Values(Collective::kAllReduce, Collective::kReduce,
                                           Collective::kBroadcast, Collective::kAllGather,
                                           Collective::kReduceScatter, Collective::kAllToAll,
                                           Collective::kBarrier),
                         [](const auto& tested) { return std::string(collective_name(tested.param)); });

}  // namespace
}  // namespace tutti::test
