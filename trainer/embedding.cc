#include "trainer/embedding.h"

#include <cassert>

namespace tutti::trainer {
namespace {

constexpr float kDeviation = 0.1F;

}  // namespace

Embedding::Embedding(Parameters& parameters, size_t vocabulary, size_t context, size_t width)
    : token_(parameters.add("embedding.token", vocabulary, width, kDeviation)),
      position_(parameters.add("embedding.position", context, width, kDeviation)) {}

const Matrix& Embedding::forward(const Matrix& input, bool) {
  assert(input.columns() == position_.rows);
  input_ = &input;
  const size_t width = token_.columns;
  output_.resize(input.size(), width);
  for (size_t i = 0; i < input.size(); ++i) {
    const float* token = token_.value + static_cast<size_t>(input.data()[i]) * width;
    const float* position = position_.value + i % input.columns() * width;
    for (size_t j = 0; j < width; ++j) output_.row(i)[j] = token[j] + position[j];
  }
  return output_;
}

const Matrix& Embedding::backward(const Matrix& gradient, const GradientReady& ready) {
  const size_t width = token_.columns;
  for (size_t i = 0; i < gradient.rows(); ++i) {
    float* token = token_.gradient + static_cast<size_t>(input_->data()[i]) * width;
    float* position = position_.gradient + i % input_->columns() * width;
    for (size_t j = 0; j < width; ++j) {
      token[j] += gradient.row(i)[j];
      position[j] += gradient.row(i)[j];
    }
  }
  if (ready) {
    ready(position_);
    ready(token_);
  }
  return nothing_;
}

}  // namespace tutti::trainer
