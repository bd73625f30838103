// Measurements: what probes found on a machine, kept as a text file for each kind of machine, and put into
// the graph in place of assumptions.
//
//   tutti measurements 1
//   machine 1f2e3d4c5b6a7988
//   pair 0 1 57 ns spread 30
//   copy_alone 21.4 GB/s
//   slice send 1024 85 ns
//   trial all_reduce 4 1 ring 32768 35.2 us spread 12 starts 3
//
// The host of a virtual machine moves its cores near to each other and far apart, and all times change. So a
// file has measurements for each distance, each with a title of its own: those of the latest probes first,
// and of these the most common distance.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph.h"
#include "topology/slice_costs.h"

namespace tutti::topology {

/// A cache line from one core to another, one way.
struct PairLatency {
  uint32_t core_a = 0;  ///< numbers of the operating system
  uint32_t core_b = 0;
  Fact latency_ns = {};

  friend bool operator==(const PairLatency&, const PairLatency&) = default;
};

/// That a file holds at most: one physical core, one cache, two caches, and one to spare.
inline constexpr size_t kDistancesMax = 4;

/// A value of 0 means not measured.
struct Measurements {
  uint64_t machine = 0;  ///< fingerprint()
  std::vector<PairLatency> pairs;
  Fact copy_alone = {};     ///< bytes per second that one core copies, from memory to memory
  Fact copy_together = {};  ///< the sum of all cores that copy at once
  Fact staged_copy = {};    ///< as copy_alone, but in two steps over a buffer in the cache
  Fact wake_ns = {};        ///< from a write to the start of the thread that slept on it
  Fact socket_ns = {};      ///< 8 bytes over a TCP socket of this host, one way, the receiver sleeps
  Fact socket_speed = {};   ///< bytes per second over a TCP socket of this host
  SliceCosts slices = {};   ///< of ranks on cores
  CallTimes calls = {};     ///< of ranks on cores

  friend bool operator==(const Measurements&, const Measurements&) = default;
};

/// Whether times measured at one moment hold at the other one, by what a cache line took between the cores
/// then. 0: unknown, so they hold.
bool is_same_distance(uint64_t line_ns, uint64_t other_line_ns);

/// The least line of each distance, in rising order. Unknown lines, of 0 ns, are a distance of their own.
std::vector<uint64_t> distances_of(const std::set<uint64_t>& lines_ns);
/// The distance of a line that was among those of distances_of.
uint64_t distance_at(const std::vector<uint64_t>& distances, uint64_t line_ns);

/// Those whose distance (SliceCosts::apart_ns) is the nearest; the first of them, and of all if `line_ns` is
/// 0. `all` has one at least.
const Measurements& nearest(const std::vector<Measurements>& all, uint64_t line_ns);

/// Notes that the measurements are of two cores this far apart. `cores`: two numbers of the operating system.
void set_distance(Measurements& measurements, const std::vector<uint32_t>& cores, const Fact& apart_ns);

/// Equal for machines of equal parts: models, counts, places. Names, addresses and speeds do not count.
uint64_t fingerprint(const Graph& graph);

std::string print_measurements(const std::vector<Measurements>& all);
/// From one to kDistancesMax of them. Errors: kInvalidArgument with "line N: ...".
Result<std::vector<Measurements>> parse_measurements(std::string_view text);

/// The graph with measured latencies and speeds on the links inside processors and between them. Pairs at one
/// distance give the links that they pass: first below one cache, then below one NUMA node, then beyond.
Graph with_measurements(const Graph& graph, const Measurements& measurements);

/// The middle of the samples, or the mean of the two in the middle, and how far most of them are from it.
/// Without samples: 0.
Fact middle_of(std::vector<double> samples);
/// Their mean, for times that are long now and then: no sample counts for more than twice the middle one. The
/// spread is that of middle_of.
Fact mean_of(const std::vector<double>& samples);

}  // namespace tutti::topology
