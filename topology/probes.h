// Probes: short measurements of the machine that this process runs on. Threads, memory and sockets of this
// process only; nothing stays behind. A virtual machine's cores move, so each number is the middle of samples
// that are spread over the budget, with how much they varied.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/measurements.h"

namespace tutti::topology {

struct ProbeOptions {
  uint32_t budget_ms = 6000;  ///< for all probes; a probe that has no time left is left out
};

/// The first two cores of the graph that this process may use, by the numbers of the operating system; empty:
/// there are no two.
std::vector<uint32_t> first_two_cores(const Graph& graph);

/// Errors: kUnsupported if this process may not use all cores of the graph: what it measures must not stand
/// for the machine. A container's graph has only the cores that the container may use.
Status check_cores(const Graph& graph);

/// What all caches of the third level let through, if these cores together move `sum` and each cache has as
/// much.
double for_all_caches(const Graph& graph, std::span<const uint32_t> cores, double sum);

/// A cache line between the first two, one way, now, in nanoseconds: where the host has placed them. Takes
/// about 1 ms, at most 0.2 s. 0: there are no two, one was taken away, or no thread can be made.
uint64_t measure_line(const Graph& graph);

/// Measures what the graph's cores can do. Cores that this process may not use are left out. Errors:
/// kSystemError if no thread or socket can be made.
Result<Measurements> measure(const Graph& graph, const ProbeOptions& options = {});

}  // namespace tutti::topology
