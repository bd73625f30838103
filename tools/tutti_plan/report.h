// Report: the text that tutti-plan prints about a set of plans. All lines are comments of the plan text form,
// so the whole output can be read back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "core/result.h"
#include "plan/plan.h"
#include "plan/price.h"
#include "plan/verify.h"

namespace tutti::tool {

struct ReportOptions {
  uint64_t block_bytes = 0;
  VerifyOptions verify = {};
  Costs costs = {};
};

struct Report {
  bool is_right = false;
  std::string text;
};

/// Proves and prices the plans.
Report report_plans(std::span<const Plan> plans, const ReportOptions& options);

/// The predicted times of all algorithms that serve the request, the fastest first, one line each. Algorithms
/// with only a lower bound come last. Errors: kInvalidArgument (price.h).
Result<std::string> price_algorithms(const Request& request, const Facts& facts, const Costs& costs);

/// The host of each of `rank_count` ranks, numbered as in Facts::host_of. "2" puts the ranks on two hosts in
/// blocks of nearly equal size; "0,0,1,1" names each rank's host. nullopt for any other text.
std::optional<std::vector<uint32_t>> parse_hosts(const std::string& text, uint32_t rank_count);

/// The algorithms of every collective, one line each.
std::string list_algorithms();

}  // namespace tutti::tool
