#include "trainer/optimizer.h"

#include <cmath>

#include "trainer/error.h"

namespace tutti::trainer {
namespace {

float decay_of(const Parameter& parameter, float weight_decay) {
  return parameter.rows > 1 ? weight_decay : 0;
}

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, Parameters& parameters) : Optimizer(parameters), options_(options) {
    state_.assign(1, std::vector<float>(parameters.values().size()));
  }
  void step(size_t, float learning_rate) override {
    for (const Parameter& parameter : parameters_.list()) {
      const float decay = decay_of(parameter, options_.weight_decay);
      float* velocity = state_[0].data() + parameter.offset;
      for (size_t i = 0; i < parameter.count(); ++i) {
        velocity[i] = options_.momentum * velocity[i] + parameter.gradient[i] + decay * parameter.value[i];
        parameter.value[i] -= learning_rate * velocity[i];
      }
    }
  }

 private:
  OptimizerOptions options_;
};

class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, Parameters& parameters) : Optimizer(parameters), options_(options) {
    state_.assign(2, std::vector<float>(parameters.values().size()));
  }
  void step(size_t step, float learning_rate) override {
    constexpr float kMean = 0.9F;
    constexpr float kSquare = 0.99F;
    constexpr float kEpsilon = 1e-8F;
    // Both averages start at 0. This corrects early steps.
    const auto mean_correction = static_cast<float>(1 / (1 - std::pow(kMean, static_cast<double>(step))));
    const auto square_correction = static_cast<float>(1 / (1 - std::pow(kSquare, static_cast<double>(step))));
    for (const Parameter& parameter : parameters_.list()) {
      const float keep = 1 - learning_rate * decay_of(parameter, options_.weight_decay);
      float* mean = state_[0].data() + parameter.offset;
      float* square = state_[1].data() + parameter.offset;
      for (size_t i = 0; i < parameter.count(); ++i) {
        const float gradient = parameter.gradient[i];
        mean[i] = kMean * mean[i] + (1 - kMean) * gradient;
        square[i] = kSquare * square[i] + (1 - kSquare) * gradient * gradient;
        parameter.value[i] =
            keep * parameter.value[i] - learning_rate * (mean[i] * mean_correction) /
                                            (std::sqrt(square[i] * square_correction) + kEpsilon);
      }
    }
  }

 private:
  OptimizerOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters& parameters) {
  if (options.name == "sgd") return std::make_unique<Sgd>(options, parameters);
  if (options.name == "adamw") return std::make_unique<AdamW>(options, parameters);
  throw Error("unknown optimizer '" + options.name + "': sgd or adamw");
}

double clip_by_norm(Parameters& parameters, double limit) {
  double squares = 0;
  for (const float gradient : parameters.gradients()) squares += static_cast<double>(gradient) * gradient;
  const double norm = std::sqrt(squares);
  if (limit > 0 && norm > limit) {
    const auto factor = static_cast<float>(limit / norm);
    for (float& gradient : parameters.gradients()) gradient *= factor;
  }
  return norm;
}

}  // namespace tutti::trainer
