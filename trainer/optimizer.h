// Optimizers: how gradients change parameters. All ranks have equal gradients and do the same, so their
// parameters stay equal without messages.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/parameters.h"

namespace tutti::trainer {

class Optimizer {
 public:
  explicit Optimizer(Parameters& parameters) : parameters_(parameters) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  /// Changes all values by their gradients. `step` counts from 1.
  virtual void step(size_t step, float learning_rate) = 0;
  /// State for a checkpoint, in addition to the parameters.
  std::vector<std::vector<float>>& state() { return state_; }

 protected:
  Parameters& parameters_;
  std::vector<std::vector<float>> state_;
};

struct OptimizerOptions {
  std::string name = "adamw";  ///< or "sgd"
  float momentum = 0.9F;       ///< for sgd
  float weight_decay = 0.01F;  ///< for matrices; vectors do not decay
};

/// Throws Error for an unknown name.
/// sgd: momentum after Sutskever et al., 2013. adamw: Loshchilov & Hutter, "Decoupled weight decay
/// regularization", 2019.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters& parameters);

/// Scales the gradients down if their norm over all parameters exceeds `limit` (0: never). Returns the norm.
double clip_by_norm(Parameters& parameters, double limit);

}  // namespace tutti::trainer
