// Every collective end to end: a pairwise-covering sample of collective x type x operator x root x in place x
// count x memory x ranks x layout x references x reproducible mode x threads a rank; the whole product with
// TUTTI_TEST_FULL=1.
#include <gtest/gtest.h>

#include <map>

#include "tests/conformance/trial.h"
#include "tests/support/pairwise.h"
#include "tests/support/scope.h"
#include "tests/support/values.h"
#include "transports/ring.h"

namespace tutti::test {
namespace {

constexpr uint64_t kSeed = 20240607;
constexpr uint64_t kSlotBytes = 4096;
constexpr uint64_t kSlots = 4;
constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};
constexpr int kCountClasses = 11;
constexpr int kMaxThreads = 3;

/// Around every boundary of the transport: the inline limit, a slot, all slots of a link, many
/// rounds.
uint64_t count_of(int count_class, tutti_type_t type) {
  const uint64_t element = tutti_type_bytes(type);
  const uint64_t slot = kSlotBytes / element;
  switch (count_class) {
    case 0: return 0;
    case 1: return 1;
    case 2: return 3;
    case 3: return kInlineBytes / element;
    case 4: return kInlineBytes / element + 1;
    case 5: return slot - 1;
    case 6: return slot;
    case 7: return slot + 1;
    case 8: return kSlots * slot;
    case 9: return kSlots * slot + 1;
    default: return 50 * slot + 1;
  }
}

/// The settings of one set of processes.
struct Setting {
  int ranks = 1;
  int layout = 0;
  bool references = false;
  bool reproducible = false;
  int threads_a_rank = 1;

  auto operator<=>(const Setting&) const = default;  // NOLINT(modernize-use-nullptr): the check is wrong

  ClusterOptions options() const {
    ClusterOptions result;
    result.layout = layout == 0 ? threads(ranks) : layout == 1 ? processes(ranks) : mixed_or_threads(ranks);
    result.environment = {{"TUTTI_SLOT_BYTES", std::to_string(kSlotBytes)},
                          {"TUTTI_SLOTS", std::to_string(kSlots)},
                          {"TUTTI_STRIPE_BYTES", "256"},
                          {"TUTTI_REFERENCE_BYTES", references ? "512" : "1000000000"}};
    result.config.threads = threads_a_rank;
    result.config.reproducible = reproducible ? 1 : 0;
    result.seconds = full_run() ? 3600 : 120;
    return result;
  }
  std::string name() const {
    return std::to_string(ranks) + " ranks, " + layout_name(options().layout) +
           (references ? ", references" : "") + (reproducible ? ", reproducible" : "") + ", " +
           std::to_string(threads_a_rank) + " threads";
  }
};

Trial trial_of(const std::vector<int>& row, uint64_t seed) {
  Trial trial = draw_trial(row, kRankCounts[row[7]], seed);
  trial.count = count_of(row[5], trial.type);
  trial.memory = static_cast<Memory>(row[6]);
  return trial;
}

/// collective, type, operator, root, in place, count, memory, ranks, layout, references, reproducible,
/// threads.
std::vector<int> factor_sizes() {
  return {kKindCount, TUTTI_TYPE_COUNT,
          kOpChoices, 3,
          2,          kCountClasses,
          3,          static_cast<int>(std::size(kRankCounts)),
          3,          2,
          2,          kMaxThreads};
}

/// The whole product of collective, type, operator, in place, count, ranks and layout, where they mean
/// something; root, memory, references, mode and threads take turns (they would multiply 200,000 trials by
/// 108).
std::vector<std::vector<int>> full_rows() {
  std::vector<std::vector<int>> rows;
  const std::vector<int> sizes = factor_sizes();
  std::vector<int> row(sizes.size(), 0);
  const std::vector<size_t> whole = {0, 1, 2, 4, 5, 7, 8};
  for (bool more = true; more;) {
    const bool reducing = kind_reduces(static_cast<Kind>(row[0]));
    const bool means = reducing ? op_defined(row[2], static_cast<tutti_type_t>(row[1])) : row[2] == 0;
    if (means) {
      const uint64_t turn = mix(kSeed, rows.size());
      rows.push_back(row);
      rows.back()[3] = static_cast<int>(turn % 3);
      rows.back()[6] = static_cast<int>(turn / 3 % 3);
      rows.back()[9] = static_cast<int>(turn / 9 % 2);
      rows.back()[10] = static_cast<int>(turn / 18 % 2);
      rows.back()[11] = static_cast<int>(turn / 36 % kMaxThreads);
    }
    more = false;
    for (const size_t factor : whole) {
      if (++row[factor] < sizes[factor]) {
        more = true;
        break;
      }
      row[factor] = 0;
    }
  }
  return rows;
}

std::map<Setting, std::vector<Trial>> plan_trials() {
  std::map<Setting, std::vector<Trial>> plan;
  const auto rows = full_run() ? full_rows() : pairwise_rows(factor_sizes(), kSeed);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Setting setting{kRankCounts[rows[i][7]], rows[i][8], rows[i][9] != 0, rows[i][10] != 0,
                          rows[i][11] + 1};
    plan[setting].push_back(trial_of(rows[i], kSeed + i));
  }
  return plan;
}

// Goal: every collective gives the right result and writes nothing else, whatever its arguments and memory.
// Method: ranks run the sample's trials of each setting one after the other on one communicator.
TEST(CollectivesTest, GiveTheRightResultOverAPairwiseCoveringSample) {
  RecordProperty("seed", std::to_string(kSeed));
  for (const auto& [setting, trials] : plan_trials()) {
    const std::string failures = run_cluster(setting.options(), [&trials = trials](Rank& rank) {
      for (const Trial& trial : trials) run_trial(rank, trial);
    });
    EXPECT_EQ(failures, "") << setting.name() << ", sample seed " << kSeed;
  }
}

}  // namespace
}  // namespace tutti::test
