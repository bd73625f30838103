// Attention: every character looks at itself and at those before it.
// Source: Vaswani et al., "Attention is all you need", 2017.
#pragma once

#include "trainer/layer.h"

namespace tutti::trainer {

/// Causal attention with several heads, without parameters: Linear layers before and after it have them.
/// Maps [samples * context, 3 * width] (query, key and value side by side) to [samples * context, width].
class Attention : public Layer {
 public:
  /// `heads` divides the width.
  Attention(size_t context, size_t heads, Product product)
      : context_(context), heads_(heads), product_(std::move(product)) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  size_t context_;
  size_t heads_;
  Product product_;
  const Matrix* input_ = nullptr;
  Matrix weights_;           ///< [samples * heads * context, context]: who looks at whom
  Matrix weights_gradient_;  ///< [context, context], of one head
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
