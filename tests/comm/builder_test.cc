// CommunicatorBuilder: a set-up that fails in any phase leaves nothing, on this rank and on the others.
#include "comm/builder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "tests/support/cluster.h"
#include "tests/support/failing_allocations.h"

namespace tutti::test {
namespace {

/// Creates a communicator of all ranks under a fresh id, which the process of the last rank serves: the rank
/// that fails. So the others hear of a failure before that rank has joined, too.
class RankSetUp {
 public:
  RankSetUp(Rank& rank, Process& process) : rank_(rank), process_(process) {}

  bool make_id(bool network) {
    if (!rank_.meet()) return false;
    if (is_last()) {
      const auto id = process_.make_id(network);
      if (!rank_.expect_true(id.is_ok(), "make_id: " + std::string(id.status().text()))) return false;
      std::memcpy(rank_.shared_bytes(), &*id, sizeof(*id));
    }
    return rank_.meet();
  }
  bool is_last() const { return rank_.rank() + 1 == rank_.count(); }

  /// After so many allocations of the last rank one fails.
  Result<std::unique_ptr<Communicator>> create(const CommOptions& options,
                                               uint64_t allocations = UINT64_MAX) {
    const FailingAllocations shortage(allocations, is_last() ? 1 : 0);
    UniqueId id;
    std::memcpy(&id, rank_.shared_bytes(), sizeof(id));
    return Communicator::create(process_, id, static_cast<uint32_t>(rank_.count()),
                                static_cast<uint32_t>(rank_.rank()), options, nullptr);
  }
  /// Whether that is what a rank may get. A rank of another host may see the connection to the last rank
  /// closed before that rank has told why.
  bool expects(const Status& error) const {
    const bool names_rank =
        error.text().find("rank " + std::to_string(rank_.count() - 1)) != std::string::npos;
    return error.code() == Code::kOutOfMemory ||
           (!is_last() && error.code() == Code::kPeerLost && names_rank);
  }

 private:
  Rank& rank_;
  Process& process_;
};

/// What the process holds must be what it held before.
bool expect_nothing_left(Rank& rank, const Holdings& before, const std::string& when) {
  const Holdings after = settled_holdings(before);
  const auto is_left = [&](const char* what, int was, int is) {
    return !rank.expect_true(is <= was, when + " there are more " + what + ": " + std::to_string(was) +
                                            ", then " + std::to_string(is));
  };
  const bool are_left[] = {is_left("descriptors", before.descriptors, after.descriptors),
                           is_left("threads", before.threads, after.threads),
                           is_left("shared mappings", before.shared_mappings, after.shared_mappings)};
  return !are_left[0] && !are_left[1] && !are_left[2];
}

Process& process_of(Rank& rank) {
  const auto process = Process::instance();
  rank.expect_true(process.is_ok(), "process: " + std::string(process.status().text()));
  return **process;
}

/// The rank that counts what a process holds, while the other ranks of that process stand still.
bool counts(const Rank& rank, const ClusterOptions& options) {
  return rank.rank() == 0 || options.layout.size() > 1;
}

struct Place {
  const char* name;
  std::vector<int> layout;
  std::vector<int> hosts;
};
void PrintTo(const Place& place, std::ostream* out) {
  *out << place.name;
}

class BuilderTest : public testing::TestWithParam<Place> {
 protected:
  ClusterOptions options() const {
    return {.layout = GetParam().layout, .hosts = GetParam().hosts, .create = false, .seconds = 240};
  }
  bool has_network() const { return !GetParam().hosts.empty(); }
};

// Goal: every phase can fail and leaves nothing: files, segments, threads. Method: in each turn a later
// allocation of the last rank's set-up fails, until none does; then every phase has failed many times.
// Expectation: the last rank is out of memory; the other ranks get an error, from the set-up or, if their
// set-up had ended, from the communicator.
TEST_P(BuilderTest, AFailureInAnyPhaseLeavesNothing) {
  const ClusterOptions cluster = options();
  EXPECT_EQ(
      run_cluster(cluster,
                  [&](Rank& rank) {
                    RankSetUp setup(rank, process_of(rank));
                    const CommOptions options{.threads = 2, .setup_timeout_ms = 60'000};
                    // The caches of a process are warm after one set-up.
                    if (!setup.make_id(has_network())) return;
                    rank.expect_true(setup.create(options).is_ok(), "the first set-up");
                    if (!rank.meet()) return;
                    const Holdings before = counts(rank, cluster) ? holdings() : Holdings{};
                    for (uint64_t turn = 0; rank.value(0) == 0; ++turn) {
                      const std::string when = "turn " + std::to_string(turn);
                      rank.at(when);
                      if (!setup.make_id(has_network())) return;
                      {
                        const auto made = setup.create(options, turn);
                        if (setup.is_last() && !FailingAllocations::have_failed()) rank.add(0);
                        if (!rank.meet()) return;
                        // Another host hears of the failure a little later.
                        const double start = seconds_now();
                        while (made && rank.value(0) == 0 && (*made)->error() && seconds_now() - start < 10)
                          std::this_thread::yield();
                        const Status error = made ? (*made)->error() : made.status();
                        const bool is_right = rank.value(0) > 0 ? error.is_ok() : setup.expects(error);
                        rank.expect_true(is_right, when + ": " + std::string(error.text()));
                        if (!rank.meet()) return;
                      }
                      // A first failure ends the test: the rest would only repeat it.
                      if (counts(rank, cluster) && !expect_nothing_left(rank, before, when)) rank.add(0);
                      if (!rank.meet()) return;
                    }
                  }),
      "");
}

INSTANTIATE_TEST_SUITE_P(Places, BuilderTest,
                         testing::Values(Place{"Threads", {2}, {}}, Place{"Processes", {1, 1}, {}},
                                         Place{"Hosts", {1, 1}, {0, 1}}),
                         [](const auto& test) { return test.param.name; });

// A rank that failed in its set-up was found by the address of its segment. By then the segment of another
// communicator could lie there, and the failure put that communicator in error.
TEST(SegmentKeyTest, NoSegmentIsFoundByTheKeyOfAnEarlierOne) {
  const ClusterOptions cluster{.layout = {1}, .create = false};
  EXPECT_EQ(run_cluster(cluster,
                        [](Rank& rank) {
                          Process& process = process_of(rank);
                          const SegmentShape shape;
                          auto first = std::make_shared<Segment>(std::move(*map_plain(shape.bytes())), shape);
                          const uint64_t first_key = process.add_segment(first);
                          first.reset();
                          // The kernel usually maps it at the same address.
                          auto next = std::make_shared<Segment>(std::move(*map_plain(shape.bytes())), shape);
                          const uint64_t next_key = process.add_segment(next);
                          const std::array keys = {first_key, next_key};
                          const auto found = process.find_segments(keys);
                          rank.expect_true(found[0] == nullptr, "the first one is gone");
                          rank.expect_true(found[1] == next, "the next one is here");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
