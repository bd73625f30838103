// Tensor parallel: every rank has some columns and rows of each block's matrices (tensor_parallel.h).
//
// All ranks see all samples. A block needs two sums forward and two backward, of its activations: with
// n = characters of a batch x width x 4 bytes, a rank sends 4 x 2 (P - 1)/P n for a block.
// --sequence: an all_gather and a reduce_scatter in place of each sum: the same bytes, and a P-th of the rows
// between blocks. Then 2 (P - 1)/P n more cross the model's two ends, and the norms' gradients are summed.
// The result is that of one process up to the order of float sums.
#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"
#include "trainer/tensor_parallel.h"

namespace tutti::trainer {
namespace {

class TensorMode : public Mode {
 public:
  explicit TensorMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        mesh_(context, {{"tensor", context.team.count()}}),
        axis_(mesh_.axis("tensor")),
        model_(context.task.model, options_.seed, SumOverRanks(), multiply, host_backend(),
               {.tensor = &axis_, .sequence = options_.parallel.sequence}),
        optimizer_(make_optimizer(options_.optimizer, model_.parameters())),
        sampler_(sampler_of(context)) {
    if (options_.parallel.sequence) (void)own_rows(axis_, pass_rows(context));
  }

  std::string about() const override { return "mesh: " + mesh_.text(); }

  Loss step(size_t step) override {
    Parameters& parameters = model_.parameters();
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
    const size_t targets = options_.batch * context_.task.data.train->targets_per_sample();
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part)
      loss += learn(context_, model_, sampler_.part(step, part), targets);
    // With --sequence the norms have seen this rank's rows only.
    for (const Parameter& parameter : parameters.list())
      if (parameter.cut.held == Cut::Held::kPartialSum)
        axis_.all_reduce({parameter.gradient, parameter.count()});
    optimizer_->step(step + 1, static_cast<float>(learning_rate(options_, step)));
    // All ranks have the same loss: one of them reports.
    return axis_.rank() == 0 ? loss : Loss{};
  }

  void copy_to(std::span<float> whole) override { model_.parameters().copy_to(whole); }

  std::vector<Fact> facts() override {
    const double away = 1 - 1 / static_cast<double>(axis_.count());
    double formula = 8 * static_cast<double>(options_.model.depth) * activation_bytes(context_);
    if (options_.parallel.sequence) {
      formula += 2 * activation_bytes(context_);
      for (const Parameter& parameter : model_.parameters().list())
        if (parameter.cut.held == Cut::Held::kPartialSum)
          formula += 2 * static_cast<double>(parameter.count() * sizeof(float));
    }
    return {{"sent bytes a step", axis_.sent_bytes() / static_cast<double>(options_.steps)},
            {"by the formula", away * formula},
            {"parameters held", static_cast<double>(model_.parameters().trained_count())}};
  }

 private:
  const ModeContext& context_;
  const Options& options_;
  Mesh mesh_;
  Axis& axis_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Mode> make_tensor_mode(const ModeContext& context) {
  return std::make_unique<TensorMode>(context);
}

}  // namespace tutti::trainer
