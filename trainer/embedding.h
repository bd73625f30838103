// Embedding: a vector for each character, plus a vector for its position.
#pragma once

#include "trainer/layer.h"

namespace tutti::trainer {

class Embedding : public Layer {
 public:
  /// Maps [samples, context] of token numbers (whole floats below `vocabulary`) to [samples * context,
  /// width].
  Embedding(Parameters& parameters, size_t vocabulary, size_t context, size_t width);
  const Matrix& forward(const Matrix& input, bool training) override;
  /// Token numbers have no gradient: the result is empty.
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Parameter& token_;
  Parameter& position_;
  const Matrix* input_ = nullptr;
  Matrix output_;
  Matrix nothing_;
};

}  // namespace tutti::trainer
