#include "tools/priced_table.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/choice.h"
#include "algorithms/choice_text.h"
#include "plan/verify.h"

namespace tutti::tool {
namespace {

constexpr uint64_t kLeastBytes = 256;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr uint64_t kFactor = 4;
/// Of one class to the next; the model is not better than this.
constexpr double kWorthARow = 1.03;
constexpr uint32_t kProvedRanks = 64;

constexpr Collective kCollectives[] = {
    Collective::kAllReduce, Collective::kReduce,        Collective::kBroadcast,
    Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
    Collective::kGather,    Collective::kScatter,       Collective::kBarrier};

struct Row {
  const Algorithm* algorithm = nullptr;
  uint64_t bytes_max = 0;
};

/// The fastest algorithm, and those that are nearly as fast.
std::vector<const Algorithm*> rivals_of(std::span<const Candidate> candidates) {
  const double most_us = candidates.front().simulation.microseconds * kWorthARow;
  std::vector<const Algorithm*> rivals;
  for (const Candidate& candidate : candidates) {
    if (rivals.empty() ||
        (!candidate.simulation.is_lower_bound && candidate.simulation.microseconds < most_us))
      rivals.push_back(candidate.way.algorithm);
  }
  return rivals;
}

/// The algorithm for the class of sizes around the request's: of those that are fast there, one that is fast
/// at the end of the class too; the one of the class before if it is.
Result<const Algorithm*> best_for(Machine& machine, const Request& request, const Algorithm* before) {
  const auto candidates = predict(machine, request);
  TUTTI_TRY(candidates.status());
  std::vector<const Algorithm*> rivals = rivals_of(*candidates);
  if (rivals.size() > 1) {
    Request last = request;
    last.block_bytes *= 2;
    PredictOptions options;
    for (const Algorithm* rival : rivals) options.algorithms.emplace_back(rival->name);
    const auto at_the_end = predict(machine, last, options);
    TUTTI_TRY(at_the_end.status());
    rivals = rivals_of(*at_the_end);
  }
  return std::ranges::find(rivals, before) != rivals.end() ? before : rivals.front();
}

Status prove(Machine& machine, const Request& request, const Algorithm& algorithm) {
  if (request.rank_count > kProvedRanks) return {};
  std::vector<Plan> plans;
  const Facts facts = machine.facts(request.rank_count);
  for (uint32_t rank = 0; rank < request.rank_count; ++rank)
    plans.push_back(algorithm.make(request, facts, rank));
  return verify_plans(plans, {.in_place = request.in_place});
}

Result<std::vector<Row>> rows_of(Machine& machine, Collective collective, uint32_t ranks) {
  std::vector<Row> rows;
  std::set<const Algorithm*> proved;
  const uint64_t most = collective == Collective::kBarrier ? kLeastBytes : kMostBytes;
  for (uint64_t bytes = kLeastBytes; bytes <= most; bytes *= kFactor) {
    const Request request{.collective = collective,
                          .rank_count = ranks,
                          .block_bytes = block_bytes_of(collective, ranks, bytes)};
    const auto best = best_for(machine, request, rows.empty() ? nullptr : rows.back().algorithm);
    TUTTI_TRY(best.status());
    if (proved.insert(*best).second) TUTTI_TRY(prove(machine, request, **best));
    if (rows.empty() || rows.back().algorithm != *best) rows.push_back({*best, 0});
    rows.back().bytes_max = bytes == most ? UINT64_MAX : bytes * 2;
  }
  return rows;
}

}  // namespace

Result<std::string> priced_table(Machine& machine, std::span<const uint32_t> rank_counts) {
  std::string out = "# Predicted to be the fastest on this machine (tutti-plan table).\n";
  for (const Collective collective : kCollectives) {
    for (const uint32_t ranks : rank_counts) {
      const auto rows = rows_of(machine, collective, ranks);
      if (!rows) return rows.status();
      for (const Row& row : *rows) {
        out += print_row({.collective = collective,
                          .ranks_min = ranks,
                          .ranks_max = ranks,
                          .bytes_max = row.bytes_max,
                          .algorithm = std::string(row.algorithm->name)}) +
               "\n";
      }
    }
  }
  return out + "\n# Other rank counts and modes: the built-in table.\n" + std::string(built_in_choice_text());
}

}  // namespace tutti::tool
