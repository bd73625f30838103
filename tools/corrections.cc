#include "tools/corrections.h"

#include <algorithm>
#include <cmath>
#include <iterator>

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
  const auto of = [&](const topology::TriedCall* tried) {
    return tried == nullptr ? std::nullopt : factor_at(*tried, bytes, predict);
  };
  const auto low = of(below);
  const auto high = of(above);
  if (!low || !high) return low ? *low : high.value_or(1);
  return below == above ? *low : between(below->ranks, *low, above->ranks, *high, call.ranks);
}

std::optional<double> Corrections::factor_at(const topology::TriedCall& call, uint64_t bytes,
                                             const Predict& predict) {
  const auto& times = calls_.at(call);
  const auto one = [&](auto at) -> std::optional<double> {
    if (at == times.end()) return std::nullopt;
    const auto [known, is_new] = factors_.try_emplace({call, at->first});
    if (!is_new) return known->second;
    const double us = predict(call, at->first);
    if (us > 0) known->second = static_cast<double>(at->second.ns.value) / 1000 / us;
    return known->second;
  };
  const auto next = times.lower_bound(bytes);
  const auto before = next == times.begin() ? times.end() : std::prev(next);
  const auto high = one(next);
  if (next != times.end() && next->first == bytes && high) return high;
  const auto low = one(before);
  if (!low || !high) return low ? low : high;
  return between(static_cast<double>(before->first), *low, static_cast<double>(next->first), *high,
                 static_cast<double>(bytes));
}

}  // namespace tutti::tool
