// Linear: input * weight + bias.
#pragma once

#include "trainer/layer.h"

namespace tutti::trainer {

class Linear : public Layer {
 public:
  /// Maps [rows, inputs] to [rows, outputs]. `gain` scales the first weights. `cut`: of the columns; then the
  /// output has only this rank's columns.
  Linear(Parameters& parameters, const std::string& name, size_t inputs, size_t outputs, Product product,
         float gain = 1, const Cut& cut = {});
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Product product_;
  Parameter& weight_;
  Parameter& bias_;
  const Matrix* input_ = nullptr;
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
