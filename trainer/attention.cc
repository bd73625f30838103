#include "trainer/attention.h"

#include <cmath>

namespace tutti::trainer {
namespace {

/// One head's view of one sample, in a matrix whose rows hold `parts` parts of `width`.
struct Head {
  size_t sample;
  size_t head;
  size_t context;
  size_t head_width;

  Block of(const Matrix& matrix, size_t part, size_t width) const {
    const Block whole = matrix.block();
    float* first = whole.data + sample * context * whole.stride + part * width + head * head_width;
    return {first, context, head_width, whole.stride};
  }
};

/// Row i becomes the softmax of its first i + 1 numbers; the other numbers become 0, so that no character
/// sees the future.
void causal_softmax(Block scores) {
  for (size_t i = 0; i < scores.rows; ++i) {
    float* row = scores.data + i * scores.stride;
    const float largest = *std::max_element(row, row + i + 1);
    float sum = 0;
    for (size_t j = 0; j <= i; ++j) sum += row[j] = std::exp(row[j] - largest);
    for (size_t j = 0; j <= i; ++j) row[j] /= sum;
    std::fill(row + i + 1, row + scores.columns, 0.0F);
  }
}

/// Turns the gradient with respect to the weights into the gradient with respect to the scores.
void softmax_backward(Block weights, Block gradient) {
  for (size_t i = 0; i < weights.rows; ++i) {
    const float* weight = weights.data + i * weights.stride;
    float* row = gradient.data + i * gradient.stride;
    float dot = 0;
    for (size_t j = 0; j <= i; ++j) dot += weight[j] * row[j];
    for (size_t j = 0; j < weights.columns; ++j) row[j] = weight[j] * (row[j] - dot);
  }
}

}  // namespace

const Matrix& Attention::forward(const Matrix& input, bool) {
  input_ = &input;
  const size_t width = input.columns() / 3;
  const size_t samples = input.rows() / context_;
  const size_t head_width = width / heads_;
  const float scale = 1 / std::sqrt(static_cast<float>(head_width));
  output_.resize(input.rows(), width);
  weights_.resize(samples * heads_ * context_, context_);
  for (size_t i = 0; i < samples * heads_; ++i) {
    const Head head{i / heads_, i % heads_, context_, head_width};
    const Block weights{weights_.row(i * context_), context_, context_, context_};
    product_(head.of(input, 0, width), head.of(input, 1, width), weights,
             {.transpose_right = true, .scale = scale});
    causal_softmax(weights);
    product_(weights, head.of(input, 2, width), head.of(output_, 0, width), {});
  }
  return output_;
}

const Matrix& Attention::backward(const Matrix& gradient, const GradientReady&) {
  const size_t width = gradient.columns();
  const size_t samples = gradient.rows() / context_;
  const size_t head_width = width / heads_;
  const float scale = 1 / std::sqrt(static_cast<float>(head_width));
  input_gradient_.resize(gradient.rows(), 3 * width);
  weights_gradient_.resize(context_, context_);
  for (size_t i = 0; i < samples * heads_; ++i) {
    const Head head{i / heads_, i % heads_, context_, head_width};
    const Block weights{weights_.row(i * context_), context_, context_, context_};
    const Block inner = weights_gradient_.block();
    const Block outer = head.of(gradient, 0, width);
    product_(outer, head.of(*input_, 2, width), inner, {.transpose_right = true});
    product_(weights, outer, head.of(input_gradient_, 2, width), {.transpose_left = true});
    softmax_backward(weights, inner);
    product_(inner, head.of(*input_, 1, width), head.of(input_gradient_, 0, width), {.scale = scale});
    product_(inner, head.of(*input_, 0, width), head.of(input_gradient_, 1, width),
             {.transpose_left = true, .scale = scale});
  }
  return input_gradient_;
}

}  // namespace tutti::trainer
