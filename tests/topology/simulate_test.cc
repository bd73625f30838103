// Goal: the predicted time follows from the graph's links as the model says, and one host that stands for all
// gives the time of all.
#include "topology/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "tools/machine.h"
#include "topology/paths.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using tool::Machine;

Machine machine(const std::string& description) {
  auto found = Machine::load("", description);
  EXPECT_TRUE(found) << found.status().text();
  return std::move(*found);
}

Request request_of(Collective collective, uint32_t ranks, uint64_t bytes) {
  return {
      .collective = collective, .rank_count = ranks, .block_bytes = block_bytes_of(collective, ranks, bytes)};
}

Simulation run(Machine& at, const Request& request, std::string_view name, SimulateOptions options = {}) {
  const Algorithm* algorithm = find_algorithm(request.collective, name);
  const Facts facts = at.facts(request.rank_count);
  options.block_bytes = request.block_bytes;
  if (options.costs.call_us == RankCosts{}.call_us) options.costs = at.costs();
  const auto result =
      simulate(at.routes(),
               {.rank_count = request.rank_count,
                .plan_of = [&](uint32_t rank) { return algorithm->make(request, facts, rank); }},
               options);
  EXPECT_TRUE(result) << result.status().text();
  return result ? *result : Simulation{};
}

double path_us(const Machine& at, const char* from, const char* to) {
  const auto path = WidestPaths(at.graph(), at.graph().find(from)).to(at.graph().find(to));
  return path ? static_cast<double>(path->latency_ns) / 1000 : -1;
}

double all_reduce_us(Machine& at, std::string_view name, uint64_t bytes,
                     const SimulateOptions& options = {}) {
  return run(at, request_of(Collective::kAllReduce, at.rank_count(), bytes), name, options).microseconds;
}

/// Costs that a reader can add up: nothing but fixed steps.
RankCosts plain_costs() {
  return {.call_us = 10,
          .step_us = 1,
          .message_us = 2,
          .network_step_us = 4,
          .network_message_us = 30,
          .stripe_bytes_per_us = 1e9,
          .switch_us = 0,
          .slots = 16,
          .slices = {.least = 1 << 20, .most = 1 << 20}};
}

// Method: one broadcast of one slice from GPU 0 to GPU 1. Expectation: call, a step, the bytes at the link's
// speed, its latency, the message, and a step of the receiver.
TEST(SimulateTest, OneMessageCostsWhatTheModelSays) {
  Machine pair = machine("2 gpus, nvlink 100 GB/s");
  const Simulation result =
      run(pair, request_of(Collective::kBroadcast, 2, 100'000), "direct", {.costs = plain_costs()});
  EXPECT_NEAR(result.microseconds, 10 + 1 + 1.0 + 0.5 + 2 + 1, 0.01);
  EXPECT_EQ(result.network_bytes, 0u);
}

TEST(SimulateTest, AMessageBetweenHostsPassesCardsAndSwitches) {
  Machine pair = machine("2 hosts x 1 gpu, nic 10 GB/s, pcie 20 GB/s, latency 1 us");
  const Simulation result =
      run(pair, request_of(Collective::kBroadcast, 2, 100'000), "direct", {.costs = plain_costs()});
  // 10 us at 10 GB/s; PCI takes 250 ns a hop: GPU to switch to card, on both sides.
  EXPECT_NEAR(result.microseconds, 10 + (1 + 4) + 10 + (4 * 0.25 + 2 * 1) + 30 + (1 + 4), 0.01);
  EXPECT_EQ(result.network_bytes, 100'000u);
  RankCosts striped = plain_costs();
  striped.stripes_max = 8;
  const Simulation in_groups =
      run(pair, request_of(Collective::kBroadcast, 2, 100'000), "direct", {.costs = striped});
  EXPECT_EQ(in_groups.network_bytes, 100'000u) << "stripes are walked in groups";
}

// Method: one slice by recursive doubling, on hosts of one GPU at one switch, folded and not. Expectation:
// each phase adds the fixed cost of a message received and one sent, the bytes at the card's speed, and the
// way.
TEST(SimulateTest, EachPhaseOfRecursiveDoublingAddsOneMessage) {
  for (const uint32_t phases : {2u, 4u, 6u}) {
    Machine hosts =
        machine(format("%u hosts x 1 gpu, nic 10 GB/s, pcie 20 GB/s, latency 1 us", 1u << phases));
    const double way_us = 10 + (4 * 0.25 + 2 * 1) + 30;
    const double expected_us = 10 + (1 + 4) + way_us + (phases - 1) * ((1 + 2 * 4) + way_us) + (1 + 4);
    for (const bool fold : {true, false}) {
      EXPECT_NEAR(all_reduce_us(hosts, "recursive_doubling", 100'000, {.costs = plain_costs(), .fold = fold}),
                  expected_us, 0.01)
          << phases << " phases" << (fold ? ", folded" : "");
    }
  }
}

// Method: hosts at one switch share nothing. Expectation: the whole walk takes exactly what one host says.
TEST(SimulateTest, OneHostTellsTheExactTimeWhereHostsShareNothing) {
  Machine hosts = machine("16 hosts x 2 gpus, nvswitch 300 GB/s, nic 2 x 25 GB/s, one switch");
  for (const char* name : {"ring", "recursive_doubling", "recursive_halving_doubling", "hierarchical"}) {
    for (const uint64_t bytes : {uint64_t{4096}, uint64_t{1} << 24}) {
      const double whole_us = all_reduce_us(hosts, name, bytes, {.fold = false});
      EXPECT_NEAR(all_reduce_us(hosts, name, bytes) / whole_us, 1, 1e-9) << name << " " << bytes;
    }
  }
}

// Method: three GPUs send to one. Expectation: three messages pass the receiver's link one after the other.
TEST(SimulateTest, MessagesShareALink) {
  Machine four = machine("4 gpus, nvswitch 100 GB/s");
  const auto us = [&](uint64_t bytes) {
    return run(four, request_of(Collective::kGather, 4, bytes * 4), "direct", {.costs = plain_costs()})
        .microseconds;
  };
  // Steps of the receiver that an empty message waits for overlap with the bytes.
  EXPECT_NEAR(us(1'000'000) - us(0), 3 * 10.0, 2.5);
}

// Method: long calls by multicast on 8 GPUs. Expectation: a port carries a published byte once for all
// readers, and a reduced byte once for all that contributed to it; the rank's own is among them.
TEST(SimulateTest, MulticastPassesAPortOnceForAllRanks) {
  Machine eight = machine("8 gpus, nvswitch 100 GB/s");
  eight.set_multicast();
  const uint64_t bytes = 800'000'000;
  const auto us = [&](Collective collective) {
    return run(eight, request_of(collective, 8, bytes), "multicast", {.costs = plain_costs()}).microseconds;
  };
  const double port_us = 8'000;  // for all bytes
  EXPECT_NEAR(us(Collective::kAllReduce) / port_us, 9.0 / 8, 0.1);
  EXPECT_NEAR(us(Collective::kAllGather) / port_us, 1, 0.1);
  EXPECT_NEAR(us(Collective::kReduceScatter) / port_us, 1, 0.1);
  Machine hosts = machine("2 hosts x 8 gpus, nvswitch 100 GB/s, nic 10 GB/s");
  hosts.set_multicast();
  EXPECT_FALSE(hosts.facts(16).can_multicast) << "no switch joins hosts";
  EXPECT_FALSE(machine("8 gpus, nvswitch 100 GB/s").facts(8).can_multicast);
}

// Method: long all-reduces by a ring, whose every link carries the same. Expectation: the links are nearly
// always busy, and never faster than they are.
TEST(SimulateTest, ALongRingFillsItsLinks) {
  Machine dgx = machine("8 gpus, nvswitch 450 GB/s");
  const double bytes = 1 << 30;
  const double bus = bytes * 2 * 7 / 8 / all_reduce_us(dgx, "ring", 1 << 30) / 1000;
  EXPECT_GT(bus, 0.95 * 450);
  EXPECT_LT(bus, 450);
}

// Method: a ring whose slices cost as much besides their bytes as their bytes. Expectation: with one stripe
// the links are idle half of the time. With eight, in groups, bytes of one group move while others pay.
TEST(SimulateTest, TheFixedCostOfAGroupOfStripesOverlapsWithBytesOfOthers) {
  Machine four = machine("4 gpus, nvswitch 100 GB/s");
  const auto against_the_port = [&](uint32_t stripes) {
    RankCosts costs = plain_costs();
    costs.stripes_max = stripes;
    costs.slices = {.least = (8 << 20) / stripes, .most = (8 << 20) / stripes};
    costs.step_us = 83.9 / std::min(stripes, 4u);  // as the bytes of a group
    const uint64_t bytes = uint64_t{4} << 30;
    const double port_us = 1.5 * static_cast<double>(bytes) / 100e3;
    return all_reduce_us(four, "ring", bytes, {.costs = costs}) / port_us;
  };
  EXPECT_NEAR(against_the_port(1), 2, 0.2);
  EXPECT_NEAR(against_the_port(8), 1, 0.1);
}

TEST(SimulateTest, ShortMessagesAreForFewStepsLongOnesForFewBytes) {
  Machine dgx = machine("8 gpus, nvswitch 450 GB/s");
  EXPECT_LT(all_reduce_us(dgx, "direct_one_shot", 1024), all_reduce_us(dgx, "ring", 1024));
  EXPECT_GT(all_reduce_us(dgx, "direct_one_shot", 1 << 28), 2 * all_reduce_us(dgx, "ring", 1 << 28));
  Machine cluster = machine("8 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails");
  EXPECT_LT(2 * all_reduce_us(cluster, "hierarchical", 1 << 26), all_reduce_us(cluster, "ring", 1 << 26));
}

TEST(SimulateTest, MoreBytesTakeLonger) {
  Machine cores = machine("8 cores");
  for (const Algorithm& algorithm : algorithms()) {
    double last_us = 0;
    for (uint64_t bytes = 64; bytes <= 1 << 28; bytes *= 16) {
      const Request request = request_of(algorithm.collective, 8, bytes);
      if (algorithm.name == "multicast" || !algorithm.supports(request, cores.facts(8))) continue;
      const double us = run(cores, request, algorithm.name).microseconds;
      EXPECT_GE(us, 0.95 * last_us) << collective_name(algorithm.collective) << " " << algorithm.name << " "
                                    << bytes;
      last_us = us;
    }
  }
}

// Rounds beyond the first ones are added at their speed. Twice the bytes take twice the time.
TEST(SimulateTest, FurtherRoundsTakeAsLongAsTheLastOnes) {
  Machine dgx = machine("8 gpus, nvswitch 450 GB/s");
  for (const char* name : {"ring", "direct_two_shot", "double_binary_tree"}) {
    const double ratio =
        all_reduce_us(dgx, name, uint64_t{4} << 30) / all_reduce_us(dgx, name, uint64_t{2} << 30);
    EXPECT_NEAR(ratio, 2, 0.02) << name;
  }
}

TEST(SimulateTest, OneHostStandsForAll) {
  Machine cluster = machine("8 hosts x 4 gpus, nvswitch 300 GB/s, nic 4 x 25 GB/s, rails");
  for (const char* name : {"ring", "hierarchical", "recursive_halving_doubling", "direct_two_shot"}) {
    for (const uint64_t bytes : {uint64_t{4096}, uint64_t{1} << 24}) {
      const Request request = request_of(Collective::kAllReduce, 32, bytes);
      const Simulation folded = run(cluster, request, name, {.steps_max = 100});
      const Simulation walked = run(cluster, request, name, {.fold = false});
      EXPECT_EQ(walked.walked_ranks, 32u);
      if (folded.is_lower_bound) continue;
      EXPECT_EQ(folded.walked_ranks, 4u) << name;
      EXPECT_NEAR(folded.microseconds / walked.microseconds, 1, 0.1) << name << " " << bytes;
      EXPECT_EQ(folded.network_bytes, walked.network_bytes) << name;
    }
  }
}

// Method: each rank reads the messages of all others in an order of its own.
TEST(SimulateTest, OneHostStandsForAllWhoseMessagesComeInOtherOrders) {
  Machine cluster = machine("8 hosts x 4 gpus, nvswitch 300 GB/s, nic 4 x 25 GB/s, rails");
  const Request request = request_of(Collective::kAllReduce, 32, 4096);
  const Simulation folded = run(cluster, request, "direct_one_shot", {.steps_max = 200});
  const Simulation walked = run(cluster, request, "direct_one_shot", {.fold = false});
  EXPECT_EQ(folded.walked_ranks, 4u);
  EXPECT_EQ(walked.walked_ranks, 32u);
  EXPECT_NEAR(folded.microseconds / walked.microseconds, 1, 0.1);

  Machine large = machine("512 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails, fat tree 2:1");
  const Simulation priced = run(large, request_of(Collective::kAllReduce, 4096, 4096), "direct_one_shot");
  EXPECT_EQ(priced.walked_ranks, 8u);
}

// Method: plans too long to be walked; the first two ranks of a host do as those of other hosts do, the third
// does not. Expectation: the bound is that of plans that nobody compared.
TEST(SimulateTest, ABoundDoesNotDependOnHostsThatWereCompared) {
  Machine cluster = machine("16 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails");
  Request request = request_of(Collective::kBroadcast, 128, 1 << 20);
  for (request.root = 0; request.root < 8; ++request.root) {
    const Simulation compared = run(cluster, request, "scatter_all_gather", {.steps_max = 4096});
    const Simulation bound = run(cluster, request, "scatter_all_gather", {.fold = false, .steps_max = 4096});
    EXPECT_TRUE(compared.is_lower_bound);
    EXPECT_EQ(compared.microseconds, bound.microseconds) << "root " << request.root;
  }
}

// Method: ranks of the lower half exchange with the upper half, over switches of 8 hosts with half the speed
// upwards. Expectation: the network's upper links decide, folded or not.
TEST(SimulateTest, AllHostsShareTheUpperLinksOfTheNetwork) {
  const std::string text = "16 hosts x 1 gpu, nic 10 GB/s, leaf 8 hosts, fat tree ";
  Machine full = machine(text + "1:1");
  Machine half = machine(text + "4:1");
  const double full_us = all_reduce_us(full, "recursive_doubling", 1 << 26);
  const double half_us = all_reduce_us(half, "recursive_doubling", 1 << 26);
  EXPECT_GT(half_us, 1.5 * full_us);
  EXPECT_NEAR(half_us / all_reduce_us(half, "recursive_doubling", 1 << 26, {.fold = false}), 1, 0.15);
}

// Method: every rank sends to every other one, over three switches of 4 hosts.
TEST(SimulateTest, FoldedHostsLoadEachPairOfSwitchesAsAllHostsDo) {
  Machine cluster =
      machine("12 hosts x 2 gpus, nvswitch 300 GB/s, nic 2 x 25 GB/s, leaf 4 hosts, fat tree 4:1");
  const Request request = request_of(Collective::kAllToAll, 24, 1 << 24);
  const Simulation folded = run(cluster, request, "direct");
  EXPECT_EQ(folded.walked_ranks, 2u);
  EXPECT_NEAR(folded.microseconds / run(cluster, request, "direct", {.fold = false}).microseconds, 1, 0.1);
}

TEST(SimulateTest, ManyRanksCostOneHost) {
  Machine cluster = machine("2048 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails, fat tree 2:1");
  const Simulation result = run(cluster, request_of(Collective::kAllReduce, 16384, 1 << 20), "ring");
  EXPECT_EQ(result.walked_ranks, 8u);
  EXPECT_FALSE(result.is_lower_bound);
  const Simulation cut =
      run(cluster, request_of(Collective::kAllReduce, 16384, 1 << 20), "ring", {.steps_max = 1000});
  EXPECT_TRUE(cut.is_lower_bound);
  EXPECT_LT(cut.microseconds, result.microseconds);
}

TEST(SimulateTest, MoreRanksThanCoresTakeTurns) {
  Machine cores = machine("2 cores");
  const Request request = request_of(Collective::kAllReduce, 8, 1 << 20);
  Machine eight = machine("8 cores");
  EXPECT_GT(run(cores, request, "ring").microseconds, 2 * run(eight, request, "ring").microseconds);
}

/// Measured costs of one size, in nanoseconds, that a reader can add up: a call 10, a copy 10, a send 20, a
/// receive 30, and a message 100 from one to the other.
RankCosts measured_costs(uint64_t turn_ns) {
  RankCosts costs;
  costs.measured.call_ns.value = 10;
  costs.measured.turn_ns.value = turn_ns;
  for (auto& curve : costs.measured.curves) curve = {{8, {10}}};
  const auto set = [&](SliceWork work, uint64_t ns) {
    costs.measured.curves[static_cast<size_t>(work)] = {{8, {ns}}};
  };
  set(SliceWork::kSend, 20);
  set(SliceWork::kSendMemory, 20);
  set(SliceWork::kReceive, 30);
  set(SliceWork::kReceiveMemory, 30);
  set(SliceWork::kPass, 100);
  set(SliceWork::kStream, 40);
  set(SliceWork::kSocketSend, 1000);
  set(SliceWork::kSocketReceive, 2000);
  set(SliceWork::kSocketPass, 5000);
  set(SliceWork::kSocketStream, 2500);
  return costs;
}

Machine measured_machine(const std::string& description, const SliceCosts& slices) {
  GraphBuilder builder(machine(description).graph());
  builder.slices() = slices;
  auto measured = Machine::of(std::move(builder).finish());
  EXPECT_TRUE(measured) << measured.status().text();
  return std::move(*measured);
}

double measured_us(const std::string& cores, uint32_t ranks, std::string_view name, uint64_t repeated_slices,
                   uint64_t turn_ns = 1000) {
  Machine at = measured_machine(cores, measured_costs(turn_ns).measured);
  return run(at, request_of(Collective::kBroadcast, ranks, 8), name, {.repeated_slices = repeated_slices})
      .microseconds;
}

TEST(SimulateTest, MeasuredCostsAddUp) {
  EXPECT_NEAR(measured_us("2 cores", 2, "direct", 0), 0.010 + 0.100, 1e-6);
}

// Expectation: in a loop of calls the root runs ahead, and the link's gap with the receiver's work decides.
TEST(SimulateTest, ALoopOfCallsTakesWhatItsSlowestRankTakes) {
  EXPECT_NEAR(measured_us("2 cores", 2, "direct", 1000), 0.040, 1e-6);
}

// Goal: ranks that take parts of a host for hosts of their own pay for sockets. Expectation: a message takes
// the time of a ping-pong; a loop of calls, in which the root runs ahead, the gap of the stream; and ranks
// that share an emulated host still share its memory.
TEST(SimulateTest, RanksOnEmulatedHostsSendOverSockets) {
  Machine at = measured_machine("4 cores", measured_costs(1000).measured);
  const std::vector<uint32_t> apart = {0, 1};
  const Request two = request_of(Collective::kBroadcast, 2, 8);
  EXPECT_NEAR(run(at, two, "direct", {.host_of = apart}).microseconds, 0.010 + 5.0, 1e-6);
  EXPECT_NEAR(run(at, two, "direct", {.host_of = apart, .repeated_slices = 1000}).microseconds, 2.5, 1e-6);
  const std::vector<uint32_t> pairs = {0, 0, 1, 1};
  const Simulation chain = run(at, request_of(Collective::kBroadcast, 4, 8), "chain", {.host_of = pairs});
  EXPECT_NEAR(chain.microseconds, 0.010 + 0.100 + 5.0 + 0.100, 0.1) << "memory, a socket, memory";
  EXPECT_EQ(chain.network_bytes, 8u);
}

// Goal: what two cores have measured also prices ranks that are further apart. Method: a broadcast in the
// package of the probe's cores, and one to the other package.
TEST(SimulateTest, CoresFurtherApartThanTheProbesWaitLonger) {
  SliceCosts slices = measured_costs(1000).measured;
  slices.apart_ns.value =
      static_cast<uint64_t>(1000 * path_us(machine("2 packages, 8 cores"), "core0", "core1"));
  Machine at = measured_machine("2 packages, 8 cores", slices);
  const auto us_to = [&](uint32_t place) {
    const std::vector<uint32_t> places = {0, place};
    return run(at, request_of(Collective::kBroadcast, 2, 8), "direct", {.places = places}).microseconds;
  };
  EXPECT_NEAR(us_to(4) - us_to(1), path_us(at, "core0", "core4") - path_us(at, "core0", "core1"), 0.002);
}

// Goal: more cores than the probes had share their way to memory. Method: an all_to_all of many bytes, whose
// slices cost next to nothing, on 2 and on 16 cores of one memory. Expectation: the way to memory decides.
TEST(SimulateTest, WaysThatManyCoresShareCountBesideMeasuredSlices) {
  const SliceCosts slices = measured_costs(1000).measured;
  Machine many = measured_machine("16 cores", slices);
  const uint64_t bytes = 1 << 20;
  const Simulation result =
      run(many, request_of(Collective::kAllToAll, 16, bytes), "direct", {.trace = true});
  ASSERT_FALSE(result.busiest.empty());
  EXPECT_GT(result.busiest[0].busy_us, 0.4 * result.microseconds) << "all send before any receives";
  double sum_us = 0;
  for (const Share& share : result.shares) sum_us += share.microseconds;
  EXPECT_NEAR(sum_us, result.microseconds, 0.01 * result.microseconds);
  Machine two = measured_machine("2 cores", slices);
  EXPECT_TRUE(run(two, request_of(Collective::kAllToAll, 2, bytes), "direct").busiest.empty());
}

// Method: a chain of four ranks on two cores, 0 and 2 on one, 1 and 3 on the other. Expectation: ranks 2 and
// 3 begin when it is their turn, one turn after the slice of the rank before on their core.
TEST(SimulateTest, RanksOfACoreLookInTurn) {
  // Rank 0 ends at 30 ns, so rank 2 begins at 1030. Rank 1's message leaves core 1 at 120, so rank 3 looks at
  // 1120 when rank 2's message (1030 + 40 + 50) has just come, and takes 30.
  EXPECT_NEAR(measured_us("2 cores", 4, "chain", 0), 1.150, 0.02);
  EXPECT_GT(measured_us("2 cores", 4, "chain", 0, 2000), 2.0);
}

// Expectation: the parts of the longest chain are the whole time, and each span begins after its cause has
// ended.
TEST(SimulateTest, ATraceTellsWhereTheTimeGoes) {
  Machine dgx = machine("8 gpus, nvswitch 450 GB/s");
  const Simulation result = run(dgx, request_of(Collective::kAllReduce, 8, 1 << 26), "ring", {.trace = true});
  double sum_us = 0;
  for (const Share& share : result.shares) sum_us += share.microseconds;
  EXPECT_NEAR(sum_us, result.microseconds, 0.01 * result.microseconds);
  ASSERT_FALSE(result.shares.empty());
  EXPECT_NE(result.shares[0].what.find("nvlink from"), std::string::npos) << result.shares[0].what;
  ASSERT_EQ(result.spans.size(), result.walked_slices);
  for (const Span& span : result.spans) {
    ASSERT_LE(span.start_us, span.end_us);
    if (span.cause == kNoSpan) continue;
    ASSERT_LE(result.spans[span.cause].end_us, span.start_us + 1e-9);
  }
  ASSERT_FALSE(result.busiest.empty());
  EXPECT_LE(result.busiest[0].busy_us, result.microseconds * 1.01);
}

// Method: hosts of two GPUs. The second GPU reaches no card; or it does, and the last host's card no switch.
TEST(SimulateTest, RanksThatNothingJoinsAreNamed) {
  for (const bool has_all_cards : {false, true}) {
    std::string text = "tutti topology 1\nfabric leaf0\n";
    for (const std::string host : {"h0", "h1", "h2", "h3"}) {
      text += "host " + host + "\n";
      for (const char* index : {"0", "1"})
        text += "gpu " + host + "/gpu" + index + " in " + host + " index " + index + "\n";
      text += "nic " + host + "/nic0 in " + host + " index 0 speed 10 GB/s file\n";
      const auto link = [&](const std::string& ends, const char* kind) {
        text += "link " + ends + " " + kind + " 10 GB/s file 250 ns file\n";
      };
      link(host + "/gpu0 " + host + "/gpu1", "nvlink");
      link(host + "/gpu0 " + host + "/nic0", "pci");
      if (has_all_cards) link(host + "/gpu1 " + host + "/nic0", "pci");
      if (!has_all_cards || host != "h3") link(host + "/nic0 leaf0", "network");
    }
    auto graph = parse_graph(text);
    ASSERT_TRUE(graph) << graph.status().text();
    auto machine = Machine::of(std::move(*graph));
    ASSERT_TRUE(machine) << machine.status().text();
    const Request request = request_of(Collective::kAllToAll, 8, 1 << 20);
    const Facts facts = machine->facts(8);
    const Algorithm* direct = find_algorithm(Collective::kAllToAll, "direct");
    const auto result = simulate(
        machine->routes(),
        {.rank_count = 8, .plan_of = [&](uint32_t rank) { return direct->make(request, facts, rank); }},
        {.block_bytes = request.block_bytes, .costs = machine->costs()});
    ASSERT_FALSE(result);
    EXPECT_NE(result.status().text().find("nothing joins rank 0 and rank "), std::string::npos)
        << result.status().text();
  }
}

TEST(SimulateTest, WhatCannotBeWalkedIsRefused) {
  Machine pair = machine("2 gpus, nvlink 100 GB/s");
  const Request request = request_of(Collective::kAllReduce, 2, 1024);
  const Facts facts = pair.facts(2);
  const Algorithm* ring = find_algorithm(Collective::kAllReduce, "ring");
  const auto refused = [&](uint32_t ranks, const std::function<void(Plan&)>& change) {
    const PlanMaker maker{.rank_count = ranks, .plan_of = [&](uint32_t rank) {
                            Plan plan = ring->make(request, facts, rank % 2);
                            change(plan);
                            return plan;
                          }};
    return simulate(pair.routes(), maker, {.block_bytes = 1024, .costs = pair.costs()}).status();
  };
  EXPECT_EQ(refused(3, [](Plan&) {}).text(), "3 ranks, but the machine has places for 2");
  const Status deadlock =
      refused(2, [](Plan& plan) { plan.lanes[0].steps.erase(plan.lanes[0].steps.begin()); });
  EXPECT_NE(deadlock.text().find("deadlock"), std::string::npos) << deadlock.text();
  const Status lost = refused(2, [](Plan& plan) {
    if (plan.rank == 0) plan.lanes[0].steps.resize(1);
  });
  EXPECT_NE(lost.text().find("never"), std::string::npos) << lost.text();
}

}  // namespace
}  // namespace tutti::topology
