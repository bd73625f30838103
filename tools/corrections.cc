#include "tools/corrections.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

namespace tutti::tool {
namespace {

/// Between (x0, y0) and (x1, y1), all by their logarithms.
double between(double x0, double y0, double x1, double y1, double x) {
  const double part = std::log(x / x0) / std::log(x1 / x0);
  return y0 * std::pow(y1 / y0, part);
}

}  // namespace

double Corrections::factor(const topology::TriedCall& call, uint64_t bytes, const Predict& predict) {
  const topology::TriedCall* below = nullptr;
  const topology::TriedCall* above = nullptr;
  for (const auto& [tried, times] : calls_) {
    const bool is_alike =
        tried.collective == call.collective && tried.hosts == call.hosts && tried.algorithm == call.algorithm;
    if (!is_alike) continue;
    if (tried.ranks <= call.ranks) below = &tried;
    if (tried.ranks >= call.ranks && above == nullptr) above = &tried;
  }
  if (below == nullptr && above == nullptr) return 1;
  if (below == nullptr || above == nullptr || below == above)
    return factor_at(below == nullptr ? *above : *below, bytes, predict);
  return between(below->ranks, factor_at(*below, bytes, predict), above->ranks,
                 factor_at(*above, bytes, predict), call.ranks);
}

double Corrections::factor_at(const topology::TriedCall& call, uint64_t bytes, const Predict& predict) {
  const auto& times = calls_.at(call);
  const auto one = [&](uint64_t size, const topology::Fact& ns) {
    const auto [known, is_new] = factors_.try_emplace({call, size}, 1.0);
    if (is_new) {
      const double us = predict(call, size);
      if (us > 0) known->second = static_cast<double>(ns.value) / 1000 / us;
    }
    return known->second;
  };
  const auto next = times.lower_bound(bytes);
  if (next == times.end()) return one(times.rbegin()->first, times.rbegin()->second);
  if (next == times.begin() || next->first == bytes) return one(next->first, next->second);
  const auto before = std::prev(next);
  return between(static_cast<double>(before->first), one(before->first, before->second),
                 static_cast<double>(next->first), one(next->first, next->second),
                 static_cast<double>(bytes));
}

}  // namespace tutti::tool
