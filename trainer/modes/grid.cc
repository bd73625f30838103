// Data x pipeline x tensor: the three ways at once, on a mesh of ranks.
//
// Neighbouring ranks share matrices (they talk most), groups of these are the stages of a pipeline, and whole
// pipelines take shards of each batch. A rank's gradients are summed over the data axis before each update.
// Bytes: each axis has the bytes of its own mode, on a part of the model or of the batch.
// The result is that of one process up to the order of float sums.
#include "trainer/modes/list.h"
#include "trainer/pipeline.h"
#include "trainer/tensor_parallel.h"

namespace tutti::trainer {
namespace {

class GridMode : public Mode {
 public:
  explicit GridMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        mesh_(context, extents(context)),
        data_(mesh_.axis("data")),
        stages_(mesh_.axis("pipeline")),
        tensor_(mesh_.axis("tensor")),
        pipeline_({.context = context,
                   .axis = stages_,
                   .schedule = make_schedule(),
                   .placement = {.tensor = &tensor_, .sequence = options_.parallel.sequence},
                   .data_rank = static_cast<size_t>(data_.rank()),
                   .data_count = static_cast<size_t>(data_.count()),
                   .reduce = [this](Parameters& parameters) { reduce(parameters); }}) {
    if (options_.parallel.sequence) (void)own_rows(tensor_, pass_rows(context, data_.count()));
  }

  std::string about() const override { return "mesh: " + mesh_.text() + "\n" + make_schedule().text(); }

  Loss step(size_t step) override {
    const Loss loss = pipeline_.step(step);
    // All ranks of the tensor axis have the same loss: one of them reports.
    return tensor_.rank() == 0 ? loss : Loss{};
  }

  void copy_to(std::span<float> whole) override { pipeline_.copy_to(whole); }

  std::vector<Fact> facts() override {
    const auto steps = static_cast<double>(options_.steps);
    const double share = 1 / static_cast<double>(data_.count());
    return {{"sent bytes a step, data axis", data_.sent_bytes() / steps},
            {"by the formula, data", 2 * (1 - share) * reduced_bytes_},
            {"sent bytes a step, pipeline axis", pipeline_.sent_bytes() / steps},
            {"by the formula, pipeline", pipeline_.formula_bytes(share * activation_bytes(context_))},
            {"sent bytes a step, tensor axis", tensor_.sent_bytes() / steps}};
  }

 private:
  static std::vector<Mesh::Extent> extents(const ModeContext& context) {
    const ParallelOptions& parallel = context.options.parallel;
    const int group = parallel.pipeline_ranks * parallel.tensor_ranks;
    if (context.team.count() % group != 0)
      throw Error("--pipeline-ranks " + std::to_string(parallel.pipeline_ranks) + " x --tensor-ranks " +
                  std::to_string(parallel.tensor_ranks) + " does not divide " +
                  std::to_string(context.team.count()) + " ranks");
    return {{"data", context.team.count() / group},
            {"pipeline", parallel.pipeline_ranks},
            {"tensor", parallel.tensor_ranks}};
  }

  Schedule make_schedule() const {
    if (options_.parallel.schedule == "pipedream")
      throw Error("--mode grid sums gradients of whole batches: --schedule gpipe or 1f1b");
    return Schedule::named(options_.parallel.schedule, {.ranks = static_cast<size_t>(stages_.count()),
                                                        .micro_batches = options_.accumulate});
  }

  void reduce(Parameters& parameters) {
    for (const Parameter& parameter : parameters.list())
      if (parameter.cut.held == Cut::Held::kPartialSum)
        tensor_.all_reduce({parameter.gradient, parameter.count()});
    data_.all_reduce(parameters.gradients());
    reduced_bytes_ = static_cast<double>(parameters.gradients().size_bytes());
  }

  const ModeContext& context_;
  const Options& options_;
  Mesh mesh_;
  Axis& data_;
  Axis& stages_;
  Axis& tensor_;
  double reduced_bytes_ = 0;  ///< of this rank's gradients
  Pipeline pipeline_;
};

}  // namespace

std::unique_ptr<Mode> make_grid_mode(const ModeContext& context) {
  return std::make_unique<GridMode>(context);
}

}  // namespace tutti::trainer
