#include "trainer/task.h"

#include <cmath>
#include <cstdio>
#include <numbers>
#include <numeric>

#include "trainer/file.h"
#include "trainer/images.h"

namespace tutti::trainer {
namespace {

constexpr size_t kEvaluationBatch = 64;
constexpr size_t kWarmUpSteps = 50;  // steps in which the learning rate grows

/// The loss on one of `part_count` equal parts of the data set.
Loss evaluate_part(Model& model, const Dataset& dataset, size_t part, size_t part_count) {
  const size_t count = dataset.sample_count();
  const size_t end = count * (part + 1) / part_count;
  Loss loss;
  Batch batch;
  std::vector<uint32_t> samples;
  for (size_t first = count * part / part_count; first < end; first += samples.size()) {
    samples.resize(std::min(kEvaluationBatch, end - first));
    std::iota(samples.begin(), samples.end(), static_cast<uint32_t>(first));
    dataset.read(samples, &batch);
    loss += cross_entropy(model.forward(batch.input, false), batch.targets, 0, nullptr);
  }
  return loss;
}

}  // namespace

Task::Task(const Options& options) : model(options.model) {
  if (options.model.name == "transformer") {
    text = read_text(options.data);
    vocabulary.emplace(text->train + text->held_out);
    data = make_text_data(*text, *vocabulary, options.model.context);
  } else if (options.data.empty()) {
    data = draw_digits(options.digits, options.digits / 8, options.seed);
  } else {
    data = read_idx_folder(options.data.front());
  }
  model.classes = data.classes;
  if (data.side > 0) model.side = data.side;
}

double learning_rate(const Options& options, size_t step) {
  const auto done = static_cast<double>(step);
  const auto steps = static_cast<double>(options.steps);
  const double warm_up = std::min(1.0, (done + 1) / std::min<double>(kWarmUpSteps, steps / 10 + 1));
  const double fall = 0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, done / steps)));
  return options.learning_rate * warm_up * fall;
}

Sampler make_sampler(const Options& options, const Dataset& dataset, int rank, int rank_count) {
  return Sampler({.sample_count = dataset.sample_count(),
                  .batch_count = options.batch,
                  .parts = options.accumulate,
                  .rank = rank,
                  .rank_count = rank_count,
                  .uneven = options.uneven,
                  .seed = options.seed});
}

Loss sum_over_ranks(Team& team, const Loss& loss) {
  double sums[] = {loss.sum, static_cast<double>(loss.count), static_cast<double>(loss.correct)};
  team.sum(sums);
  return {.sum = sums[0], .count = static_cast<size_t>(sums[1]), .correct = static_cast<size_t>(sums[2])};
}

Loss evaluate(Model& model, const Dataset& dataset) {
  return evaluate_part(model, dataset, 0, 1);
}

Loss evaluate(Model& model, const Dataset& dataset, Team& team) {
  return sum_over_ranks(team, evaluate_part(model, dataset, static_cast<size_t>(team.rank()),
                                            static_cast<size_t>(team.count())));
}

void report_parameters(const Options& options, Parameters& parameters) {
  std::printf("parameters %016llx\n", static_cast<unsigned long long>(parameters.digest()));
  if (!options.parallel.parameters.empty())
    write_file(options.parallel.parameters, std::as_bytes(parameters.values()));
}

}  // namespace tutti::trainer
