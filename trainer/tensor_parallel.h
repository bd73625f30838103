// Tensor parallelism: the layers between which a block's matrices are cut over the ranks of an axis.
//
// The first matrix of a block is cut by columns, so each rank has a part of the features (or some heads) and
// needs no message. The second is cut by rows, so each rank has a summand of the output. Only two messages
// are left, named f and g: f is the identity forward and an all_reduce backward, g the other way round. With
// sequence parallelism every rank keeps a part of the rows between blocks. Then f is an all_gather forward
// and a reduce_scatter backward, g the other way round: the same bytes, and the norms are cut too.
// Sources: Shoeybi et al., "Megatron-LM", 2019; Korthikanti et al., "Reducing activation recomputation in
// large transformer models", 2022.
#pragma once

#include "trainer/layer.h"
#include "trainer/mesh.h"

namespace tutti::trainer {

/// How many of a pass's `rows` a rank keeps with sequence parallelism. Throws Error if they do not divide.
size_t own_rows(const Axis& axis, size_t rows);

/// f. With `by_rows` (sequence parallelism) from this rank's rows to all rows.
class EnterCut : public Layer {
 public:
  EnterCut(Axis& axis, bool by_rows) : axis_(axis), by_rows_(by_rows) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Axis& axis_;
  bool by_rows_;
  Matrix output_;
  Matrix input_gradient_;
};

/// A Linear whose weight is cut by rows, then g, then the bias.
class RowLinear : public Layer {
 public:
  /// `inputs`: of the whole weight. Maps [rows, inputs / ranks] to [rows, outputs], or with `by_rows` to this
  /// rank's rows of that.
  RowLinear(Parameters& parameters, const std::string& name, size_t inputs, size_t outputs, Product product,
            float gain, Axis& axis, bool by_rows);
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  Product product_;
  Axis& axis_;
  bool by_rows_;
  Parameter& weight_;
  Parameter& bias_;
  const Matrix* input_ = nullptr;
  Matrix summand_;
  Matrix output_;
  Matrix gradient_;
  Matrix input_gradient_;
};

/// Sequence parallelism's borders: keeps this rank's rows of an input that all ranks have, or joins all
/// ranks' rows for a layer that all ranks compute.
class RowBorder : public Layer {
 public:
  enum class Way { kTake, kJoin };
  RowBorder(Axis& axis, Way way) : axis_(axis), way_(way) {}
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  const Matrix& take(const Matrix& all, Matrix* own) const;
  const Matrix& join(const Matrix& own, Matrix* all) const;

  Axis& axis_;
  Way way_;
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
