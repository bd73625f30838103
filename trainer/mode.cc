#include "trainer/mode.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <limits>
#include <numbers>
#include <thread>

#include "trainer/file.h"
#include "trainer/reporter.h"
#include "trainer/timeline.h"

namespace tutti::trainer {
namespace {

Loss sum_over_ranks(Team& team, const Loss& loss) {
  double sums[] = {loss.sum, static_cast<double>(loss.count), static_cast<double>(loss.correct)};
  team.sum(sums);
  return {.sum = sums[0], .count = static_cast<size_t>(sums[1]), .correct = static_cast<size_t>(sums[2])};
}

double nats(const Loss& loss) {
  return loss.sum / static_cast<double>(std::max<size_t>(loss.count, 1));
}

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

/// Steps, with a progress line now and then. Returns the seconds.
double train(const Options& options, Mode& mode, Team& team) {
  Loss recent;
  const uint64_t begin_ns = now_ns();
  for (size_t step = 0; step < options.steps; ++step) {
    if (team.rank() == options.parallel.kill_rank && step == options.parallel.kill_step) std::raise(SIGKILL);
    recent += mode.step(step);
    const bool last = step + 1 == options.steps;
    if (last) mode.finish();
    if (!last && (!mode.in_step() || (step + 1) % options.report_every != 0)) continue;
    const Loss all = sum_over_ranks(team, recent);
    recent = {};
    if (!std::isfinite(all.sum))
      team.agree("the loss is not a number by step " + std::to_string(step + 1) +
                 ": try a smaller --learning-rate");
    if (team.rank() == 0) std::printf("%8zu %12.6f\n", step + 1, nats(all));
    std::fflush(stdout);
  }
  return static_cast<double>(now_ns() - begin_ns) / 1e9;
}

}  // namespace

void run_mode(const Options& options, Team& team) {
  std::unique_ptr<Task> task;
  std::unique_ptr<Model> whole;
  together(team, [&] {
    task = std::make_unique<Task>(options);
    whole = std::make_unique<Model>(task->model, options.seed, SumOverRanks());
  });
  const ModeContext context{options, *task, team};
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
  const double seconds = train(options, *mode, team);
  std::vector<Fact> facts = mode->facts();
  facts.push_back({"resident MB at most", resident_bytes_max() / 1e6});
  print_facts(team, facts);
  const std::vector<float> values = whole_model(*mode, team, whole->parameters().whole_count());
  std::copy(values.begin(), values.end(), whole->parameters().values().begin());
  const Loss held_out =
      sum_over_ranks(team, evaluate(*whole, *task->data.held_out, static_cast<size_t>(team.rank()),
                                    static_cast<size_t>(team.count())));
  if (!prints) return;
  const auto steps = static_cast<double>(options.steps);
  std::printf("%.0f steps in %.2f s, %.3f ms a step, %.1f samples/s\n", steps, seconds, 1e3 * seconds / steps,
              steps * static_cast<double>(options.batch) / seconds);
  std::printf("held-out loss %.6f nats, %.4f bits, %.2f %% correct\nparameters %016llx\n", nats(held_out),
              score_of(held_out).bits, score_of(held_out).accuracy_percent,
              static_cast<unsigned long long>(whole->parameters().digest()));
  if (!options.parallel.parameters.empty())
    write_file(options.parallel.parameters, std::as_bytes(std::span(values)));
}

Sampler sampler_of(const ModeContext& context, int rank, int rank_count) {
  return Sampler({.sample_count = context.task.data.train->sample_count(),
                  .batch_count = context.options.batch,
                  .parts = context.options.accumulate,
                  .rank = rank,
                  .rank_count = rank_count,
                  .seed = context.options.seed});
}

Loss learn(Model& model, const Dataset& dataset, std::span<const uint32_t> samples, size_t target_count,
           const GradientReady& ready) {
  Batch batch;
  Matrix gradient;
  dataset.read(samples, &batch);
  const Matrix& output = model.forward(batch.input, true);
  const Loss loss = cross_entropy(output, batch.targets, 1 / static_cast<float>(target_count), &gradient);
  model.backward(gradient, ready);
  return loss;
}

Pace::Pace(const ParallelOptions& options, int rank, double weight)
    : factor_(rank == options.slow_rank ? options.slow_factor : 1),
      least_ns_(weight * options.pace_ms * 1e6),
      begin_ns_(now_ns()) {}

void Pace::wait() const {
  const auto passed_ns = static_cast<double>(now_ns() - begin_ns_);
  const double more_ns = std::max(factor_ * std::max(passed_ns, least_ns_), least_ns_) - passed_ns;
  if (more_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<int64_t>(more_ns)));
}

double resident_bytes_max() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace tutti::trainer
