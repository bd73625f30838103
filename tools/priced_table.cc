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

/// The algorithm for a class: that of the class before, if it is nearly as fast.
const Algorithm* best_of(std::span<const Candidate> candidates, const Algorithm* before) {
  const Candidate& best = candidates.front();
  for (const Candidate& candidate : candidates) {
    if (candidate.algorithm == before && !candidate.simulation.is_lower_bound &&
        candidate.simulation.microseconds < best.simulation.microseconds * kWorthARow)
      return before;
  }
  return best.algorithm;
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
    const auto candidates = predict(machine, request);
    if (!candidates) return candidates.status();
    const Algorithm* best = best_of(*candidates, rows.empty() ? nullptr : rows.back().algorithm);
    if (proved.insert(best).second) TUTTI_TRY(prove(machine, request, *best));
    if (rows.empty() || rows.back().algorithm != best) rows.push_back({best, 0});
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
