// Expert parallel: every rank holds a part of the experts of each block (experts.h), and all of the rest.
//
// Ranks have different samples. In each block, rows travel to the rank of their expert and back, forward and
// backward: four all_to_all_v of about (P-1)/P of a rank's activations. An expert sees the rows of all ranks,
// so its gradient is complete; the other gradients are summed as in data parallel. The result is that of one
// process with all experts, up to the order of float sums.
#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {
namespace {

class ExpertMode : public Mode {
 public:
  explicit ExpertMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        axis_(context, 0, "expert axis"),
        model_(context.task.model, options_.seed, SumOverRanks(), multiply, host_backend(),
               {.expert = &axis_}),
        optimizer_(make_optimizer(options_.optimizer, model_.parameters())),
        sampler_(sampler_of(context, axis_.rank(), axis_.count())) {}

  Loss step(size_t step) override {
    Parameters& parameters = model_.parameters();
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
    const size_t targets = options_.batch * context_.task.data.train->targets_per_sample();
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part)
      loss += learn(context_, model_, sampler_.part(step, part), targets);
    const double before = axis_.sent_bytes();
    for (const Parameter& parameter : parameters.list())
      if (parameter.cut.held == Cut::Held::kCopy) axis_.all_reduce({parameter.gradient, parameter.count()});
    reduced_bytes_ += axis_.sent_bytes() - before;
    optimizer_->step(step + 1, static_cast<float>(learning_rate(options_, step)));
    return loss;
  }

  void copy_to(std::span<float> whole) override { model_.parameters().copy_to(whole); }

  std::vector<Fact> facts() override {
    const auto steps = static_cast<double>(options_.steps);
    const double ranks = axis_.count();
    return {{"sent bytes a step, rows", (axis_.sent_bytes() - reduced_bytes_) / steps},
            {"by the formula, if even", 4 * static_cast<double>(options_.model.depth) * (ranks - 1) / ranks *
                                            activation_bytes(context_) / ranks},
            {"sent bytes a step, gradients", reduced_bytes_ / steps},
            {"parameters held", static_cast<double>(model_.parameters().trained_count())}};
  }

 private:
  const ModeContext& context_;
  const Options& options_;
  Axis axis_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  Sampler sampler_;
  double reduced_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Mode> make_expert_mode(const ModeContext& context) {
  return std::make_unique<ExpertMode>(context);
}

}  // namespace tutti::trainer
