// Pipeline parallel: layers on ranks as in layers.cc, but a batch is cut into micro-batches (--accumulate m),
// and ranks work on different micro-batches at once.
//
// --schedule gpipe: all forward, then all backward; m micro-batches are alive. 1f1b: one forward, one
// backward; at most p are alive. --chunks v: stages are interleaved, the bubble is v times smaller, and
// activations travel v times as often. These give the bits of one process that accumulates m parts.
// pipedream: never drains; an update after every micro-batch, and a stash of parameters for each that is
// alive. Bubble: (p - 1) / (v m + p - 1) of the time, if passes take equally long.
#include "trainer/pipeline.h"

#include "trainer/file.h"
#include "trainer/modes/list.h"

namespace tutti::trainer {
namespace {

class PipelineMode : public Mode {
 public:
  explicit PipelineMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        axis_(context, 0, "pipeline axis"),
        schedule_(make_schedule(options_.accumulate)),
        pipeline_({.context = context,
                   .axis = axis_,
                   .schedule = flushes() ? schedule_ : make_schedule(options_.accumulate * options_.steps),
                   .flushes = flushes()}) {}

  std::string about() const override {
    const size_t ranks = schedule_.shape().ranks;
    const std::vector<Bar> bars = schedule_.simulate();
    std::string text = schedule_.text();
    if (!options_.parallel.drawing.empty() && context_.team.rank() == 0) {
      const std::string svg = draw(strokes_of(bars), ranks, options_.parallel.schedule + ", on paper");
      const std::filesystem::path path = options_.parallel.drawing.string() + ".plan.svg";
      write_file(path, std::as_bytes(std::span(svg)));
      text += "drawn in " + path.string() + "\n";
    }
    return text + "checked: no deadlock; idle on paper " + std::to_string(100 * bubble_of(bars, ranks)) +
           " %";
  }

  Loss step(size_t step) override {
    // Without flushes only the run as a whole begins and ends idle.
    if (flushes()) begin_ = context_.sketch.now();
    return pipeline_.step(step);
  }
  void copy_to(std::span<float> whole) override { pipeline_.copy_to(whole); }

  std::vector<Fact> facts() override {
    const double idle = static_cast<double>(axis_.count() - 1);
    const auto passes = static_cast<double>(options_.parallel.chunks * options_.accumulate *
                                            (flushes() ? 1 : options_.steps));
    return {{"sent bytes a step", pipeline_.sent_bytes() / static_cast<double>(options_.steps)},
            {"by the formula", pipeline_.formula_bytes(activation_bytes(context_))},
            {"micro-batches alive at most", static_cast<double>(pipeline_.alive_max())},
            {"idle % measured",
             100 * idle_share(gather_strokes(context_, begin_), static_cast<size_t>(axis_.count()))},
            {"idle % by the formula", 100 * idle / (passes + idle)}};
  }

 private:
  bool flushes() const { return options_.parallel.schedule != "pipedream"; }

  Schedule make_schedule(size_t micro_batches) const {
    if (axis_.count() < 2) throw Error("a pipeline needs 2 ranks or more: --ranks");
    Schedule schedule =
        Schedule::named(options_.parallel.schedule, {.ranks = static_cast<size_t>(axis_.count()),
                                                     .micro_batches = micro_batches,
                                                     .chunks = options_.parallel.chunks});
    if (const std::string problem = schedule.problem(); !problem.empty())
      throw Error("the schedule does not work: " + problem);
    return schedule;
  }

  const ModeContext& context_;
  const Options& options_;
  Axis axis_;
  Schedule schedule_;
  Pipeline pipeline_;
  double begin_ = 0;  ///< of the last step
};

}  // namespace

std::unique_ptr<Mode> make_pipeline_mode(const ModeContext& context) {
  return std::make_unique<PipelineMode>(context);
}

}  // namespace tutti::trainer
