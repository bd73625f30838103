#include "trainer/tensor_parallel.h"

#include <cmath>

namespace tutti::trainer {
namespace {

std::span<float> all_of(Matrix& matrix) {
  return {matrix.data(), matrix.size()};
}

void gather_rows(Axis& axis, const Matrix& own, Matrix* all) {
  all->resize(own.rows() * static_cast<size_t>(axis.count()), own.columns());
  axis.all_gather({own.data(), own.size()}, all->data());
}

/// The sum over the ranks: of all rows, or of this rank's rows.
void sum(Axis& axis, const Matrix& summand, bool by_rows, Matrix* result) {
  result->resize(by_rows ? own_rows(axis, summand.rows()) : summand.rows(), summand.columns());
  if (by_rows) {
    axis.reduce_scatter(summand.data(), all_of(*result));
  } else {
    std::copy(summand.data(), summand.data() + summand.size(), result->data());
    axis.all_reduce(all_of(*result));
  }
}

}  // namespace

size_t own_rows(const Axis& axis, size_t rows) {
  const auto ranks = static_cast<size_t>(axis.count());
  if (rows % ranks != 0)
    throw Error("--sequence: the " + std::to_string(rows) + " characters of a pass do not divide among " +
                std::to_string(ranks) + " ranks: change --batch, --accumulate or --context");
  return rows / ranks;
}

const Matrix& EnterCut::forward(const Matrix& input, bool) {
  if (!by_rows_) return input;
  gather_rows(axis_, input, &output_);
  return output_;
}

const Matrix& EnterCut::backward(const Matrix& gradient, const GradientReady&) {
  sum(axis_, gradient, by_rows_, &input_gradient_);
  return input_gradient_;
}

RowLinear::RowLinear(Parameters& parameters, const std::string& name, size_t inputs, size_t outputs,
                     Product product, float gain, Axis& axis, bool by_rows)
    : product_(std::move(product)),
      axis_(axis),
      by_rows_(by_rows),
      weight_(parameters.add(name + ".weight", inputs, outputs, gain / std::sqrt(static_cast<float>(inputs)),
                             0,
                             {.part = static_cast<size_t>(axis.rank()),
                              .count = static_cast<size_t>(axis.count()),
                              .of_rows = true})),
      bias_(parameters.add(name + ".bias", 1, outputs, 0, 0,
                           {.held = by_rows ? Cut::Held::kPartialSum : Cut::Held::kCopy})) {}

const Matrix& RowLinear::forward(const Matrix& input, bool) {
  input_ = &input;
  summand_.resize(input.rows(), weight_.columns);
  product_(input.block(), weight_.value_block(), summand_.block(), {});
  sum(axis_, summand_, by_rows_, &output_);
  for (size_t i = 0; i < output_.rows(); ++i)
    for (size_t j = 0; j < output_.columns(); ++j) output_.row(i)[j] += bias_.value[j];
  return output_;
}

const Matrix& RowLinear::backward(const Matrix& gradient, const GradientReady& ready) {
  for (size_t i = 0; i < gradient.rows(); ++i)
    for (size_t j = 0; j < gradient.columns(); ++j) bias_.gradient[j] += gradient.row(i)[j];
  const Matrix* whole = &gradient;
  if (by_rows_) {
    gather_rows(axis_, gradient, &gradient_);
    whole = &gradient_;
  }
  product_(input_->block(), whole->block(), weight_.gradient_block(),
           {.transpose_left = true, .accumulate = true});
  if (ready) {
    ready(bias_);
    ready(weight_);
  }
  input_gradient_.resize(whole->rows(), weight_.rows);
  product_(whole->block(), weight_.value_block(), input_gradient_.block(), {.transpose_right = true});
  return input_gradient_;
}

const Matrix& RowBorder::take(const Matrix& all, Matrix* own) const {
  const size_t rows = own_rows(axis_, all.rows());
  own->resize(rows, all.columns());
  const float* first = all.row(rows * static_cast<size_t>(axis_.rank()));
  std::copy(first, first + own->size(), own->data());
  return *own;
}

const Matrix& RowBorder::join(const Matrix& own, Matrix* all) const {
  gather_rows(axis_, own, all);
  return *all;
}

const Matrix& RowBorder::forward(const Matrix& input, bool) {
  return way_ == Way::kTake ? take(input, &output_) : join(input, &output_);
}

const Matrix& RowBorder::backward(const Matrix& gradient, const GradientReady&) {
  return way_ == Way::kTake ? join(gradient, &input_gradient_) : take(gradient, &input_gradient_);
}

}  // namespace tutti::trainer
