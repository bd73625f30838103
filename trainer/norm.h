// Normalisation: of each row (LayerNorm), or of columns over the batch (BatchNorm), optionally over all
// ranks.
#pragma once

#include <functional>
#include <span>

#include "trainer/layer.h"

namespace tutti::trainer {

/// Gives each row mean 0 and variance 1, then applies a scale and a shift for each column.
/// Source: Ba, Kiros & Hinton, "Layer normalization", 2016.
class LayerNorm : public Layer {
 public:
  /// `held`: kPartialSum if ranks have different rows.
  LayerNorm(Parameters& parameters, const std::string& name, size_t width, Cut::Held held = Cut::Held::kCopy);
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Parameter& scale_;
  Parameter& shift_;
  Matrix normal_;
  std::vector<float> inverse_deviation_;  ///< of each row
  Matrix output_;
  Matrix input_gradient_;
};

/// Replaces the numbers by their sums over all ranks. Blocks. Every rank calls it in the same order.
using SumOverRanks = std::function<void(std::span<double>)>;

/// Gives each column mean 0 and variance 1 over the rows of the batch, then applies a scale and a shift. With
/// `sum_over_ranks` the batch spans all ranks (synchronised), so the model does not depend on how samples are
/// spread; else it is the rank's own. Outside training uses the running statistics.
/// Source: Ioffe & Szegedy, "Batch normalization", 2015.
class BatchNorm : public Layer {
 public:
  BatchNorm(Parameters& parameters, const std::string& name, size_t width, SumOverRanks sum_over_ranks);
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  /// Computes the mean and inverse deviation of the batch, and updates the running statistics.
  void measure(const Matrix& input);

  Parameter& scale_;
  Parameter& shift_;
  Buffer& running_mean_;
  Buffer& running_variance_;
  SumOverRanks sum_over_ranks_;
  std::vector<double> sums_;  ///< of values, of squares, and the number of rows
  double row_count_ = 0;      ///< rows of all ranks in the sum
  std::vector<float> mean_;
  std::vector<float> inverse_deviation_;
  Matrix normal_;
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
