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

struct Candidate {
  const Algorithm* algorithm = nullptr;
  topology::Simulation simulation;
};

struct PredictOptions {
  std::vector<std::string> algorithms = {};  ///< only these; empty: all that serve the request
  const Algorithm* first = nullptr;          ///< predicted before the others, so that those can stop early
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
