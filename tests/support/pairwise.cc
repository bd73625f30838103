#include "tests/support/pairwise.h"

#include <cstddef>
#include <random>

namespace tutti::test {
namespace {

/// The pairs that have not occurred yet.
class MissingPairs {
 public:
  explicit MissingPairs(const std::vector<int>& sizes) : sizes_(sizes) {
    start_.push_back(0);
    for (const int size : sizes) start_.push_back(start_.back() + static_cast<size_t>(size));
    missing_.assign(start_.back() * start_.back(), false);
    for (size_t f = 0; f < sizes.size(); ++f) {
      for (size_t g = f + 1; g < sizes.size(); ++g) {
        for (int a = 0; a < sizes[f]; ++a) {
          for (int b = 0; b < sizes[g]; ++b) {
            at(f, a, g, b) = true;
            ++left_;
          }
        }
      }
    }
  }

  bool any() const { return left_ > 0; }
  bool has(size_t f, int a, size_t g, int b) { return f < g ? at(f, a, g, b) : at(g, b, f, a); }

  void cover(const std::vector<int>& row) {
    for (size_t f = 0; f < row.size(); ++f) {
      for (size_t g = f + 1; g < row.size(); ++g) {
        left_ -= at(f, row[f], g, row[g]) ? 1 : 0;
        at(f, row[f], g, row[g]) = false;
      }
    }
  }

  /// The first missing pair, as a row with -1 in the other factors.
  std::vector<int> first() {
    std::vector<int> row(sizes_.size(), -1);
    for (size_t f = 0; f < sizes_.size(); ++f) {
      for (size_t g = f + 1; g < sizes_.size(); ++g) {
        for (int a = 0; a < sizes_[f]; ++a) {
          for (int b = 0; b < sizes_[g]; ++b) {
            if (!at(f, a, g, b)) continue;
            row[f] = a;
            row[g] = b;
            return row;
          }
        }
      }
    }
    return row;
  }

 private:
  std::vector<bool>::reference at(size_t f, int a, size_t g, int b) {
    return missing_[(start_[f] + static_cast<size_t>(a)) * start_.back() + start_[g] +
                    static_cast<size_t>(b)];
  }

  std::vector<int> sizes_;
  std::vector<size_t> start_;
  std::vector<bool> missing_;
  long left_ = 0;
};

}  // namespace

std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& sizes, uint64_t seed) {
  std::mt19937_64 random(seed);
  MissingPairs missing(sizes);
  std::vector<std::vector<int>> rows;
  while (missing.any()) {
    std::vector<int> row = missing.first();
    for (size_t f = 0; f < sizes.size(); ++f) {
      if (row[f] >= 0) continue;
      int best = -1;
      const int shift = static_cast<int>(random() % static_cast<uint64_t>(sizes[f]));
      for (int i = 0; i < sizes[f]; ++i) {
        const int value = (i + shift) % sizes[f];
        int gain = 0;
        for (size_t g = 0; g < sizes.size(); ++g) {
          if (g != f && row[g] >= 0) gain += missing.has(f, value, g, row[g]) ? 1 : 0;
        }
        if (gain > best) {
          best = gain;
          row[f] = value;
        }
      }
    }
    missing.cover(row);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tutti::test
