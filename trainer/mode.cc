#include "trainer/mode.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <limits>
#include <thread>

#include "trainer/file.h"

namespace tutti::trainer {
namespace {

/// Gathers the parts of all ranks. What no rank holds stays 0, as the gaps between parameters.
std::vector<float> whole_model(Mode& mode, Team& team, size_t count) {
  std::vector<float> own(count, std::numeric_limits<float>::quiet_NaN());
  mode.copy_to(own);
  std::vector<float> whole(count);
  for (const auto& part : team.gather(std::as_bytes(std::span(own)))) {
    const auto* values = reinterpret_cast<const float*>(part.data());
    for (size_t i = 0; i < count; ++i)
      if (!std::isnan(values[i])) whole[i] = values[i];
  }
  return whole;
}

/// Every rank's facts, a column each.
void print_facts(Team& team, const std::vector<Fact>& facts) {
  std::vector<double> own;
  own.reserve(facts.size());
  for (const Fact& fact : facts) own.push_back(fact.value);
  const auto all = team.gather(std::as_bytes(std::span(own)));
  if (team.rank() != 0) return;
  for (size_t i = 0; i < facts.size(); ++i) {
    std::printf("%-36s", facts[i].name.c_str());
    for (const auto& column : all) std::printf(" %12.6g", reinterpret_cast<const double*>(column.data())[i]);
    std::printf("\n");
  }
}

/// When the run ended, and when its last steps, which are drawn, began. In seconds of the sketch.
struct Times {
  double all = 0;
  double drawn = 0;
};

/// Steps, with a progress line now and then.
Times train(const ModeContext& context, Mode& mode) {
  const Options& options = context.options;
  Team& team = context.team;
  const size_t drawn_steps = std::min(options.parallel.drawing_steps, options.steps);
  Times times;
  Loss recent;
  team.agree("");  // all ranks begin together
  context.sketch.begin();
  for (size_t step = 0; step < options.steps; ++step) {
    if (team.rank() == options.parallel.kill_rank && step == options.parallel.kill_step) std::raise(SIGKILL);
    if (step + drawn_steps == options.steps) times.drawn = context.sketch.now();
    recent += mode.step(step);
    const bool last = step + 1 == options.steps;
    if (last) recent += mode.finish();
    if (!last && (!mode.in_step() || (step + 1) % options.report_every != 0)) continue;
    const Loss all = sum_over_ranks(team, recent);
    recent = {};
    if (!std::isfinite(all.sum))
      team.agree("the loss is not a number by step " + std::to_string(step + 1) +
                 ": try a smaller --learning-rate");
    if (team.rank() == 0) std::printf("%8zu %12.6f\n", step + 1, all.nats());
    std::fflush(stdout);
  }
  times.all = context.sketch.now();
  return times;
}

void write_drawing(const ModeContext& context, const Mode& mode, double since) {
  const ParallelOptions& parallel = context.options.parallel;
  std::vector<Stroke> all = gather_strokes(context, mode.in_step() ? since : 0);
  if (context.rank != 0) return;
  double end = 0;
  for (const Stroke& stroke : all)
    if (!stroke.is_communication()) end = std::max(end, stroke.end);
  // Where ranks make their steps independently, the time of as many steps.
  if (!mode.in_step()) {
    since =
        end * (1 - static_cast<double>(parallel.drawing_steps) / static_cast<double>(context.options.steps));
    std::erase_if(all, [&](const Stroke& stroke) { return stroke.end < since || stroke.begin > end; });
  }
  for (Stroke& stroke : all) stroke.begin = std::max(stroke.begin, since);
  char title[96];
  std::snprintf(title, sizeof title, "%s, measured: the last %.0f ms", parallel.mode.c_str(),
                1e3 * (end - since));
  const std::string svg = draw(all, static_cast<size_t>(context.team.count()), title);
  write_file(parallel.drawing, std::as_bytes(std::span(svg)));
}

/// Options that name a rank or a step which the run does not have.
void check_ranks(const Options& options, int rank_count) {
  const auto check_rank = [&](const char* flag, int rank) {
    if (rank >= rank_count)
      throw Error(std::string(flag) + " names rank " + std::to_string(rank) + ", but there are " +
                  std::to_string(rank_count) + " ranks, from 0");
  };
  check_rank("--slow", options.parallel.slow_rank);
  check_rank("--kill", options.parallel.kill_rank);
  if (options.parallel.kill_rank >= 0 && options.parallel.kill_step >= options.steps)
    throw Error("--kill names step " + std::to_string(options.parallel.kill_step) + ", but there are " +
                std::to_string(options.steps) + " steps, from 0");
}

}  // namespace

void run_mode(const Options& options, Team& team) {
  std::unique_ptr<Task> task;
  std::unique_ptr<Model> whole;
  Sketch sketch(team.rank());
  together(team, [&] {
    check_ranks(options, team.count());
    if (team.rank() == 0)
      for (const auto& path : {options.parallel.drawing, options.parallel.parameters})
        if (!path.empty()) try_to_write(path);
    task = std::make_unique<Task>(options);
    whole = std::make_unique<Model>(task->model, options.seed, SumOverRanks());
  });
  const ModeContext context{{options, *task, sketch, team.rank()}, team};
  std::unique_ptr<Mode> mode;
  together(team, [&] {
    for (const ModeEntry& entry : modes())
      if (options.parallel.mode == entry.name) mode = entry.make(context);
  });
  const bool prints = team.rank() == 0;
  if (prints)
    std::printf("%s, %zu parameters, %d ranks\nmode %s\n%s\n%8s %12s\n", whole->description().c_str(),
                whole->parameters().trained_count(), team.count(), options.parallel.mode.c_str(),
                mode->about().c_str(), "step", "loss");
  std::fflush(stdout);
  const Times times = train(context, *mode);
  std::vector<Fact> facts = mode->facts();
  facts.push_back({"resident MB at most", resident_bytes_max() / 1e6});
  print_facts(team, facts);
  if (!options.parallel.drawing.empty()) together(team, [&] { write_drawing(context, *mode, times.drawn); });
  const std::vector<float> values = whole_model(*mode, team, whole->parameters().whole_count());
  std::copy(values.begin(), values.end(), whole->parameters().values().begin());
  const Loss held_out = evaluate(*whole, *task->data.held_out, team);
  if (!prints) return;
  const auto steps = static_cast<double>(options.steps);
  std::printf("%.0f steps in %.2f s, %.3f ms a step, %.1f samples/s\n", steps, times.all,
              1e3 * times.all / steps, steps * static_cast<double>(options.batch) / times.all);
  report_end(options, *whole, held_out);
}

std::vector<Stroke> gather_strokes(const ModeContext& context, double since) {
  const std::vector<Stroke> own = context.sketch.strokes(since);
  std::vector<Stroke> all;
  for (const auto& part : context.team.gather(std::as_bytes(std::span(own)))) {
    const auto* first = reinterpret_cast<const Stroke*>(part.data());
    all.insert(all.end(), first, first + part.size() / sizeof(Stroke));
  }
  return all;
}

void report_end(const Options& options, Model& model, const Loss& held_out) {
  std::printf("held-out loss %.6f nats, %.4f bits, %.2f %% correct\n", held_out.nats(), held_out.bits(),
              held_out.correct_percent());
  report_parameters(options, model.parameters());
}

Sampler sampler_of(const ModeContext& context, int rank, int rank_count) {
  return make_sampler(context.options, *context.task.data.train, rank, rank_count);
}

Loss learn(const Learner& learner, Model& model, std::span<const uint32_t> samples, size_t target_count,
           const GradientReady& ready) {
  Batch batch;
  Matrix gradient;
  learner.task.data.train->read(samples, &batch);
  const Pass forward(learner, Stroke::Kind::kForward);
  const Matrix& output = model.forward(batch.input, true);
  const Loss loss = cross_entropy(output, batch.targets, 1 / static_cast<float>(target_count), &gradient);
  forward.wait();
  const Pass backward(learner, Stroke::Kind::kBackward);
  model.backward(gradient, ready);
  backward.wait();
  return loss;
}

Pass::Pass(const Learner& learner, Stroke::Kind kind, const std::string& label)
    : learner_(learner), kind_(kind), label_(label), begin_(learner.sketch.now()) {}

void Pass::wait() const {
  const ParallelOptions& options = learner_.options.parallel;
  const double factor = learner_.rank == options.slow_rank ? options.slow_factor : 1;
  const double least = options.pace_ms / 1e3 * (kind_ == Stroke::Kind::kBackward ? 2 : 1);
  const double passed = learner_.sketch.now() - begin_;
  const double more = factor * std::max(passed, least) - passed;
  if (more > 0) std::this_thread::sleep_for(std::chrono::duration<double>(more));
  learner_.sketch.add(kind_, begin_, label_);
}

size_t pass_rows(const ModeContext& context, int rank_count) {
  const size_t parts = context.options.accumulate * static_cast<size_t>(rank_count);
  return context.options.batch / parts * context.task.data.train->targets_per_sample();
}

double activation_bytes(const ModeContext& context) {
  const ModelOptions& model = context.task.model;
  const size_t width = model.name == "transformer" ? model.width : kHidden;
  return static_cast<double>(context.options.batch * context.task.data.train->targets_per_sample() * width *
                             sizeof(float));
}

double resident_bytes_max() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace tutti::trainer
