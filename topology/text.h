// The text form of graphs, which tutti-topo prints and reads, and which users write by hand. docs/topology.md
// describes the form:
//
//   tutti topology 1
//   host server
//   package cpu0 in server
//   gpu gpu0 in cpu0 bus 0000:4f:00.0 model "NVIDIA H100"
//   link cpu0 gpu0 pci 63.015384 GB/s sysfs 250 ns assumed
//   slice send 1024 85 ns
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti::topology {

inline constexpr std::string_view kTextTitle = "tutti topology 1";

/// The whole graph; parse_graph reads back an equal one.
std::string print_graph(const Graph& graph);

/// Safe for any input; memory is proportional to the text. Errors: kInvalidArgument with "line N: ...".
Result<Graph> parse_graph(std::string_view text);

}  // namespace tutti::topology
