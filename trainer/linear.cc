#include "trainer/linear.h"

#include <cassert>
#include <cmath>

namespace tutti::trainer {

Linear::Linear(Parameters& parameters, const std::string& name, size_t inputs, size_t outputs,
               Product product, float gain, const Cut& cut)
    : product_(std::move(product)),
      weight_(parameters.add(name + ".weight", inputs, outputs, gain / std::sqrt(static_cast<float>(inputs)),
                             0, cut)),
      bias_(parameters.add(name + ".bias", 1, outputs, 0, 0, cut)) {}

const Matrix& Linear::forward(const Matrix& input, bool) {
  assert(input.columns() == weight_.rows);
  input_ = &input;
  output_.resize(input.rows(), weight_.columns);
  for (size_t i = 0; i < output_.rows(); ++i)
    std::copy(bias_.value, bias_.value + bias_.columns, output_.row(i));
  product_(input.block(), weight_.value_block(), output_.block(), {.accumulate = true});
  return output_;
}

const Matrix& Linear::backward(const Matrix& gradient, const GradientReady& ready) {
  // The parameters first: their reduction can begin while the input's gradient is computed.
  product_(input_->block(), gradient.block(), weight_.gradient_block(),
           {.transpose_left = true, .accumulate = true});
  for (size_t i = 0; i < gradient.rows(); ++i)
    for (size_t j = 0; j < gradient.columns(); ++j) bias_.gradient[j] += gradient.row(i)[j];
  if (ready) {
    ready(bias_);
    ready(weight_);
  }
  input_gradient_.resize(gradient.rows(), weight_.rows);
  product_(gradient.block(), weight_.value_block(), input_gradient_.block(), {.transpose_right = true});
  return input_gradient_;
}

}  // namespace tutti::trainer
