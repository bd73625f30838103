#include "trainer/layer.h"

#include <algorithm>

namespace tutti::trainer {
namespace {

void add(const Matrix& left, const Matrix& right, Matrix* sum) {
  sum->resize(left.rows(), left.columns());
  for (size_t i = 0; i < sum->size(); ++i) sum->data()[i] = left.data()[i] + right.data()[i];
}

}  // namespace

const Matrix& Sequence::forward(const Matrix& input, bool training) {
  const Matrix* current = &input;
  for (const auto& layer : layers_) current = &layer->forward(*current, training);
  return *current;
}

const Matrix& Sequence::backward(const Matrix& gradient, const GradientReady& ready) {
  const Matrix* current = &gradient;
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
    current = &(*layer)->backward(*current, ready);
  return *current;
}

const Matrix& Residual::forward(const Matrix& input, bool training) {
  add(input, layers_.forward(input, training), &output_);
  return output_;
}

const Matrix& Residual::backward(const Matrix& gradient, const GradientReady& ready) {
  add(gradient, layers_.backward(gradient, ready), &input_gradient_);
  return input_gradient_;
}

const Matrix& Reshape::forward(const Matrix& input, bool) {
  input_columns_ = input.columns();
  output_ = input;
  output_.resize(input.size() / columns_, columns_);
  return output_;
}

const Matrix& Reshape::backward(const Matrix& gradient, const GradientReady&) {
  input_gradient_ = gradient;
  input_gradient_.resize(gradient.size() / input_columns_, input_columns_);
  return input_gradient_;
}

const Matrix& Relu::forward(const Matrix& input, bool) {
  output_.resize(input.rows(), input.columns());
  for (size_t i = 0; i < input.size(); ++i) output_.data()[i] = std::max(input.data()[i], 0.0F);
  return output_;
}

const Matrix& Relu::backward(const Matrix& gradient, const GradientReady&) {
  input_gradient_.resize(gradient.rows(), gradient.columns());
  // A factor instead of a branch: the outputs are as good as random, so a branch would be mispredicted.
  for (size_t i = 0; i < gradient.size(); ++i)
    input_gradient_.data()[i] = gradient.data()[i] * static_cast<float>(output_.data()[i] > 0);
  return input_gradient_;
}

}  // namespace tutti::trainer
