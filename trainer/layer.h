// Layer: a step of a model, with its backward pass written by hand.
//
// Matrices have a row for each sample, character or pixel, and a column for each feature. A layer owns its
// output. The input must not change before the backward pass.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainer/matrix.h"
#include "trainer/parameters.h"

namespace tutti::trainer {

/// Called for every parameter as soon as its gradient is complete. May be empty.
using GradientReady = std::function<void(const Parameter&)>;

class Layer {
 public:
  virtual ~Layer() = default;
  /// The output for `input`, valid until the next call. Any number of rows, also 0, because a rank without
  /// samples takes part too.
  virtual const Matrix& forward(const Matrix& input, bool training) = 0;
  /// Turns the loss's gradient with respect to the last output into the gradient with respect to the last
  /// input. Adds to the gradients of this layer's parameters, and reports each parameter before it continues.
  virtual const Matrix& backward(const Matrix& gradient, const GradientReady& ready) = 0;
};

using Layers = std::vector<std::unique_ptr<Layer>>;

/// Layers, one after the other.
class Sequence : public Layer {
 public:
  explicit Sequence(Layers layers) : layers_(std::move(layers)) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Layers layers_;
};

/// input + layers(input).
class Residual : public Layer {
 public:
  explicit Residual(Layers layers) : layers_(std::move(layers)) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Sequence layers_;
  Matrix output_;
  Matrix input_gradient_;
};

/// The same numbers, in rows of another length.
class Reshape : public Layer {
 public:
  explicit Reshape(size_t columns) : columns_(columns) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  size_t columns_;
  size_t input_columns_ = 0;
  Matrix output_;
  Matrix input_gradient_;
};

/// max(x, 0).
class Relu : public Layer {
 public:
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
