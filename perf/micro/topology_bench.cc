// Microbenchmark of what a communicator does with a topology: join the hosts' graphs, place the ranks, choose
// the algorithm of a shape of call by price. `resident_mb` is the most memory that the process had.
//
//   build/topology_bench
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "algorithms/choice.h"
#include "algorithms/predict.h"
#include "comm/job_topology.h"
#include "plan/packets.h"
#include "topology/describe.h"
#include "topology/job.h"
#include "topology/slice_text.h"
#include "topology/text.h"

namespace tutti {
namespace {

constexpr uint32_t kRanksPerHost = 8;
constexpr const char* kHost = "16 cores, 2 packages, nic 2 x 100 Gbit/s";

double resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// Costs of slices as on near cores: 20 ns, and 80 ns for a KiB.
std::string slices_text() {
  topology::SliceCosts slices;
  slices.turn_ns.value = 1400;
  slices.call_ns.value = 30;
  for (auto& curve : slices.curves) curve = {{8, {20}}, {1024, {100}}, {16384, {1300}}};
  return topology::print_slices(slices);
}

/// What all ranks know of the job after the exchange.
struct Job {
  explicit Job(uint32_t hosts, bool is_measured = false) : cpus(size_t{hosts} * kRanksPerHost) {
    const std::string graph =
        topology::print_graph(*topology::parse_description(kHost)) + (is_measured ? slices_text() : "");
    for (uint32_t host = 0; host < hosts; ++host) texts.add_host(graph);
    for (uint32_t rank = 0; rank < cpus.size(); ++rank) {
      host_of.push_back(rank / kRanksPerHost);
      cpus[rank].set(2 * (rank % kRanksPerHost));
    }
  }

  std::shared_ptr<JobTopology> make() const {
    auto graph = topology::join_hosts(texts);
    return *JobTopology::of(std::move(*graph), "described", host_of, cpus, topology::usual_costs(false));
  }

  Facts facts(const JobTopology& topology) const {
    return {.can_publish = false,
            .host_count = host_of.back() + 1,
            .host_of = host_of,
            .levels = topology.levels(),
            .order = topology.order(),
            .cores = 16,
            .slots = 16};
  }

  topology::JobTexts texts;
  std::vector<uint32_t> host_of;
  std::vector<CpuSet> cpus;
};

void make_topology(benchmark::State& state) {
  const Job job(static_cast<uint32_t>(state.range(0)) / kRanksPerHost);
  for (auto _ : state) benchmark::DoNotOptimize(job.make());
  state.counters["resident_mb"] = resident_mb();
}
BENCHMARK(make_topology)->Arg(64)->Arg(1024)->Arg(16384)->Unit(benchmark::kMillisecond);

/// Ranks on the devices of a server, each on its own.
struct DeviceJob {
  explicit DeviceJob(uint32_t ranks)
      : graph(*topology::parse_description(format("%u gpus, nvswitch 371 GB/s, pcie 63 GB/s", ranks))) {
    topology::GraphBuilder builder(graph);
    for (const uint32_t gpu : graph.of_kind(topology::NodeKind::kGpu)) {
      addresses.push_back(format("0000:%02zx:00.0", addresses.size() + 1));
      builder.node(gpu).bus_id = addresses.back();
    }
    text = topology::print_graph(std::move(builder).finish());
  }

  std::shared_ptr<JobTopology> make(const char* why_no_prices = nullptr) const {
    return *JobTopology::of_devices(*topology::parse_graph(text), "described", addresses, why_no_prices);
  }

  topology::Graph graph;
  std::vector<std::string> addresses;
  std::string text;
};

/// Ranks, whether there are prices.
void make_device_topology(benchmark::State& state) {
  const DeviceJob job(static_cast<uint32_t>(state.range(0)));
  const char* const why = state.range(1) != 0 ? nullptr : "TUTTI_PRICES is 0";
  for (auto _ : state) benchmark::DoNotOptimize(job.make(why));
}
BENCHMARK(make_device_topology)->Args({8, 0})->Args({8, 1})->Args({72, 1})->Unit(benchmark::kMillisecond);

/// One shape of call between devices, for the first time: ranks, bytes.
void choose_on_devices(benchmark::State& state) {
  const auto ranks = static_cast<uint32_t>(state.range(0));
  const DeviceJob job(ranks);
  const Request request{.collective = Collective::kAllReduce,
                        .rank_count = ranks,
                        .block_bytes = static_cast<uint64_t>(state.range(1))};
  const uint64_t packet_bytes = ranks <= kPacketRanksMax ? packet_bytes_max(request) : 0;
  std::string chosen;
  for (auto _ : state) {
    state.PauseTiming();
    const auto topology = job.make();
    state.ResumeTiming();
    const Facts facts{.can_publish = false,
                      .levels = topology->levels(),
                      .order = topology->order(),
                      .cores = ranks,
                      .slots = 8,
                      .slot_bytes = 65536};
    const Way by_table = choose_by_table(ChoiceTable::built_in(), request, facts, packet_bytes).way;
    chosen = name_of(topology->choose(request, facts, by_table, packet_bytes)->way);
  }
  state.SetLabel(chosen);
}
BENCHMARK(choose_on_devices)
    ->ArgsProduct({{8, 72}, {8, 1 << 20, 256 << 20}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(3);

/// One shape of call, for the first time: ranks, bytes, whether the costs of slices are measured.
void choose(benchmark::State& state, Collective collective) {
  const auto ranks = static_cast<uint32_t>(state.range(0));
  const Job job(ranks / kRanksPerHost, state.range(2) != 0);
  const auto bytes = static_cast<uint64_t>(state.range(1));
  const Request request{
      .collective = collective, .rank_count = ranks, .block_bytes = block_bytes_of(collective, ranks, bytes)};
  std::string chosen;
  for (auto _ : state) {
    state.PauseTiming();
    const auto topology = job.make();
    state.ResumeTiming();
    const Facts facts = job.facts(*topology);
    const Algorithm* by_table = ChoiceTable::built_in().choose(request, facts);
    chosen = topology->choose(request, facts, {by_table})->way.algorithm->name;
  }
  state.SetLabel(chosen);
  state.counters["resident_mb"] = resident_mb();
}
void shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t ranks : {64, 1024, 16384}) {
    for (const int64_t bytes : {int64_t{1} << 10, int64_t{64} << 20}) {
      for (const int64_t is_measured : {0, 1}) bench->Args({ranks, bytes, is_measured});
    }
  }
  bench->Unit(benchmark::kMillisecond)->Iterations(1);
}
BENCHMARK_CAPTURE(choose, all_reduce, Collective::kAllReduce)->Apply(shapes);
BENCHMARK_CAPTURE(choose, all_gather, Collective::kAllGather)->Apply(shapes);
BENCHMARK_CAPTURE(choose, reduce_scatter, Collective::kReduceScatter)->Apply(shapes);
BENCHMARK_CAPTURE(choose, all_to_all, Collective::kAllToAll)->Apply(shapes);
BENCHMARK_CAPTURE(choose, broadcast, Collective::kBroadcast)->Apply(shapes);
BENCHMARK_CAPTURE(choose, barrier, Collective::kBarrier)->Apply(shapes);

}  // namespace
}  // namespace tutti

BENCHMARK_MAIN();
