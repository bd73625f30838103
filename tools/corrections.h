// Corrections: how much longer calls took than predicted, by the trials of the machine's graph
// (topology/call_times.h). A prediction is multiplied by that of the same algorithm: between the nearest
// sizes and numbers of ranks that were tried, by their logarithms.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "algorithms/algorithm.h"
#include "topology/call_times.h"

namespace tutti::tool {

class Corrections {
 public:
  /// Microseconds of a call among many, as predicted; 0: unknown.
  using Predict = std::function<double(const topology::TriedCall& call, uint64_t bytes)>;

  explicit Corrections(topology::CallTimes calls) : calls_(std::move(calls)) {}

  bool are_known() const { return !calls_.empty(); }
  /// 1 where the algorithm was not tried. `bytes`: of the largest buffer.
  double factor(const topology::TriedCall& call, uint64_t bytes, const Predict& predict);

 private:
  double factor_at(const topology::TriedCall& call, uint64_t bytes, const Predict& predict);

  topology::CallTimes calls_;
  std::map<std::pair<topology::TriedCall, uint64_t>, double> factors_;  ///< of what was tried
};

}  // namespace tutti::tool
