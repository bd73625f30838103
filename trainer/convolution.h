// Convolution and pooling of square images. In a matrix, pixels are rows and channels are columns.
#pragma once

#include "trainer/linear.h"

namespace tutti::trainer {

/// 3 x 3 convolution with zeros outside the image: [images * side * side, inputs] to [images * side * side,
/// outputs]. Each pixel's 3 x 3 neighbours are put side by side. Then the rest is a Linear.
class Convolution : public Layer {
 public:
  Convolution(Parameters& parameters, const std::string& name, size_t side, size_t inputs, size_t outputs,
              Product product);
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  size_t side_;
  Linear linear_;
  Matrix patches_;
  Matrix input_gradient_;
};

/// The largest of each 2 x 2 pixels. `side` is even.
class MaxPool : public Layer {
 public:
  explicit MaxPool(size_t side) : side_(side) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  size_t side_;
  size_t input_rows_ = 0;
  std::vector<size_t> sources_;  ///< for each output, the row of its input
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
