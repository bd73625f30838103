// Tensor parallel: every rank has some columns and rows of each block's matrices (tensor_parallel.h).
//
// All ranks see all samples. A block needs two sums forward and two backward, of its activations: with
// n = characters of a batch x width x 4 bytes, a rank sends 4 x 2 (P - 1)/P n for a block.
// --sequence: an all_gather and a reduce_scatter in place of each sum: the same bytes, and a P-th of the rows
// between blocks. There, P - 1/P n more go over the model's two ends.
// The result is that of one process up to the order of float sums.
#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {
namespace {

class TensorMode : public Mode {
 public:
  explicit TensorMode(const ModeContext& context)
      : options_(context.options),
        data_(*context.task.data.train),
        mesh_(context.team.gradients(), {{"tensor", context.team.count()}}),
        axis_(mesh_.axis("tensor")),
        model_(context.task.model, options_.seed, SumOverRanks(), multiply, host_backend(),
               {.tensor = &axis_, .sequence = options_.parallel.sequence}),
        optimizer_(make_optimizer(options_.optimizer, model_.parameters())),
        sampler_(sampler_of(context)) {}

  std::string about() const override { return "mesh: " + mesh_.text(); }

  Loss step(size_t step) override {
    Parameters& parameters = model_.parameters();
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part)
      loss += learn(model_, data_, sampler_.part(step, part), options_.batch * data_.targets_per_sample());
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
    const auto ranks = static_cast<double>(axis_.count());
    const auto numbers = static_cast<double>(options_.batch * data_.targets_per_sample() *
                                             options_.model.width * sizeof(float));
    return {{"sent bytes a step", axis_.sent_bytes() / static_cast<double>(options_.steps)},
            {"by the formula", static_cast<double>(options_.model.depth) * 8 * (ranks - 1) / ranks * numbers},
            {"parameters held", static_cast<double>(model_.parameters().trained_count())}};
  }

 private:
  const Options& options_;
  const Dataset& data_;
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
