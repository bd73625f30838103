// Small plans written by hand, one for each thing that a plan can do: what the tests of src/plan prove, break
// and price. They do not use algorithms/, so that a mistake there cannot hide one here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace tutti::test {

End input(uint32_t first, uint32_t count = 1);
End output(uint32_t first, uint32_t count = 1);
End scratch(uint32_t first, uint32_t count = 1);
End link(uint32_t peer, uint8_t channel = 0);
End published(uint32_t peer);
End publish();
End collect();
/// What goes into the collect of `collector`.
End contribution(uint32_t collector);
/// The same end, allowed to travel by reference.
End ref(End end);

Step step(std::vector<End> sources, std::vector<End> sinks, uint32_t first_chunk, uint32_t chunk_count = 1);
Step finish(std::vector<End> sources, std::vector<End> sinks, uint32_t first_chunk, uint32_t chunk_count = 1);

using PlanSet = std::vector<Plan>;

/// Plans of `rank_count` ranks with one empty lane each.
PlanSet empty_plans(Collective collective, uint32_t rank_count, const std::string& algorithm);

PlanSet ring_all_reduce(uint32_t rank_count);        // kAny
PlanSet one_shot_all_reduce(uint32_t rank_count);    // publish; 2 to 8 ranks, kCanonical
PlanSet collecting_all_reduce(uint32_t rank_count);  // collect and publish, kAny
PlanSet doubling_all_reduce(uint32_t rank_count);    // a power of two, kCanonical
PlanSet two_lane_all_gather(uint32_t rank_count);    // ring, half of each block in either direction
PlanSet pairwise_all_to_all(uint32_t rank_count);
PlanSet chain_broadcast(uint32_t rank_count, uint32_t root, uint32_t chunks);
PlanSet star_reduce(uint32_t rank_count, uint32_t root);  // 2 to 8 ranks, kCanonical
PlanSet star_scatter(uint32_t rank_count, uint32_t root);
PlanSet star_gather(uint32_t rank_count, uint32_t root);
PlanSet direct_reduce_scatter(uint32_t rank_count);  // 2 to 8 ranks, kCanonical
PlanSet dissemination_barrier(uint32_t rank_count);
/// Bruck's all-gather: blocks gather in scratch, k of them a message.
PlanSet bruck_all_gather(uint32_t rank_count);

struct NamedPlans {
  std::string name;
  PlanSet plans;
  bool in_place = true;  ///< whether they are right in place
};
/// All of the above, for some rank counts and roots.
std::vector<NamedPlans> all_samples();

}  // namespace tutti::test
