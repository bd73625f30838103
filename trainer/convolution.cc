#include "trainer/convolution.h"

#include <cmath>

namespace tutti::trainer {
namespace {

constexpr size_t kNeighbours = 9;

/// The row of neighbour 0..8 of pixel `row`, in reading order (4 is the pixel itself). False outside the
/// image.
bool neighbour(size_t row, size_t which, size_t side, size_t* result) {
  const size_t x = row % side + which % 3;
  const size_t y = row / side % side + which / 3;
  if (x < 1 || y < 1 || x > side || y > side) return false;
  *result = row + (which / 3) * side + which % 3 - side - 1;
  return true;
}

}  // namespace

Convolution::Convolution(Parameters& parameters, const std::string& name, size_t side, size_t inputs,
                         size_t outputs, Product product)
    : side_(side),
      product_(std::move(product)),
      weight_(parameters.add(name + ".weight", kNeighbours * inputs, outputs,
                             std::sqrt(2 / static_cast<float>(kNeighbours * inputs)))),
      bias_(parameters.add(name + ".bias", 1, outputs, 0)) {}

const Matrix& Convolution::forward(const Matrix& input, bool) {
  const size_t channels = input.columns();
  patches_.resize(input.rows(), weight_.rows);
  output_.resize(input.rows(), weight_.columns);
  for (size_t row = 0; row < input.rows(); ++row) {
    for (size_t which = 0; which < kNeighbours; ++which) {
      float* patch = patches_.row(row) + which * channels;
      size_t from = 0;
      if (neighbour(row, which, side_, &from))
        std::copy(input.row(from), input.row(from) + channels, patch);
      else
        std::fill(patch, patch + channels, 0.0F);
    }
    std::copy(bias_.value, bias_.value + bias_.columns, output_.row(row));
  }
  product_(patches_.block(), weight_.value_block(), output_.block(), {.accumulate = true});
  return output_;
}

const Matrix& Convolution::backward(const Matrix& gradient, const GradientReady& ready) {
  product_(patches_.block(), gradient.block(), weight_.gradient_block(),
           {.transpose_left = true, .accumulate = true});
  for (size_t i = 0; i < gradient.rows(); ++i)
    for (size_t j = 0; j < gradient.columns(); ++j) bias_.gradient[j] += gradient.row(i)[j];
  if (ready) {
    ready(bias_);
    ready(weight_);
  }
  const size_t channels = weight_.rows / kNeighbours;
  patches_gradient_.resize(gradient.rows(), weight_.rows);
  product_(gradient.block(), weight_.value_block(), patches_gradient_.block(), {.transpose_right = true});
  input_gradient_.resize(gradient.rows(), channels);
  input_gradient_.fill(0);
  for (size_t row = 0; row < gradient.rows(); ++row)
    for (size_t which = 0; which < kNeighbours; ++which) {
      size_t to = 0;
      if (!neighbour(row, which, side_, &to)) continue;
      const float* patch = patches_gradient_.row(row) + which * channels;
      for (size_t j = 0; j < channels; ++j) input_gradient_.row(to)[j] += patch[j];
    }
  return input_gradient_;
}

const Matrix& MaxPool::forward(const Matrix& input, bool) {
  const size_t half = side_ / 2;
  input_rows_ = input.rows();
  output_.resize(input.rows() / 4, input.columns());
  sources_.resize(output_.size());
  for (size_t row = 0; row < output_.rows(); ++row) {
    const size_t image = row / (half * half);
    const size_t first = image * side_ * side_ + row / half % half * 2 * side_ + row % half * 2;
    for (size_t j = 0; j < input.columns(); ++j) {
      size_t best = first;
      for (const size_t other : {first + 1, first + side_, first + side_ + 1})
        if (input.row(other)[j] > input.row(best)[j]) best = other;
      output_.row(row)[j] = input.row(best)[j];
      sources_[row * input.columns() + j] = best;
    }
  }
  return output_;
}

const Matrix& MaxPool::backward(const Matrix& gradient, const GradientReady&) {
  input_gradient_.resize(input_rows_, gradient.columns());
  input_gradient_.fill(0);
  for (size_t i = 0; i < gradient.size(); ++i)
    input_gradient_.row(sources_[i])[i % gradient.columns()] += gradient.data()[i];
  return input_gradient_;
}

}  // namespace tutti::trainer
