// Attention: every character looks at itself and at earlier characters.
// Source: Vaswani et al., "Attention is all you need", 2017.
#pragma once

#include "trainer/layer.h"

namespace tutti::trainer {

/// Causal attention with several heads. It has no parameters: the Linear layers before and after it have
/// them.
/// Maps [samples * context, 3 * width] (query, key and value side by side) to [samples * context, width].
class Attention : public Layer {
 public:
  /// `heads` must divide the width.
  Attention(size_t context, size_t heads, Product product)
      : context_(context), heads_(heads), product_(std::move(product)) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  size_t context_;
  size_t heads_;
  Product product_;
  const Matrix* input_ = nullptr;
  Matrix weights_;  ///< [samples * heads * context, context]: how much each character looks at each other
  Matrix weights_gradient_;  ///< [context, context], for one head
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
