// Job: the graph of all hosts of a job from the graphs of its hosts. Every rank builds it from the same
// texts, so all ranks have the same graph; comparing digests shows whether they do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

/// What ranks tell each other: every graph once, and for each host which one is its graph.
struct JobTexts {
  std::vector<std::string> graphs;  ///< different texts, as print_graph gives them
  std::vector<uint32_t> graph_of_host;

  /// Adds the next host. A text that is there already is not stored again.
  void add_host(const std::string& text);
};

/// One graph: each host's names begin with "h0/", "h1/" and so on. If no host brings a switch of the network,
/// one switch is assumed to join all cards; a host without cards gets an assumed one. One host keeps its
/// graph as it is. Of hosts of one kind the first one's measurements count. Costs of slices are those of the
/// first host, if all hosts are of its kind. Errors: kInvalidArgument with the host and the line, or if the
/// job is too large.
Result<Graph> join_hosts(const JobTexts& texts);

}  // namespace tutti::topology
