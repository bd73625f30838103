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
      : options_(context.options),
        team_(context.team),
        axis_(context.team.gradients(), 0, "pipeline axis"),
        schedule_(make_schedule(options_.accumulate)),
        pipeline_({.options = options_,
                   .task = context.task,
                   .axis = axis_,
                   .schedule = flushes() ? schedule_ : make_schedule(options_.accumulate * options_.steps),
                   .flushes = flushes()}) {}

  std::string about() const override {
    const Schedule::Shape& shape = schedule_.shape();
    std::string text = schedule_.text();
    if (!options_.parallel.drawing.empty()) {
      const std::string svg =
          draw(schedule_.simulate(), shape.ranks, options_.parallel.schedule + ", on paper");
      const std::filesystem::path path = options_.parallel.drawing.string() + ".plan.svg";
      write_file(path, std::as_bytes(std::span(svg)));
      text += "drawn in " + path.string() + "\n";
    }
    const double on_paper = bubble_of(schedule_.simulate(), shape.ranks);
    return text + "checked: no deadlock; idle on paper " + std::to_string(100 * on_paper) + " %";
  }

  Loss step(size_t step) override { return pipeline_.step(step); }
  void copy_to(std::span<float> whole) override { pipeline_.copy_to(whole); }

  std::vector<Fact> facts() override {
    const std::vector<Bar> bars = all_bars();
    const size_t ranks = schedule_.shape().ranks;
    if (team_.rank() == 0 && !options_.parallel.drawing.empty()) {
      const std::string svg = draw(bars, ranks, options_.parallel.schedule + ", measured");
      write_file(options_.parallel.drawing, std::as_bytes(std::span(svg)));
    }
    return {{"sent bytes a step", pipeline_.sent_bytes() / static_cast<double>(options_.steps)},
            {"micro-batches alive at most", static_cast<double>(pipeline_.alive_max())},
            {"idle % of the last step", 100 * bubble_of(bars, ranks)}};
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

  /// The passes of all ranks.
  std::vector<Bar> all_bars() {
    std::vector<Bar> bars;
    for (const auto& part : team_.gather(std::as_bytes(std::span(pipeline_.bars())))) {
      const auto* first = reinterpret_cast<const Bar*>(part.data());
      bars.insert(bars.end(), first, first + part.size() / sizeof(Bar));
    }
    return bars;
  }

  const Options& options_;
  Team& team_;
  Axis axis_;
  Schedule schedule_;
  Pipeline pipeline_;
};

}  // namespace

std::unique_ptr<Mode> make_pipeline_mode(const ModeContext& context) {
  return std::make_unique<PipelineMode>(context);
}

}  // namespace tutti::trainer
