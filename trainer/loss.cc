#include "trainer/loss.h"

#include <cassert>
#include <cmath>
#include <vector>

namespace tutti::trainer {

Loss cross_entropy(const Matrix& output, std::span<const int> targets, float scale, Matrix* gradient) {
  assert(targets.size() == output.rows());
  const size_t classes = output.columns();
  Loss loss;
  std::vector<float> powers(classes);
  if (gradient != nullptr) gradient->resize(output.rows(), classes);
  for (size_t i = 0; i < output.rows(); ++i) {
    if (targets[i] == kIgnored) {
      if (gradient != nullptr) std::fill(gradient->row(i), gradient->row(i) + classes, 0.0F);
      continue;
    }
    const auto target = static_cast<size_t>(targets[i]);
    const float* row = output.row(i);
    const float* largest = std::max_element(row, row + classes);
    float sum = 0;
    for (size_t j = 0; j < classes; ++j) sum += powers[j] = std::exp(row[j] - *largest);
    loss.sum += std::log(sum) + *largest - row[target];
    ++loss.count;
    if (largest == row + target) ++loss.correct;
    if (gradient == nullptr) continue;
    for (size_t j = 0; j < classes; ++j) gradient->row(i)[j] = scale * powers[j] / sum;
    gradient->row(i)[target] -= scale;
  }
  return loss;
}

}  // namespace tutti::trainer
