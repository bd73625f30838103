// Local SGD: every rank trains a copy of the model on its own shard, and the copies meet every H steps.
//
// --period H. The outer step moves the common parameters by the mean of the ranks' changes. With
// --outer-momentum 0 and --outer-rate 1 that is periodic averaging; with 0.9 and 0.7 it is DiLoCo. H = 1 is
// bulk synchronous training, and with plain SGD the result is that of one process up to the order of sums.
// With S bytes of parameters a rank sends 2 (P-1)/P S / H bytes a step.
// Sources: Stich, "Local SGD converges fast and communicates little", 2019; Douillard et al., "DiLoCo", 2023.
#include <cmath>

#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {
namespace {

class LocalMode : public Mode {
 public:
  explicit LocalMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        axis_(context, 0, "data axis"),
        model_(context.task.model, options_.seed, SumOverRanks()),
        optimizer_(make_optimizer(options_.optimizer, model_.parameters())),
        sampler_(sampler_of(context, axis_.rank(), axis_.count())),
        common_(model_.parameters().values().begin(), model_.parameters().values().end()),
        velocity_(common_.size()) {}

  Loss step(size_t step) override {
    Parameters& parameters = model_.parameters();
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
    // A rank's own mean: until the copies meet, it is alone.
    const size_t targets =
        options_.batch / static_cast<size_t>(axis_.count()) * context_.task.data.train->targets_per_sample();
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part)
      loss += learn(context_, model_, sampler_.part(step, part), targets);
    optimizer_->step(step + 1, static_cast<float>(learning_rate(options_, step)));
    if ((step + 1) % options_.parallel.period == 0 || step + 1 == options_.steps) meet();
    return loss;
  }

  void copy_to(std::span<float> whole) override { model_.parameters().copy_to(whole); }

  std::vector<Fact> facts() override {
    const auto ranks = static_cast<double>(axis_.count());
    const auto bytes = static_cast<double>(common_.size() * sizeof(float));
    const auto steps = static_cast<double>(options_.steps);
    // Copies also meet after the last step.
    const double meetings = std::ceil(steps / static_cast<double>(options_.parallel.period));
    return {{"sent bytes a step", axis_.sent_bytes() / steps},
            {"by the formula", 2 * (ranks - 1) / ranks * bytes * meetings / steps},
            {"meetings", static_cast<double>(meetings_)}};
  }

 private:
  /// The outer step, with Nesterov's momentum: the mean change of the ranks is its gradient.
  void meet() {
    ++meetings_;
    const std::span<float> values = model_.parameters().values();
    for (size_t i = 0; i < values.size(); ++i) values[i] = common_[i] - values[i];
    axis_.all_reduce(values, TUTTI_AVG);
    const auto rate = static_cast<float>(options_.parallel.outer_rate);
    const auto momentum = static_cast<float>(options_.parallel.outer_momentum);
    for (size_t i = 0; i < values.size(); ++i) {
      velocity_[i] = momentum * velocity_[i] + values[i];
      common_[i] -= rate * (values[i] + momentum * velocity_[i]);
      values[i] = common_[i];
    }
  }

  const ModeContext& context_;
  const Options& options_;
  Axis axis_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  Sampler sampler_;
  std::vector<float> common_;  ///< the parameters after the last meeting
  std::vector<float> velocity_;
  size_t meetings_ = 0;
};

}  // namespace

std::unique_ptr<Mode> make_local_mode(const ModeContext& context) {
  return std::make_unique<LocalMode>(context);
}

}  // namespace tutti::trainer
