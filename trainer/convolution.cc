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
      linear_(parameters, name, kNeighbours * inputs, outputs, std::move(product), std::sqrt(2.0F)) {}

const Matrix& Convolution::forward(const Matrix& input, bool training) {
  const size_t channels = input.columns();
  patches_.resize(input.rows(), kNeighbours * channels);
  for (size_t row = 0; row < input.rows(); ++row)
    for (size_t which = 0; which < kNeighbours; ++which) {
      float* patch = patches_.row(row) + which * channels;
      size_t from = 0;
      if (neighbour(row, which, side_, &from))
        std::copy(input.row(from), input.row(from) + channels, patch);
      else
        std::fill(patch, patch + channels, 0.0F);
    }
  return linear_.forward(patches_, training);
}

const Matrix& Convolution::backward(const Matrix& gradient, const GradientReady& ready) {
  const Matrix& outer = linear_.backward(gradient, ready);
  const size_t channels = outer.columns() / kNeighbours;
  input_gradient_.resize(gradient.rows(), channels);
  input_gradient_.fill(0);
  for (size_t row = 0; row < gradient.rows(); ++row)
    for (size_t which = 0; which < kNeighbours; ++which) {
      size_t to = 0;
      if (!neighbour(row, which, side_, &to)) continue;
      const float* patch = outer.row(row) + which * channels;
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
