// Corrections: how much longer calls took than predicted, by the trials of the machine's graph
// (topology/call_times.h). A prediction is multiplied by measured over predicted of the same algorithm in the
// nearest trials: between two sizes or numbers of ranks by their logarithms.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "algorithms/algorithm.h"
#include "topology/call_times.h"

namespace tutti::tool {

class Corrections {
 public:
  /// Microseconds of a call among many, as predicted; 0: unknown, and the trial does not count.
  using Predict = std::function<double(const topology::TriedCall& call, uint64_t bytes)>;

  explicit Corrections(topology::CallTimes calls) : calls_(std::move(calls)) {}

  bool are_known() const { return !calls_.empty(); }
  /// 1 where the algorithm was not tried. `bytes`: of the largest buffer.
  double factor(const topology::TriedCall& call, uint64_t bytes, const Predict& predict);

 private:
  std::optional<double> factor_at(const topology::TriedCall& call, uint64_t bytes, const Predict& predict);

  topology::CallTimes calls_;
  std::map<std::pair<topology::TriedCall, uint64_t>, std::optional<double>> factors_;  ///< of what was tried
};

}  // namespace tutti::tool
