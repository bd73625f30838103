#include "trainer/norm.h"

#include <cmath>

namespace tutti::trainer {
namespace {

constexpr float kEpsilon = 1e-5F;
constexpr float kMomentum = 0.1F;  // weight of the newest batch in the running statistics

/// output = scale * normal + shift, column by column.
void scale_and_shift(const Matrix& normal, const Parameter& scale, const Parameter& shift, Matrix* output) {
  output->resize(normal.rows(), normal.columns());
  for (size_t i = 0; i < normal.rows(); ++i)
    for (size_t j = 0; j < normal.columns(); ++j)
      output->row(i)[j] = normal.row(i)[j] * scale.value[j] + shift.value[j];
}

void report(const GradientReady& ready, const Parameter& shift, const Parameter& scale) {
  if (!ready) return;
  ready(shift);
  ready(scale);
}

}  // namespace

LayerNorm::LayerNorm(Parameters& parameters, const std::string& name, size_t width, Cut::Held held)
    : scale_(parameters.add(name + ".scale", 1, width, 0, 1, {.held = held})),
      shift_(parameters.add(name + ".shift", 1, width, 0, 0, {.held = held})) {}

const Matrix& LayerNorm::forward(const Matrix& input, bool) {
  const size_t width = input.columns();
  normal_.resize(input.rows(), width);
  inverse_deviation_.resize(input.rows());
  for (size_t i = 0; i < input.rows(); ++i) {
    const float* row = input.row(i);
    float mean = 0;
    for (size_t j = 0; j < width; ++j) mean += row[j];
    mean /= static_cast<float>(width);
    float variance = 0;
    for (size_t j = 0; j < width; ++j) variance += (row[j] - mean) * (row[j] - mean);
    inverse_deviation_[i] = 1 / std::sqrt(variance / static_cast<float>(width) + kEpsilon);
    for (size_t j = 0; j < width; ++j) normal_.row(i)[j] = (row[j] - mean) * inverse_deviation_[i];
  }
  scale_and_shift(normal_, scale_, shift_, &output_);
  return output_;
}

const Matrix& LayerNorm::backward(const Matrix& gradient, const GradientReady& ready) {
  const size_t width = gradient.columns();
  input_gradient_.resize(gradient.rows(), width);
  for (size_t i = 0; i < gradient.rows(); ++i) {
    const float* outer = gradient.row(i);
    const float* normal = normal_.row(i);
    float sum = 0;
    float dot = 0;
    for (size_t j = 0; j < width; ++j) {
      scale_.gradient[j] += outer[j] * normal[j];
      shift_.gradient[j] += outer[j];
      sum += outer[j] * scale_.value[j];
      dot += outer[j] * scale_.value[j] * normal[j];
    }
    sum /= static_cast<float>(width);
    dot /= static_cast<float>(width);
    for (size_t j = 0; j < width; ++j)
      input_gradient_.row(i)[j] =
          inverse_deviation_[i] * (outer[j] * scale_.value[j] - sum - normal[j] * dot);
  }
  report(ready, shift_, scale_);
  return input_gradient_;
}

BatchNorm::BatchNorm(Parameters& parameters, const std::string& name, size_t width,
                     SumOverRanks sum_over_ranks)
    : scale_(parameters.add(name + ".scale", 1, width, 0, 1)),
      shift_(parameters.add(name + ".shift", 1, width, 0)),
      running_mean_(parameters.add_buffer(name + ".mean", width, 0)),
      running_variance_(parameters.add_buffer(name + ".variance", width, 1)),
      sum_over_ranks_(std::move(sum_over_ranks)),
      mean_(width),
      inverse_deviation_(width) {}

void BatchNorm::measure(const Matrix& input) {
  const size_t width = input.columns();
  sums_.assign(2 * width + 1, 0);
  for (size_t i = 0; i < input.rows(); ++i) {
    const float* row = input.row(i);
    for (size_t j = 0; j < width; ++j) {
      sums_[j] += row[j];
      sums_[width + j] += static_cast<double>(row[j]) * row[j];
    }
  }
  sums_.back() = static_cast<double>(input.rows());
  if (sum_over_ranks_) sum_over_ranks_(sums_);
  row_count_ = std::max(sums_.back(), 1.0);
  for (size_t j = 0; j < width; ++j) {
    const double mean = sums_[j] / row_count_;
    const double variance = std::max(sums_[width + j] / row_count_ - mean * mean, 0.0);
    mean_[j] = static_cast<float>(mean);
    inverse_deviation_[j] = static_cast<float>(1 / std::sqrt(variance + kEpsilon));
    float& running_mean = running_mean_.values[j];
    float& running_variance = running_variance_.values[j];
    running_mean += kMomentum * (static_cast<float>(mean) - running_mean);
    running_variance += kMomentum * (static_cast<float>(variance) - running_variance);
  }
}

const Matrix& BatchNorm::forward(const Matrix& input, bool training) {
  if (training) {
    measure(input);
  } else {
    mean_ = running_mean_.values;
    for (size_t j = 0; j < mean_.size(); ++j)
      inverse_deviation_[j] = 1 / std::sqrt(running_variance_.values[j] + kEpsilon);
  }
  normal_.resize(input.rows(), input.columns());
  for (size_t i = 0; i < input.rows(); ++i)
    for (size_t j = 0; j < input.columns(); ++j)
      normal_.row(i)[j] = (input.row(i)[j] - mean_[j]) * inverse_deviation_[j];
  scale_and_shift(normal_, scale_, shift_, &output_);
  return output_;
}

const Matrix& BatchNorm::backward(const Matrix& gradient, const GradientReady& ready) {
  const size_t width = gradient.columns();
  std::vector<double>& sums = sums_;  // of the gradients, and of their products with the normalised values
  sums.assign(2 * width, 0);
  for (size_t i = 0; i < gradient.rows(); ++i)
    for (size_t j = 0; j < width; ++j) {
      sums[j] += gradient.row(i)[j];
      sums[width + j] += static_cast<double>(gradient.row(i)[j]) * normal_.row(i)[j];
    }
  // The parameters' gradients are this rank's part. They are summed over ranks later.
  for (size_t j = 0; j < width; ++j) {
    shift_.gradient[j] += static_cast<float>(sums[j]);
    scale_.gradient[j] += static_cast<float>(sums[width + j]);
  }
  report(ready, shift_, scale_);
  if (sum_over_ranks_) sum_over_ranks_(sums);
  input_gradient_.resize(gradient.rows(), width);
  for (size_t j = 0; j < width; ++j) {
    const auto sum = static_cast<float>(sums[j] / row_count_);
    const auto dot = static_cast<float>(sums[width + j] / row_count_);
    const float factor = scale_.value[j] * inverse_deviation_[j];
    for (size_t i = 0; i < gradient.rows(); ++i)
      input_gradient_.row(i)[j] = factor * (gradient.row(i)[j] - sum - normal_.row(i)[j] * dot);
  }
  return input_gradient_;
}

}  // namespace tutti::trainer
