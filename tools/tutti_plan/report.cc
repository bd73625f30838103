#include "tools/tutti_plan/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "algorithms/algorithm.h"

namespace tutti::tool {
namespace {

struct Counts {
  size_t lanes = 0;
  size_t steps = 0;
  size_t most_steps = 0;  ///< the largest of any rank
};

Counts count(std::span<const Plan> plans) {
  Counts counts;
  for (const Plan& plan : plans) {
    size_t steps = 0;
    for (const Lane& lane : plan.lanes) steps += lane.steps.size();
    counts.lanes += plan.lanes.size();
    counts.steps += steps;
    counts.most_steps = std::max(counts.most_steps, steps);
  }
  return counts;
}

bool writes_directly(std::span<const Plan> plans) {
  for (const Plan& plan : plans) {
    for (const Lane& lane : plan.lanes) {
      for (const Step& step : lane.steps) {
        if (std::any_of(step.sinks.begin(), step.sinks.end(),
                        [](const End& end) { return end.direct_write_ok; }))
          return true;
      }
    }
  }
  return false;
}

std::string proof_text(std::span<const Plan> plans, const VerifyOptions& options) {
  return format("verified: right result, no deadlock with the stated slots, no race (out of place%s%s%s%s)",
                options.in_place ? ", in place" : "", options.by_reference ? ", by reference" : "",
                options.by_reference && writes_directly(plans) ? ", with direct writes" : "",
                options.variable_counts ? ", any counts" : "");
}

}  // namespace

Report report_plans(std::span<const Plan> plans, const ReportOptions& options) {
  const Status status = verify_plans(plans, options.verify);
  if (!status.is_ok()) return {false, "# REFUSED: " + std::string(status.text()) + "\n"};
  Report report{true, "# " + proof_text(plans, options.verify) + "\n"};
  const Counts counts = count(plans);
  report.text += format("# %zu ranks, %zu lanes, %zu steps (at most %zu a rank)\n", plans.size(),
                        counts.lanes, counts.steps, counts.most_steps);
  const auto price = price_plans(plans, options.block_bytes, options.costs);
  if (!price) return {false, report.text + "# no price: " + std::string(price.status().text()) + "\n"};
  report.text += format("# %llu bytes over links, %llu bytes read and written in memory\n",
                        static_cast<unsigned long long>(price->link_bytes),
                        static_cast<unsigned long long>(price->memory_bytes));
  if (price->network_bytes > 0) {
    report.text += format("# %llu of these bytes between hosts\n",
                          static_cast<unsigned long long>(price->network_bytes));
  }
  report.text +=
      format("# predicted time %.2f us on %u cores%s, %u steps on the longest chain\n", price->microseconds,
             options.costs.cores, options.costs.host_of.empty() ? "" : " a host", price->critical_steps);
  return report;
}

Result<std::string> price_algorithms(const Request& request, const Facts& facts, const Costs& costs) {
  std::vector<const Algorithm*> candidates;
  std::vector<PlanMaker> makers;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != request.collective || !algorithm.supports(request, facts)) continue;
    candidates.push_back(&algorithm);
    const auto plan_of = [&](uint32_t rank) { return algorithm.make(request, facts, rank); };
    makers.push_back({.rank_count = request.rank_count, .plan_of = plan_of});
  }
  const auto prices = price_candidates(makers, request.block_bytes, costs);
  TUTTI_TRY(prices.status());
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(
      order, {}, [&](size_t i) { return std::pair((*prices)[i].is_lower_bound, (*prices)[i].microseconds); });
  std::string text;
  for (const size_t i : order) {
    const Price& price = (*prices)[i];
    text += format("%-28s %s %12.2f us\n", std::string(candidates[i]->name).c_str(),
                   price.is_lower_bound ? "at least" : "        ", price.microseconds);
  }
  return text;
}

std::optional<std::vector<uint32_t>> parse_hosts(const std::string& text, uint32_t rank_count) {
  std::vector<uint64_t> numbers;
  const char* end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc()) return std::nullopt;
    at = next;
    if (at == end) break;
    if (*at != ',') return std::nullopt;
  }
  if (numbers.size() == 1) {
    const uint64_t hosts = numbers[0];
    if (hosts == 0 || hosts > rank_count) return std::nullopt;
    numbers.clear();
    for (uint64_t rank = 0; rank < rank_count; ++rank) numbers.push_back(rank * hosts / rank_count);
  }
  if (numbers.size() != rank_count) return std::nullopt;
  return number_hosts(numbers);
}

std::string list_algorithms() {
  std::string out;
  for (const Algorithm& algorithm : algorithms()) {
    out += format("%-15s %s%s\n", std::string(collective_name(algorithm.collective)).c_str(),
                  std::string(algorithm.name).c_str(),
                  algorithm.uniform_blocks ? " (blocks of equal size)" : "");
  }
  return out;
}

}  // namespace tutti::tool
