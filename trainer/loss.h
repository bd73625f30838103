// Loss: cross entropy of the softmax of a model's output.
#pragma once

#include <cstddef>
#include <numbers>
#include <span>

#include "trainer/matrix.h"

namespace tutti::trainer {

/// A target that does not count.
inline constexpr int kIgnored = -1;

struct Loss {
  double sum = 0;      ///< in nats, over all targets that count
  size_t count = 0;    ///< number of these targets
  size_t correct = 0;  ///< number of targets with the largest output

  /// Of a target: nats, bits, percent that are correct.
  double nats() const { return sum / static_cast<double>(std::max<size_t>(count, 1)); }
  double bits() const { return nats() / std::numbers::ln2; }
  double correct_percent() const {
    return 100 * static_cast<double>(correct) / static_cast<double>(std::max<size_t>(count, 1));
  }
  Loss& operator+=(const Loss& more) {
    sum += more.sum;
    count += more.count;
    correct += more.correct;
    return *this;
  }
};

/// The loss of `output`, [targets, classes]. If `gradient` is not null, it gets the gradient times `scale`.
/// `scale` is 1 over the number of targets in the whole batch on all ranks. Then the sum over ranks is the
/// gradient of the mean loss, however unevenly the samples are spread.
Loss cross_entropy(const Matrix& output, std::span<const int> targets, float scale, Matrix* gradient);

}  // namespace tutti::trainer
