// Tests of choices by price between devices: what a communicator takes, beside what tutti-plan explain says
// of the same machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "algorithms/priced_choice.h"
#include "comm/job_topology.h"
#include "device/device_rank.h"
#include "plan/packets.h"
#include "tools/machine.h"
#include "topology/describe.h"
#include "topology/file.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using topology::Graph;
using topology::NodeKind;

constexpr const char* kSwitch = "8 gpus, nvswitch 371 GB/s";
constexpr const char* kPcie = "4 gpus, pcie 31.5 GB/s";
constexpr uint64_t kMiB = uint64_t{1} << 20;

/// Each GPU with the address of its number.
Graph with_addresses(const Graph& graph) {
  topology::GraphBuilder builder(graph);
  uint32_t number = 0;
  for (const uint32_t gpu : graph.of_kind(NodeKind::kGpu))
    builder.node(gpu).bus_id = format("0000:%02x:00.0", ++number);
  return std::move(builder).finish();
}

/// Ranks on the GPUs of a machine, rank r on the GPU `gpus[r]`.
class Devices {
 public:
  explicit Devices(const std::string& machine, const std::vector<uint32_t>& gpus = {},
                   bool has_multicast = false, const char* why_no_prices = nullptr)
      : has_multicast_(has_multicast) {
    Graph graph = with_addresses(topology::parse_topology(machine)->graph);
    const auto count = static_cast<uint32_t>(graph.of_kind(NodeKind::kGpu).size());
    for (uint32_t gpu = 0; gpus.empty() && gpu < count; ++gpu) addresses_.push_back(address_of(gpu));
    for (const uint32_t gpu : gpus) addresses_.push_back(address_of(gpu));
    topology_ = *JobTopology::of_devices(std::move(graph), "described", addresses_, why_no_prices);
  }

  uint32_t ranks() const { return static_cast<uint32_t>(addresses_.size()); }
  JobTopology& topology() { return *topology_; }
  /// As DeviceExecutor's.
  Facts facts() const {
    const DeviceShape shape = DeviceShape::of(ranks());
    return {.can_publish = false,
            .can_multicast = has_multicast_,
            .levels = topology_->levels(),
            .order = topology_->order(),
            .cores = ranks(),
            .slots = shape.slots / 2,
            .slot_bytes = shape.slot_bytes};
  }
  Request request(Collective collective, uint64_t bytes) const {
    return {.collective = collective,
            .rank_count = ranks(),
            .block_bytes = block_bytes_of(collective, ranks(), bytes)};
  }

  /// As Communicator::choose.
  Way choose(const Request& request, const ChoiceTable& table = ChoiceTable::built_in()) {
    const uint64_t most = packet_bytes_max(request, DeviceShape::of(ranks()).short_bytes);
    const TableChoice by_table = choose_by_table(table, request, facts(), most);
    if (!by_table.is_estimate || !topology_->has_prices(true)) return by_table.way;
    return topology_->choose(request, facts(), by_table.way, most)->way;
  }
  Way choose(Collective collective, uint64_t bytes) { return choose(request(collective, bytes)); }
  /// The prices behind it.
  PricedRow row(const Request& request) {
    const uint64_t most = packet_bytes_max(request, DeviceShape::of(ranks()).short_bytes);
    const Way by_table = choose_by_table(ChoiceTable::built_in(), request, facts(), most).way;
    return *topology_->choose(request, facts(), by_table, most);
  }

 private:
  static std::string address_of(uint32_t gpu) { return format("0000:%02x:00.0", gpu + 1); }

  bool has_multicast_;
  std::vector<std::string> addresses_;
  std::shared_ptr<JobTopology> topology_;
};

std::string chosen(Devices& devices, Collective collective, uint64_t bytes) {
  return name_of(devices.choose(collective, bytes));
}

/// All but send_recv.
std::vector<Collective> collectives() {
  std::vector<Collective> all;
  for (int c = 0; c < static_cast<int>(Collective::kSendRecv); ++c) all.push_back(static_cast<Collective>(c));
  return all;
}

TEST(PricedDevicesTest, ShortCallsTravelAsPacketsAndLongOnesOverLinks) {
  Devices devices(kSwitch);
  EXPECT_EQ(chosen(devices, Collective::kAllReduce, 8), "direct_one_shot by packets");
  EXPECT_EQ(chosen(devices, Collective::kAllReduce, 512 << 10), "direct_two_shot by packets");
  EXPECT_EQ(chosen(devices, Collective::kAllReduce, 256 * kMiB), "ring");
  EXPECT_EQ(chosen(devices, Collective::kAllGather, 1024), "direct by packets");
  EXPECT_EQ(chosen(devices, Collective::kAllGather, 256 * kMiB), "ring");
}

// Goal: the links decide. Method: one size on fast links and on PCI Express, which is the bottleneck of
// algorithms that send the same bytes to several ranks.
TEST(PricedDevicesTest, SlowLinksGetAnotherAlgorithmThanFastOnes) {
  Devices fast("4 gpus, nvswitch 371 GB/s");
  Devices slow(kPcie);
  for (const uint64_t bytes : {256 * kMiB / 1024, kMiB}) {
    EXPECT_TRUE(fast.choose(Collective::kAllReduce, bytes).by_packets) << bytes;
    EXPECT_FALSE(slow.choose(Collective::kAllReduce, bytes).by_packets) << bytes;
  }
  EXPECT_TRUE(slow.choose(Collective::kAllReduce, 8).by_packets);
}

// Goal: what does not fit the mailboxes is never sent as packets, whatever is predicted for the class of
// sizes. Method: every collective, at the last size that fits and one byte more, full packets and half ones.
TEST(PricedDevicesTest, PacketsCarryWhatFitsTheMailboxes) {
  for (const char* machine : {"2 gpus, nvswitch 371 GB/s", "3 gpus, nvswitch 371 GB/s", kSwitch}) {
    Devices devices(machine);
    uint32_t by_packets = 0;
    for (const Collective collective : collectives()) {
      for (const DataType type : {DataType::kFloat32, DataType::kFloat64}) {
        for (uint64_t bytes = 64 << 10; bytes <= 8 * kMiB; bytes += bytes / 2 + 1) {
          Request request = devices.request(collective, bytes);
          request.type = type;
          const Way way = devices.choose(request);
          if (!way.by_packets) continue;
          ++by_packets;
          EXPECT_LE(most_bytes_to_a_peer(*way.algorithm, request, devices.facts()), packet_bytes_max(request))
              << collective_name(collective) << " " << bytes;
        }
      }
    }
    EXPECT_GT(by_packets, 10u) << machine;
  }
}

// Goal: ranks that call with other types first agree. Packets hold fewer bytes of types of 8 bytes, but one
// row served all types: that of the type that came first.
TEST(PricedDevicesTest, RowsDoNotDependOnWhichTypeCameFirst) {
  Devices narrow_first(kSwitch);
  Devices wide_first(kSwitch);
  uint32_t differences = 0;
  for (uint64_t bytes = 64; bytes <= 512 << 10; bytes *= 2) {
    Request narrow = narrow_first.request(Collective::kAllReduce, bytes);
    Request wide = narrow;
    narrow.type = DataType::kFloat32;
    wide.type = DataType::kFloat64;
    const PricedRow first_narrow = narrow_first.row(narrow);
    const PricedRow then_wide = narrow_first.row(wide);
    const PricedRow first_wide = wide_first.row(wide);
    const PricedRow then_narrow = wide_first.row(narrow);
    EXPECT_EQ(name_of(first_narrow.way), name_of(then_narrow.way)) << bytes;
    EXPECT_EQ(name_of(first_wide.way), name_of(then_wide.way)) << bytes;
    EXPECT_EQ(first_narrow.price_us, then_narrow.price_us) << bytes;
    EXPECT_EQ(first_wide.price_us, then_wide.price_us) << bytes;
    differences += first_narrow.price_us == first_wide.price_us ? 0 : 1;
  }
  EXPECT_GT(differences, 3u);
}

TEST(PricedDevicesTest, NineRanksSendNoPackets) {
  Devices devices("9 gpus, nvswitch 371 GB/s");
  for (const Collective collective : collectives())
    EXPECT_FALSE(devices.choose(collective, 1024).by_packets) << collective_name(collective);
}

// Two rows of one class of sizes looked as if they contradicted each other.
TEST(PricedDevicesTest, PrintedRowsNameTheTypesThatTheyArePricedFor) {
  Devices devices(kSwitch);
  Request request = devices.request(Collective::kAllReduce, 4096);
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64}) {
    request.type = type;
    static_cast<void>(devices.row(request));
  }
  static_cast<void>(devices.row(devices.request(Collective::kBroadcast, 4096)));
  const std::string rows = devices.topology().print_choices();
  EXPECT_THAT(rows, HasSubstr(" us for float32 sum"));
  EXPECT_THAT(rows, HasSubstr(" us for float64 sum"));
  const size_t broadcast = rows.find("broadcast ");
  ASSERT_NE(broadcast, std::string::npos) << rows;
  EXPECT_THAT(rows.substr(broadcast, rows.find('\n', broadcast) - broadcast), Not(HasSubstr(" for ")));
}

// Each row takes up to a second. Types differ only in the data of a packet.
TEST(PricedDevicesTest, TypesShareARowWhereNoWayHasPackets) {
  Devices devices("9 gpus, nvswitch 371 GB/s");
  Request narrow = devices.request(Collective::kAllReduce, 4096);
  narrow.type = DataType::kFloat32;
  Request wide = narrow;
  wide.type = DataType::kFloat64;
  static_cast<void>(devices.row(narrow));
  const std::string rows = devices.topology().print_choices();
  static_cast<void>(devices.row(wide));
  EXPECT_EQ(devices.topology().print_choices(), rows);
}

// Goal: the switch's reductions are chosen where the switch is known, as the price says; where the graph does
// not have that switch, no price stands against the table.
TEST(PricedDevicesTest, MulticastHasAPriceWhereTheGraphHasTheSwitch) {
  Devices known(kSwitch, {}, true);
  EXPECT_EQ(chosen(known, Collective::kAllReduce, 256 * kMiB), "multicast");
  EXPECT_EQ(chosen(known, Collective::kAllReduce, 1024), "direct_one_shot by packets");
  EXPECT_EQ(chosen(known, Collective::kAllGather, 256 * kMiB), "ring");
  Request maximum = known.request(Collective::kAllReduce, 256 * kMiB);
  maximum.op = ReduceOp::kMax;
  EXPECT_EQ(name_of(known.choose(maximum)), "ring") << "the hardware's maximum loses NaN";
  Devices unknown("8 gpus, pcie 63 GB/s", {}, true);
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast})
    EXPECT_EQ(chosen(unknown, collective, 256 * kMiB), "multicast") << collective_name(collective);
  const Request request = unknown.request(Collective::kAllReduce, 256 * kMiB);
  const Way multicast{find_algorithm(Collective::kAllReduce, "multicast")};
  EXPECT_THAT(unknown.topology().choose(request, unknown.facts(), multicast)->no_price, HasSubstr("switch"));
}

TEST(PricedDevicesTest, RowsOfTheUserWin) {
  const auto table = ChoiceTable::parse("all_reduce * * any ring\n");
  ASSERT_TRUE(table) << table.status().text();
  Devices devices(kSwitch);
  EXPECT_EQ(name_of(devices.choose(devices.request(Collective::kAllReduce, 8), *table)), "ring");
}

TEST(PricedDevicesTest, WithoutPricesTheTableDecides) {
  Devices devices(kSwitch, {}, false, "TUTTI_PRICES is 0");
  EXPECT_FALSE(devices.topology().has_prices(true));
  EXPECT_THAT(devices.topology().about(), HasSubstr("TUTTI_PRICES is 0; rings follow the links"));
  EXPECT_EQ(chosen(devices, Collective::kAllReduce, 1536 << 10), "ring");
  Devices priced(kSwitch);
  EXPECT_TRUE(priced.topology().has_prices(true));
  EXPECT_FALSE(priced.topology().has_prices(false)) << "calls through host memory have other prices";
  EXPECT_NE(chosen(priced, Collective::kAllReduce, 1536 << 10), "ring");
}

// Goal: rows have the form of the choice table, so that a user can keep them, packets or not. Method: sizes
// of classes that packets carry whole, in part and not at all; parse what is printed, and ask it.
TEST(PricedDevicesTest, RowsAreRowsOfATable) {
  for (const char* machine : {"2 gpus, nvswitch 371 GB/s", kSwitch}) {
    Devices devices(machine);
    std::vector<Request> requests;
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
      for (const uint64_t bytes : {uint64_t{8}, kMiB / 2, kMiB / 2 + 4096, kMiB, 4 * kMiB})
        requests.push_back(devices.request(collective, bytes));
    }
    std::vector<Way> ways;
    for (const Request& request : requests) ways.push_back(devices.choose(request));
    const std::string text = devices.topology().print_choices();
    EXPECT_THAT(text, HasSubstr(" short "));
    const auto table = ChoiceTable::parse(text);
    ASSERT_TRUE(table) << table.status().text() << text;
    for (size_t i = 0; i < requests.size(); ++i) {
      const TableChoice again =
          choose_by_table(*table, requests[i], devices.facts(), packet_bytes_max(requests[i]));
      EXPECT_EQ(name_of(again.way), name_of(ways[i])) << requests[i].block_bytes << "\n" << text;
    }
  }
}

// Goal: all ranks have the same digest, and another graph has another one.
TEST(PricedDevicesTest, TheDigestIsThatOfGraphAndPlaces) {
  const uint64_t digest = Devices(kSwitch).topology().digest();
  EXPECT_EQ(Devices(kSwitch).topology().digest(), digest);
  EXPECT_NE(Devices("8 gpus, nvswitch 240 GB/s").topology().digest(), digest);
  EXPECT_NE(Devices(kSwitch, {0, 1, 2, 3}).topology().digest(), digest);
  EXPECT_NE(Devices(kSwitch, {3, 2, 1, 0}).topology().digest(),
            Devices(kSwitch, {0, 1, 2, 3}).topology().digest());
}

// Goal: ranks use the links of their own devices. Method: ranks on some devices of a machine choose as ranks
// of a machine that has no others; in any order.
TEST(PricedDevicesTest, RanksHaveTheirOwnDevicesLinks) {
  Devices whole("4 gpus, nvswitch 371 GB/s");
  Devices part(kSwitch, {1, 3, 5, 7});
  Devices mixed(kSwitch, {5, 1, 7, 3});
  for (const Collective collective : collectives()) {
    for (const uint64_t bytes : {uint64_t{1024}, kMiB, 256 * kMiB}) {
      const std::string way = chosen(whole, collective, bytes);
      EXPECT_EQ(chosen(part, collective, bytes), way) << collective_name(collective) << " " << bytes;
      EXPECT_EQ(chosen(mixed, collective, bytes), way) << collective_name(collective) << " " << bytes;
    }
  }
}

// Goal: the library takes what tutti-plan explain says, and nothing is predicted to be much faster. Method:
// machines with a switch, links between all devices, and none; every collective; 8 bytes to 256 MiB.
TEST(PricedDevicesTest, TheLibraryTakesWhatExplainSays) {
  for (const char* name : {kSwitch, "8 gpus, xgmi 448 GB/s", kPcie, "2 gpus, nvswitch 371 GB/s"}) {
    Devices devices(name);
    auto machine = tool::Machine::load("", name);
    ASSERT_TRUE(machine) << machine.status().text();
    for (const Collective collective : collectives()) {
      for (uint64_t bytes = 8; bytes <= 256 * kMiB; bytes *= 8) {
        const Request request = devices.request(collective, bytes);
        EXPECT_EQ(chosen(devices, collective, bytes), name_of(tool::choice_of_library(*machine, request).way))
            << name << " " << collective_name(collective) << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace tutti
