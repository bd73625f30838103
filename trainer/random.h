// Random numbers that are equal on every machine and with every standard library: SplitMix64.
// Source: Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::trainer {

class Random {
 public:
  /// Streams with one seed are independent of one another.
  explicit Random(uint64_t seed, uint64_t stream = 0)
      : state_(seed + 0x9e3779b97f4a7c15U * (2 * stream + 1)) {
    state_ = next();
  }

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// In [0, n), n > 0.
  size_t below(size_t n) { return static_cast<size_t>(uniform() * static_cast<double>(n)); }
  /// Mean 0, standard deviation 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// The numbers 0 to n - 1, shuffled (Fisher and Yates).
  std::vector<uint32_t> permutation(size_t n) {
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0U);
    for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[below(i)]);
    return order;
  }

 private:
  uint64_t state_;
};

}  // namespace tutti::trainer
