// How tutti-topo shows a graph: as a tree, a matrix of distances, JSON, a drawing.
#pragma once

#include <span>
#include <string>

#include "topology/assembly.h"
#include "topology/graph.h"

namespace tutti::tool {

/// A tree with speeds and their origins. Equal neighbours share a line.
std::string show_tree(const topology::Graph& graph);

/// The distances between GPUs and network cards, or between cores if there are no devices; with a legend.
/// Errors: kInvalidArgument if there are more than 256 of them.
Result<std::string> show_matrix(const topology::Graph& graph);

/// What the search offers: levels, cards, rings, trees, and what limits each. Errors: as topology::search.
Result<std::string> show_offers(const topology::Graph& graph);

/// A row of the table of machines; `name` is the first cell.
std::string table_row(const std::string& name, const topology::Graph& graph);
std::string table_head();

/// Nodes, links, notes and the digest.
std::string show_json(const topology::Imported& machine);

/// A drawing as SVG. Of hosts that are all alike the first is drawn.
std::string draw_svg(const topology::Graph& graph);

/// What is assumed, in a sentence for each kind of fact; empty if nothing is.
std::string assumptions(const topology::Graph& graph);

/// "16 cores of 2 threads, 2 L3 caches": the processor's parts inside a node; empty if there are none.
std::string processor_summary(const topology::Graph& graph, uint32_t node);

/// Text that is equal for parts that look alike: kinds, models, speeds, and the parts inside.
std::string signature(const topology::Graph& graph, uint32_t node);

/// The link of a node to the node around it; null if there is none.
const topology::Edge* link_up(const topology::Graph& graph, uint32_t node);

}  // namespace tutti::tool
