// Loss: cross entropy of the softmax of a model's output.
#pragma once

#include <cstddef>
#include <span>

#include "trainer/matrix.h"

namespace tutti::trainer {

/// A target that does not count.
inline constexpr int kIgnored = -1;

struct Loss {
  double sum = 0;      ///< nats, over all targets that count
  size_t count = 0;    ///< of these targets
  size_t correct = 0;  ///< of these, where the largest output is the target's
};

/// The loss of `output`, [targets, classes], and, where `gradient` is not null, its gradient times `scale`.
/// The scale is 1 over the number of targets of the whole batch, all ranks included: then the sum over ranks
/// is the gradient of the mean loss, however unevenly the samples are spread.
Loss cross_entropy(const Matrix& output, std::span<const int> targets, float scale, Matrix* gradient);

}  // namespace tutti::trainer
