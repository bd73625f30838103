#include "tools/equal_plans.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "algorithms/choice.h"

namespace tutti::tool {
namespace {

/// What a rank does. Blocks that do not fit into one round of the slots are cut by the slots that the plan
/// needs.
struct Work {
  uint32_t chunks_per_block;
  uint32_t slots_needed;
  std::vector<Lane> lanes;

  friend bool operator==(const Work&, const Work&) = default;
};

std::vector<Work> work_of(const Algorithm& algorithm, const Request& request, const Facts& facts) {
  constexpr uint64_t kOneRound = 65536;
  std::vector<Work> work;
  for (uint32_t rank = 0; rank < request.rank_count; ++rank) {
    Plan plan = algorithm.make(request, facts, rank);
    const uint32_t slots_needed = request.block_bytes <= kOneRound ? 0 : plan.slots_needed;
    work.push_back({plan.chunks_per_block, slots_needed, std::move(plan.lanes)});
  }
  return work;
}

}  // namespace

std::map<std::string, std::string> equal_algorithms(const std::vector<std::string>& names,
                                                    const Request& request, const Facts& facts) {
  std::map<std::string, std::string> first_of;
  std::vector<std::pair<std::string, std::vector<Work>>> known;
  for (const std::string& name : names) {
    const Algorithm* algorithm = find_algorithm(request.collective, name);
    if (request.rank_count > 2 || algorithm == nullptr || !algorithm->supports(request, facts)) {
      first_of[name] = name;
      continue;
    }
    std::vector<Work> work = work_of(*algorithm, request, facts);
    const auto equal = std::ranges::find(known, work, &decltype(known)::value_type::second);
    first_of[name] = equal == known.end() ? name : equal->first;
    if (equal == known.end()) known.emplace_back(name, std::move(work));
  }
  return first_of;
}

}  // namespace tutti::tool
