// Tests of the agreement on the topology: how texts travel, when ranks need a graph, and what communicators
// choose with one.
#include "comm/agree_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <barrier>
#include <filesystem>
#include <numeric>
#include <thread>

#include "core/cpu.h"
#include "tests/support/cluster.h"
#include "tests/support/scratch.h"
#include "topology/detect.h"
#include "topology/file.h"
#include "topology/kept.h"
#include "topology/text.h"

namespace tutti::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Ranks as threads that exchange blobs, as a bootstrap does. Counts the bytes that travel.
class Exchange {
 public:
  explicit Exchange(uint32_t ranks) : blobs_(ranks), meeting_(static_cast<ptrdiff_t>(ranks)) {}

  /// Changes a blob on its way.
  std::function<void(uint32_t rank, std::vector<std::byte>& blob)> change = [](uint32_t, auto&) {};

  TextExchange::Share share(uint32_t rank) {
    return [this, rank](std::span<const std::byte> blob) -> Result<Blobs> {
      blobs_[rank].assign(blob.begin(), blob.end());
      bytes_ += blob.size();
      change(rank, blobs_[rank]);
      if (rank == 0) ++rounds_;
      meeting_.arrive_and_wait();
      Blobs all = blobs_;
      meeting_.arrive_and_wait();
      return all;
    };
  }
  size_t bytes() const { return bytes_; }
  int rounds() const { return rounds_; }

 private:
  Blobs blobs_;
  std::barrier<> meeting_;
  std::atomic<size_t> bytes_{0};
  int rounds_ = 0;
};

std::vector<Result<TextExchange::Received>> exchange(Exchange& between,
                                                     const std::vector<std::string>& texts) {
  std::vector<Result<TextExchange::Received>> received(texts.size(), Status(Code::kTimeout, "not run"));
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < texts.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      received[rank] =
          TextExchange::run(between.share(rank), rank, texts[rank], "note " + std::to_string(rank));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return received;
}

TEST(TextExchangeTest, EqualTextsTravelOnce) {
  const std::string text(100'000, 'x');
  Exchange between(4);
  const auto received = exchange(between, {text, "", text, "other"});
  for (const auto& theirs : received) {
    ASSERT_TRUE(theirs) << theirs.status().text();
    EXPECT_THAT(theirs->text_of, ElementsAre(0u, TextExchange::kNone, 0u, 3u));
    EXPECT_EQ(theirs->texts.at(0), text);
    EXPECT_EQ(theirs->texts.at(3), "other");
    EXPECT_EQ(theirs->notes[2], "note 2");
  }
  EXPECT_LT(between.bytes(), text.size() + 2000);
}

// Goal: texts that exceed what one exchange may carry come in pieces.
TEST(TextExchangeTest, LongTextsComeInPieces) {
  std::string first(TextExchange::kTextBytesMax, 'a');
  for (size_t i = 0; i < first.size(); i += 7) first[i] = static_cast<char>('a' + i % 26);
  const std::string second(TextExchange::kTextBytesMax / 2 + 1, 'b');
  Exchange between(2);
  const auto received = exchange(between, {first, second});
  for (const auto& theirs : received) {
    ASSERT_TRUE(theirs) << theirs.status().text();
    EXPECT_TRUE(theirs->texts.at(0) == first);
    EXPECT_TRUE(theirs->texts.at(1) == second);
  }
  EXPECT_GT(between.rounds(), 3);
}

// Goal: the ranks learn why a text did not come. Its owner's note told of what the text would have told.
TEST(TextExchangeTest, ATextThatIsTooLongCountsAsNone) {
  Exchange between(2);
  testing::internal::CaptureStderr();
  const auto received = exchange(between, {std::string(TextExchange::kTextBytesMax + 1, 'a'), "short"});
  for (const auto& theirs : received) {
    ASSERT_TRUE(theirs) << theirs.status().text();
    EXPECT_THAT(theirs->text_of, ElementsAre(TextExchange::kNone, 1u));
    EXPECT_EQ(theirs->notes[0], "its text has 8388609 bytes, 8388608 are the most");
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("8388609 bytes"));
}

TEST(TextExchangeTest, ATextThatArrivesChangedIsAnError) {
  Exchange between(2);
  between.change = [](uint32_t rank, std::vector<std::byte>& blob) {
    if (rank == 1 && blob.size() == 5) blob[2] = std::byte{'!'};
  };
  const auto received = exchange(between, {"first", "other"});
  for (const auto& theirs : received) {
    EXPECT_EQ(theirs.status().code(), Code::kMismatch);
    EXPECT_THAT(std::string(theirs.status().text()), HasSubstr("rank 1"));
  }
}

/// Facts of ranks on these machines, and on as many hosts.
struct Job {
  std::vector<RankFacts> facts;
  std::vector<uint32_t> host_of;

  Job(const std::vector<uint64_t>& machines, const std::vector<uint32_t>& hosts) : host_of(hosts) {
    for (const uint64_t machine : machines) facts.emplace_back().machine = machine;
  }
  const char* why(const Config& config = {}, uint32_t cores = 16) const {
    const TopologyOptions options{
        .host_of = host_of, .host_count = *std::ranges::max_element(host_of) + 1, .cores = cores};
    return why_no_prices(facts, options, config, ChoiceTable::built_in());
  }
};

TEST(WhyNoPricesTest, OnlyRanksThatNeedAGraphGetOne) {
  EXPECT_NE(Job({1, 1}, {0, 0}).why(), nullptr) << "measured";
  EXPECT_EQ(Job({1, 2}, {0, 1}).why(), nullptr) << "two hosts";
  EXPECT_NE(Job({1, 1}, {0, 1}).why(), nullptr) << "emulated hosts";
  EXPECT_EQ(Job(std::vector<uint64_t>(9, 1), std::vector<uint32_t>(9, 0)).why(), nullptr) << "many ranks";
  EXPECT_NE(Job(std::vector<uint64_t>(9, 1), std::vector<uint32_t>(9, 0)).why({}, 8), nullptr) << "few cores";
  Job named({1, 1}, {0, 1});
  named.facts[0].names_topology = 1;
  EXPECT_EQ(named.why(), nullptr) << "the user has named a file";
  Config no_prices;
  no_prices.prices = false;
  EXPECT_NE(named.why(no_prices), nullptr);
  named.facts[1].device.is_device = 1;
  EXPECT_NE(named.why(), nullptr) << "a rank on a device beside one in host memory";
}

/// Ranks on devices with these addresses.
Job on_devices(const std::vector<const char*>& addresses, const std::vector<uint32_t>& hosts) {
  Job job(std::vector<uint64_t>(addresses.size(), 1), hosts);
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    DeviceIdentity& device = job.facts[rank].device;
    device.is_device = 1;
    std::string_view(addresses[rank]).copy(device.bus_id.data(), device.bus_id.size());
  }
  return job;
}

TEST(WhyNoPricesTest, RanksOnDevicesOfTheirOwnHavePrices) {
  EXPECT_EQ(on_devices({"0000:01:00.0", "0000:02:00.0"}, {0, 0}).why(), nullptr);
  EXPECT_EQ(on_devices({"0000:01:00.0", "0000:02:00.0"}, {0, 0}).why({}, 1), nullptr)
      << "cores do not matter";
  EXPECT_NE(on_devices({"0000:01:00.0", "0000:01:00.0"}, {0, 0}).why(), nullptr) << "a shared device";
  EXPECT_NE(on_devices({"0000:01:00.0", ""}, {0, 0}).why(), nullptr) << "a device without an address";
  EXPECT_NE(on_devices({"0000:01:00.0", "0000:02:00.0"}, {0, 1}).why(), nullptr) << "two hosts";
  Config no_prices;
  no_prices.prices = false;
  EXPECT_NE(on_devices({"0000:01:00.0", "0000:02:00.0"}, {0, 0}).why(no_prices), nullptr);
}

class TopologyTest : public testing::Test {
 protected:
  const Scratch scratch_;
  const std::string folder_ = scratch_.path().string();
};

/// Runs an all_reduce, checks the sum, and returns what explain says.
std::string explain_all_reduce(Rank& rank, size_t count) {
  std::vector<double> data(count);
  std::iota(data.begin(), data.end(), rank.rank());
  rank.expect_ok(
      tutti_all_reduce(data.data(), data.data(), count, TUTTI_FLOAT64, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
      "all_reduce");
  const int ranks = rank.count();
  bool right = true;
  for (size_t i = 0; i < count; ++i)
    right = right && data[i] == static_cast<double>(i) * ranks + ranks * (ranks - 1) / 2.0;
  rank.expect_true(right, "sum of " + std::to_string(count));
  char text[2048];
  rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof text), "explain");
  return text;
}

void expect_part(Rank& rank, const std::string& text, const std::string& part) {
  rank.expect_true(text.find(part) != std::string::npos, "'" + part + "' is not in: " + text);
}

// Goal: with a described job the price chooses, all ranks alike, and the results are right. Method: two
// emulated hosts whose ranks are dealt out in turns; sizes from one element to many rounds.
TEST_F(TopologyTest, APriceChoosesOnADescribedJob) {
  const std::string file = scratch_.write("job.topo", "2 hosts x 2 cores, nic 10 Gbit/s");
  const ClusterOptions options{.layout = {1, 1, 1, 1},
                               .hosts = {0, 1, 0, 1},
                               .environment = {{"TUTTI_TOPOLOGY_FILE", file}, {"TUTTI_CACHE_DIR", folder_}}};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          for (const size_t count : {1, 600, 50'000, 700'000}) {
                            const std::string text = explain_all_reduce(rank, count);
                            expect_part(rank, text, "by price");
                            expect_part(rank, text, "a graph of 2 hosts");
                          }
                        }),
            "");
}

// Goal: the price of a job whose file has measured costs of slices is made of them, and explain says so.
TEST_F(TopologyTest, MeasuredSlicesPriceADescribedJob) {
  const auto described = topology::parse_topology("2 hosts x 2 cores, nic 10 Gbit/s");
  ASSERT_TRUE(described);
  std::string slices = "turn 1 us\ncall 10 ns\n";
  for (size_t i = 0; i < topology::kSliceWorks; ++i)
    slices += "slice " + std::string(topology::work_name(static_cast<topology::SliceWork>(i))) + " 8 1 ms\n";
  const std::string file = scratch_.write("job.topo", topology::print_graph(described->graph) + slices);
  const ClusterOptions options{.layout = {1, 1, 1, 1},
                               .hosts = {0, 1, 0, 1},
                               .environment = {{"TUTTI_TOPOLOGY_FILE", file}, {"TUTTI_CACHE_DIR", folder_}}};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const std::string text = explain_all_reduce(rank, 600);
                          expect_part(rank, text, "costs of slices measured");
                          const size_t price = text.find("predicted ");
                          rank.expect_true(
                              price != std::string::npos && std::stod(text.substr(price + 10)) > 1000,
                              "a slice takes a millisecond: " + text);
                        }),
            "");
}

// Goal: rings and chains follow the hosts, whatever the graph. Method: force them.
TEST_F(TopologyTest, RingsThatFollowTheHostsGiveTheRightResult) {
  for (const char* algorithm : {"ring", "chain", "hierarchical"}) {
    const ClusterOptions options{
        .layout = {1, 2, 1, 1},
        .hosts = {0, 1, 0, 2},
        .environment = {{"TUTTI_ALGORITHM", algorithm}, {"TUTTI_CACHE_DIR", folder_}}};
    EXPECT_EQ(run_cluster(options,
                          [](Rank& rank) {
                            explain_all_reduce(rank, 4000);
                            std::vector<int> data(3000, rank.rank() == 1 ? 17 : 0);
                            rank.expect_ok(tutti_broadcast(data.data(), data.data(), data.size(), TUTTI_INT32,
                                                           1, rank.comm, TUTTI_BLOCKING),
                                           "broadcast");
                            rank.expect_true(data == std::vector<int>(3000, 17), "broadcast's result");
                          }),
              "")
        << algorithm;
  }
}

// Goal: a program names the algorithm of a communicator, and those that are split from it inherit it.
TEST_F(TopologyTest, TheConfigNamesAnAlgorithm) {
  ClusterOptions options{.layout = {1, 2}, .environment = {{"TUTTI_ALGORITHM", "recursive_doubling"}}};
  options.config.algorithm = "ring";
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    expect_part(rank, explain_all_reduce(rank, 4000), "algorithm ring, by config.algorithm");
                    tutti_comm_t* const whole = rank.comm;
                    rank.expect_ok(tutti_comm_split(whole, 0, 0, &rank.comm, nullptr), "split");
                    expect_part(rank, explain_all_reduce(rank, 4000), "algorithm ring, by config.algorithm");
                    rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                    rank.comm = whole;
                  }),
      "");
}

// On a machine of fewer cores than ranks the table decides.
TEST_F(TopologyTest, ManyRanksOfOneHostUseItsDetectedGraph) {
  const bool has_cores = core_count(usable_cpus(), cpu_quota()) >= 9;
  const std::string part = has_cores ? "a graph of 1 host" : "there are more ranks than cores";
  const ClusterOptions options{.layout = {9}, .environment = {{"TUTTI_CACHE_DIR", folder_}}};
  EXPECT_EQ(
      run_cluster(options, [&](Rank& rank) { expect_part(rank, explain_all_reduce(rank, 100'000), part); }),
      "");
  // Without hwloc, or with GPUs and no NVML, each process detects.
  const auto machine = topology::detect_this_machine("host");
  const bool is_kept = has_cores && machine && machine->is_complete;
  EXPECT_EQ(std::filesystem::is_empty(folder_), !is_kept) << "the graph is kept for the next process";
}

TEST_F(TopologyTest, WithoutPricesTheTableDecides) {
  const ClusterOptions options{.layout = {9},
                               .environment = {{"TUTTI_PRICES", "0"}, {"TUTTI_CACHE_DIR", folder_}}};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const std::string text = explain_all_reduce(rank, 100'000);
                          expect_part(rank, text, "by row");
                          expect_part(rank, text, "an estimate; TUTTI_PRICES is 0");
                        }),
            "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TopologyTest, AFileThatIsWrongLeavesTheTable) {
  const std::string file = scratch_.write("job.topo", "2 hosts x 2 elephants");
  const ClusterOptions options{.layout = {1, 1, 1},
                               .hosts = {0, 1, 1},
                               .environment = {{"TUTTI_TOPOLOGY_FILE", file}, {"TUTTI_CACHE_DIR", folder_}}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          expect_part(rank, explain_all_reduce(rank, 1000),
                                      "an estimate; no graph: rank 0 has");
                        }),
            "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("job.topo: line 1"));
}

class TunedTest : public TopologyTest {
 protected:
  /// Measured rows for this kind of machine, in a folder of this name.
  std::string tune(const std::string& name, const std::string& rows) const {
    const auto machine = topology::detect_this_machine("host");
    EXPECT_TRUE(machine);
    const std::string folder = folder_ + "/" + name;
    EXPECT_TRUE(topology::keep_text(
        topology::kept_path(folder, topology::fingerprint(machine->graph), "choice"), title_ + rows));
    return folder;
  }

  std::string title_ = topology::tuned_title();
};

TEST_F(TunedTest, RowsOfAnotherVersionAreLeftOut) {
  title_ = "# Measured by tutti-tune (tutti 0.0.9)\n";
  const std::string folder = tune("cache", "all_reduce 2..8 * any recursive_doubling\n");
  const ClusterOptions options{.layout = {1, 1}, .environment = {{"TUTTI_CACHE_DIR", folder}}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) { expect_part(rank, explain_all_reduce(rank, 1000), "(measured)"); }),
            "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("measured by tutti 0.0.9; call tutti-tune"));
}

TEST_F(TunedTest, MeasuredRowsOfThisMachineComeFirst) {
  const std::string folder = tune("cache", "all_reduce 2..8 * any recursive_doubling\n");
  const ClusterOptions options{.layout = {1, 1, 1}, .environment = {{"TUTTI_CACHE_DIR", folder}}};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const std::string text = explain_all_reduce(rank, 1000);
                          expect_part(rank, text, "algorithm recursive_doubling, by row 0");
                          expect_part(rank, text, "measured on this machine");
                        }),
            "");
}

// Goal: ranks whose machines have other tables, or none, use rank 0's.
TEST_F(TunedTest, Rank0sRowsServeAllRanks) {
  const std::string ours = tune("ours", "all_reduce 2..8 * any recursive_doubling\n");
  const std::string theirs = tune("theirs", "all_reduce 2..8 * any ring\n");
  const ClusterOptions options{
      .layout = {1, 1, 1}, .environment = {{"TUTTI_CACHE_DIR", ours}}, .create = false};
  EXPECT_EQ(run_cluster(
                options,
                [&](Rank& rank) {
                  const std::string none = folder_ + "/none";
                  const std::string folders[] = {ours, theirs, none};
                  // Rank 0's process has made the id, and so has read its environment.
                  setenv("TUTTI_CACHE_DIR", folders[rank.rank()].c_str(), 1);
                  const tutti_unique_id_t id = rank.id();
                  rank.expect_ok(tutti_comm_create(&rank.comm, 3, id, rank.rank(), nullptr), "create");
                  if (rank.comm == nullptr) return;
                  expect_part(rank, explain_all_reduce(rank, 1000), "algorithm recursive_doubling, by row 0");
                  rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                  rank.comm = nullptr;
                }),
            "");
}

TEST_F(TunedTest, RowsThatCannotBeReadAreLeftOut) {
  const std::string folder = tune("cache", "all_reduce 2..8 * any no_such_algorithm\n");
  const ClusterOptions options{.layout = {1, 1}, .environment = {{"TUTTI_CACHE_DIR", folder}}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) { expect_part(rank, explain_all_reduce(rank, 1000), "(measured)"); }),
            "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no algorithm 'no_such_algorithm'"));
}

}  // namespace
}  // namespace tutti::test
