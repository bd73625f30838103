// Predict: the predicted times of all algorithms that serve a request, on a machine's graph. The library
// chooses by them (priced_choice.h), and the tools show them.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "core/result.h"
#include "topology/routes.h"
#include "topology/simulate.h"

namespace tutti {

/// Where the ranks are, and what they cost.
struct PricedMachine {
  topology::Routes& routes;
  topology::RankCosts costs;
  std::span<const uint32_t> places = {};  ///< as in SimulateOptions
};

/// An algorithm, and how its messages travel: over links, or as packets of data and flag (plan/packets.h).
struct Way {
  const Algorithm* algorithm = nullptr;
  bool by_packets = false;

  friend auto operator<=>(const Way&,
                          const Way&) = default;  // NOLINT(modernize-use-nullptr): the check is wrong
};

/// "direct_one_shot by packets".
std::string name_of(const Way& way);

/// All ways to serve the request. `packet_bytes_max`: that a rank can send another as packets in one call; 0:
/// no packets.
std::vector<Way> ways_of(const Request& request, const Facts& facts, uint64_t packet_bytes_max = 0);

/// The most that a rank sends another by the algorithm's plans, before bytes are rounded.
uint64_t most_bytes_to_a_peer(const Algorithm& algorithm, const Request& request, const Facts& facts);

struct Candidate {
  Way way;
  topology::Simulation simulation;
};

struct PredictOptions {
  std::vector<std::string> algorithms = {};  ///< only these; empty: all that serve the request
  uint64_t packet_bytes_max = 0;             ///< as in ways_of
  std::span<const Way> ways = {};            ///< in place of ways_of; empty: that
  Way first = {};                            ///< predicted before the others, so that those can stop early
  bool trace = false;
  /// A candidate that takes so many times the best time so far is not walked to its end.
  double hopeless = 100;
  uint64_t repeated_slices = 0;  ///< as in topology::SimulateOptions
  uint64_t steps_max = topology::SimulateOptions{}.steps_max;
  uint64_t slices_max = topology::SimulateOptions{}.slices_max;
};

/// The fastest first, lower bounds last. Errors: kInvalidArgument (simulate).
Result<std::vector<Candidate>> predict(const PricedMachine& machine, const Facts& facts,
                                       const Request& request, const PredictOptions& options = {});

/// The order of predict.
void sort_by_time(std::vector<Candidate>& candidates);

/// Bytes of one block, for a message whose largest buffer has `bytes` bytes. A barrier has none.
uint64_t block_bytes_of(Collective collective, uint32_t rank_count, uint64_t bytes);

/// Bytes of the largest buffer.
uint64_t message_bytes(const Request& request);

}  // namespace tutti
