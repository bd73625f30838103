// Report: what tutti-plan says about a set of plans. All lines are comments of the plan text form, so that
// the whole output can be read back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

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

/// "4096", "64K", "1.5M", "2G" (powers of 1024); nullopt for anything else, also beyond 2^63.
std::optional<uint64_t> parse_bytes(const std::string& text);

/// The algorithms of every collective, one line each.
std::string list_algorithms();

}  // namespace tutti::tool
