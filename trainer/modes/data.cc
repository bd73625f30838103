// Data parallel: every rank has a copy of the model and a shard of each batch.
//
// Buckets of gradients are reduced while the backward pass still computes other gradients (bucketer.h), maybe
// compressed (compression.h). All ranks then make the same step. Unlike the other modes, this one has
// checkpoints, a timeline and GPUs, so main.cc starts it.
#include "trainer/modes/data.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trainer/file.h"
#include "trainer/random.h"

namespace tutti::trainer {
namespace {

constexpr size_t kTimelineSteps = 3;

}  // namespace

DataParallel::DataParallel(Team& team, Parameters& parameters, const BucketOptions& options,
                           const CompressionOptions& compression)
    : team_(team), parameters_(parameters) {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : parameters.list())
    tensors.push_back({parameter.offset, parameter.rows, parameter.columns});
  std::vector<Bucket> buckets = make_buckets(parameters.gradients(), tensors, options);
  reduction_ = make_reduction(compression, buckets, team.gradients(), team.backend());
  bucketer_ = std::make_unique<Bucketer>(std::move(buckets), *reduction_, team.backend());
}

void DataParallel::broadcast_parameters() {
  team_.broadcast(parameters_.values());
  broadcast_buffers();
}

void DataParallel::broadcast_buffers() {
  for (Buffer& buffer : parameters_.buffers()) team_.broadcast(std::span(buffer.values));
}

double DataParallel::wire_bytes() const {
  double bytes = 0;
  for (const Bucket& bucket : bucketer_->buckets()) bytes += reduction_->wire_bytes(bucket);
  return bytes;
}

double DataParallel::plain_wire_bytes() const {
  size_t count = 0;
  for (const Bucket& bucket : bucketer_->buckets()) count += bucket.values.size();
  return 2.0 * (team_.count() - 1) / team_.count() * static_cast<double>(count * sizeof(float));
}

Training::Training(const Options& options, Team& team)
    : options_(options), team_(team), reporter_(team.rank() == 0, options.model.name == "transformer") {
  together(team, [&] {
    if (team.rank() == 0)
      for (const auto& path : {options.checkpoint, options.timeline, options.parallel.parameters})
        if (!path.empty()) try_to_write(path);
    task_.emplace(options);
    if (task_->vocabulary && team.rank() == 0)
      trigram_loss_ = trigram_loss(task_->vocabulary->encode(task_->text->train),
                                   task_->vocabulary->encode(task_->text->held_out),
                                   task_->vocabulary->count(), options.model.context / 2 + 1);
    sampler_ = make_sampler(options, *task_->data.train, team.rank(), team.count());
    device_ = find_device(options.device, team.rank());
  });
  reductions_ = choose_backend();
  together(team, [&] {
    model_ = std::make_unique<Model>(
        task_->model, options.seed, [&team](std::span<double> sums) { team.sum(sums); }, device_.product,
        team.backend());
    optimizer_ = make_optimizer(options.optimizer, model_->parameters());
    parallel_ =
        std::make_unique<DataParallel>(team, model_->parameters(), options.buckets, options.compression);
  });
  parallel_->broadcast_parameters();
  if (!options.resume.empty()) steps_done_ = load_checkpoint(options.resume, state(), team);
}

/// Chooses where gradients are reduced from now on. Returns a text for people.
std::string Training::choose_backend() {
  const std::string host = "on a host stream";
  if (options_.device == "host") return host;
  const std::string problem = team_.reduce_on(device_.gpu);
  if (!problem.empty()) return host + " (" + problem + ")";
  return "on a CUDA stream of " + device_.gpu->name();
}

TrainingState Training::state() {
  TrainingState state{
      .model = model_->description() + (task_->vocabulary ? task_->vocabulary->description() : ""),
      .optimizer = options_.optimizer.name,
      .compression = options_.compression.name};
  state.shared.push_back(model_->parameters().values());
  for (Buffer& buffer : model_->parameters().buffers()) state.shared.emplace_back(buffer.values);
  for (std::vector<float>& values : optimizer_->state()) state.shared.emplace_back(values);
  state.of_rank = parallel_->reduction().state();
  return state;
}

void Training::save(const std::filesystem::path& path) {
  save_checkpoint(path, state(), steps_done_, team_);
}

Loss Training::step(Timeline* timeline) {
  Parameters& parameters = model_->parameters();
  std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
  // Every sample has equal weight, whichever rank has it: the sum over ranks is the mean over the batch.
  const size_t targets = sampler_->batch_count(steps_done_) * task_->data.train->targets_per_sample();
  Loss loss;
  for (size_t part = 0; part < options_.accumulate; ++part) {
    task_->data.train->read(sampler_->part(steps_done_, part), &batch_);
    const Matrix& output = model_->forward(batch_.input, true, timeline);
    const Loss more =
        cross_entropy(output, batch_.targets, 1 / static_cast<float>(targets), &output_gradient_);
    const bool last = part + 1 == options_.accumulate;
    model_->backward(output_gradient_, last ? parallel_->on_ready() : GradientReady(), timeline);
    loss += more;
  }
  {
    const Span span(timeline, "wait for gradients", "wait");
    parallel_->finish();
  }
  const Span span(timeline, "optimizer", "update");
  clip_by_norm(parameters, options_.clip);
  const double rate = learning_rate(options_, steps_done_);
  optimizer_->step(++steps_done_, static_cast<float>(rate));
  return loss;
}

Loss Training::evaluate() {
  // With --local-norm, running statistics differ between ranks. Rank 0's are used.
  if (options_.model.local_norm) parallel_->broadcast_buffers();
  return trainer::evaluate(*model_, *task_->data.held_out, team_);
}

void Training::note_reductions(Timeline& timeline) const {
  const Bucketer& bucketer = parallel_->bucketer();
  for (const Bucket& bucket : bucketer.buckets()) {
    const Bucketer::Times& times = bucketer.times()[bucket.index];
    timeline.add({"bucket " + std::to_string(bucket.index), "reduce", Timeline::Row::kCommunication,
                  times.start_ns, times.end_ns, bucket.values.size_bytes()});
  }
}

void Training::write_timeline(const Timeline& timeline) {
  const std::string own = timeline.to_json(team_.rank());
  const auto parts = team_.gather(std::as_bytes(std::span(own)));
  together(team_, [&] {
    if (team_.rank() != 0) return;
    std::string all = "[\n";
    for (const auto& part : parts) {
      if (all.size() > 2) all += ",\n";
      all.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    all += "\n]\n";
    write_file(options_.timeline, std::as_bytes(std::span(all)));
  });
}

std::string Training::generate() {
  constexpr double kTemperature = 0.8;
  const size_t context = options_.model.context;
  Random random(options_.seed, 1000);
  std::vector<int> tokens = task_->vocabulary->encode(task_->text->held_out.substr(0, context));
  std::string text;
  Matrix input(1, context);
  while (text.size() < options_.sample) {
    std::transform(tokens.end() - static_cast<ptrdiff_t>(context), tokens.end(), input.data(),
                   [](int token) { return static_cast<float>(token); });
    const float* last = model_->forward(input, false).row(context - 1);
    std::vector<double> powers(task_->data.classes);
    double sum = 0;
    for (size_t i = 0; i < powers.size(); ++i)
      sum += powers[i] = std::exp(static_cast<double>(last[i]) / kTemperature);
    double left = random.uniform() * sum;
    size_t next = 0;
    while (next + 1 < powers.size() && (left -= powers[next]) >= 0) ++next;
    tokens.push_back(static_cast<int>(next));
    text += task_->vocabulary->character_of(static_cast<int>(next));
  }
  return text;
}

void Training::run() {
  reporter_.head(*parallel_, model_->description() + ", " +
                                 std::to_string(model_->parameters().trained_count()) + " parameters, " +
                                 std::to_string(task_->data.train->sample_count()) + " samples, " +
                                 std::to_string(team_.count()) + " ranks\nmatrix products: " + device_.about +
                                 "\nreductions: " + reductions_);
  const size_t first = steps_done_;
  const size_t middle = first + (std::max(options_.steps, first) - first) / 2;
  Timeline timeline;
  Loss recent;
  std::optional<Loss> held_out;
  while (steps_done_ < options_.steps) {
    const bool noted =
        !options_.timeline.empty() && steps_done_ >= middle && steps_done_ < middle + kTimelineSteps;
    const size_t samples = sampler_->batch_count(steps_done_);
    const Loss loss = step(noted ? &timeline : nullptr);
    if (noted) note_reductions(timeline);
    reporter_.count(samples, parallel_->bucketer());
    recent += loss;
    const bool last = steps_done_ == options_.steps;
    const bool evaluates = last || steps_done_ % options_.evaluate_every == 0;
    const bool saves = options_.checkpoint_every > 0 && steps_done_ % options_.checkpoint_every == 0;
    if (!evaluates && !saves && steps_done_ % options_.report_every != 0) continue;
    reporter_.pause();
    held_out.reset();
    if (evaluates) held_out = evaluate();
    const Loss all = sum_over_ranks(team_, recent);
    // Checked before a checkpoint of the failed model can replace a good one. The loss is from before the
    // last update. All ranks hold equal parameters.
    const auto is_finite = [](float value) { return std::isfinite(value); };
    if (!std::isfinite(all.sum) || !std::ranges::all_of(model_->parameters().values(), is_finite))
      team_.agree("the loss or a parameter is not a number by step " + std::to_string(steps_done_) +
                  ": try a smaller --learning-rate or a --clip");
    reporter_.progress(steps_done_, all, held_out);
    recent = {};
    if (saves && !last) save(options_.checkpoint);
    reporter_.resume();
  }
  if (!held_out) held_out = evaluate();
  if (!options_.checkpoint.empty()) save(options_.checkpoint);
  if (!options_.timeline.empty()) write_timeline(timeline);
  reporter_.summary(*parallel_, steps_done_ - first, *held_out, trigram_loss_);
  if (team_.rank() != 0) return;
  report_parameters(options_, model_->parameters());
  if (task_->vocabulary && options_.sample > 0) std::printf("\n%s\n", generate().c_str());
}

}  // namespace tutti::trainer
