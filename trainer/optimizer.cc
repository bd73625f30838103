#include "trainer/optimizer.h"

#include <cmath>

#include "trainer/error.h"

namespace tutti::trainer {
namespace {

class Sgd : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void step(size_t, float learning_rate) override {
    for (const Piece& piece : pieces_) {
      const float decay = piece.decays ? options_.weight_decay : 0;
      float* velocity = state_[0].data() + piece.state_offset;
      for (size_t i = 0; i < piece.count; ++i) {
        velocity[i] = options_.momentum * velocity[i] + piece.gradient[i] + decay * piece.value[i];
        piece.value[i] -= learning_rate * velocity[i];
      }
    }
  }
};

class AdamW : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void step(size_t step, float learning_rate) override {
    constexpr float kMean = 0.9F;
    constexpr float kSquare = 0.99F;
    constexpr float kEpsilon = 1e-8F;
    // Both averages start at 0. This corrects early steps.
    const auto mean_correction = static_cast<float>(1 / (1 - std::pow(kMean, static_cast<double>(step))));
    const auto square_correction = static_cast<float>(1 / (1 - std::pow(kSquare, static_cast<double>(step))));
    for (const Piece& piece : pieces_) {
      const float keep = 1 - learning_rate * (piece.decays ? options_.weight_decay : 0);
      float* mean = state_[0].data() + piece.state_offset;
      float* square = state_[1].data() + piece.state_offset;
      for (size_t i = 0; i < piece.count; ++i) {
        const float gradient = piece.gradient[i];
        mean[i] = kMean * mean[i] + (1 - kMean) * gradient;
        square[i] = kSquare * square[i] + (1 - kSquare) * gradient * gradient;
        piece.value[i] = keep * piece.value[i] - learning_rate * (mean[i] * mean_correction) /
                                                     (std::sqrt(square[i] * square_correction) + kEpsilon);
      }
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, std::vector<Piece> pieces,
                                          size_t state_count) {
  if (options.name == "sgd") return std::make_unique<Sgd>(options, std::move(pieces), 1, state_count);
  if (options.name == "adamw") return std::make_unique<AdamW>(options, std::move(pieces), 2, state_count);
  throw Error("unknown optimizer '" + options.name + "': sgd or adamw");
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters& parameters) {
  std::vector<Piece> pieces;
  for (const Parameter& parameter : parameters.list())
    pieces.push_back({parameter.value, parameter.gradient, parameter.count(), parameter.whole_rows() > 1,
                      parameter.offset});
  return make_optimizer(options, std::move(pieces), parameters.values().size());
}

std::vector<Piece> pieces_between(std::span<Parameter* const> parameters, size_t begin, size_t end,
                                  float* values, const float* gradients) {
  std::vector<Piece> pieces;
  for (const Parameter* parameter : parameters) {
    const size_t first = std::max(begin, parameter->offset);
    const size_t last = std::min(end, parameter->offset + parameter->count());
    if (first >= last) continue;
    const size_t at = first - begin;
    pieces.push_back({values + at, gradients + at, last - first, parameter->whole_rows() > 1, at});
  }
  return pieces;
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
