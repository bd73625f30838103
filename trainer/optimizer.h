// Optimizers: how gradients change parameters. All ranks have equal gradients and do the same, so their
// parameters stay equal without messages.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/parameters.h"

namespace tutti::trainer {

/// Neighbouring numbers that an optimizer changes.
struct Piece {
  float* value = nullptr;
  const float* gradient = nullptr;
  size_t count = 0;
  bool decays = false;      ///< part of a matrix
  size_t state_offset = 0;  ///< of its first number in the optimizer's state
};

struct OptimizerOptions {
  std::string name = "adamw";  ///< or "sgd"
  float momentum = 0.9F;       ///< for sgd
  float weight_decay = 0.01F;  ///< for matrices; vectors do not decay
};

class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, std::vector<Piece> pieces, size_t lists, size_t state_count)
      : options_(options), pieces_(std::move(pieces)), state_(lists, std::vector<float>(state_count)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  /// Changes all values by their gradients. `step` counts from 1.
  virtual void step(size_t step, float learning_rate) = 0;
  /// State for a checkpoint, in addition to the parameters.
  std::vector<std::vector<float>>& state() { return state_; }

 protected:
  OptimizerOptions options_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<float>> state_;
};

/// Throws Error for an unknown name.
/// sgd: momentum after Sutskever et al., 2013. adamw: Loshchilov & Hutter, "Decoupled weight decay
/// regularization", 2019.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters& parameters);
/// For a part of the parameters. `state_count`: numbers of each of the optimizer's states.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, std::vector<Piece> pieces,
                                          size_t state_count);

/// The pieces of `parameters` in [begin, end) of their buffer, for values and gradients that begin there in
/// memory of their own.
std::vector<Piece> pieces_between(std::span<Parameter* const> parameters, size_t begin, size_t end,
                                  float* values, const float* gradients);

/// Scales the gradients down if their norm over all parameters exceeds `limit` (0: never). Returns the norm.
double clip_by_norm(Parameters& parameters, double limit);

}  // namespace tutti::trainer
