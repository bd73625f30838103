// make_plans: the plans of all ranks, for tests.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "core/types.h"

namespace tutti {

inline std::vector<Plan> make_plans(const Algorithm& algorithm, const Request& request, const Facts& facts) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < request.rank_count; ++rank)
    plans.push_back(algorithm.make(request, facts, rank));
  return plans;
}

/// "all_reduce ring, 5 ranks, root 0", for failures.
inline std::string describe(const Algorithm& algorithm, const Request& request) {
  return std::string(collective_name(algorithm.collective)) + " " + std::string(algorithm.name) + ", " +
         std::to_string(request.rank_count) + " ranks, root " + std::to_string(request.root) +
         (request.in_place ? ", in place" : "") + (request.reproducible ? ", reproducible" : "") +
         (request.variable_counts ? ", variable counts" : "");
}

inline bool has_variable_form(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
         collective == Collective::kAllToAll;
}

}  // namespace tutti
