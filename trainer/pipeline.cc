#include "trainer/pipeline.h"

namespace tutti::trainer {
namespace {

using Kind = Action::Kind;

std::span<float> numbers(Matrix& matrix) {
  return {matrix.data(), matrix.size()};
}

int color(int rank, int from, int to) {
  return rank == from || rank == to ? 0 : TUTTI_NO_COLOR;
}

}  // namespace

Channel::Channel(Axis& parent, int from, int to)
    : axis_(parent, color(parent.rank(), from, to),
            "messages from stage " + std::to_string(from) + " to " + std::to_string(to)) {}

void Channel::send(const Matrix& matrix) {
  if (tutti_host_stream_query(stream_.get()) == TUTTI_SUCCESS) outbox_.clear();
  Message& message = outbox_.emplace_back(
      Message{{static_cast<float>(matrix.rows()), static_cast<float>(matrix.columns())}, matrix});
  axis_.send(message.shape, 1 - axis_.rank(), stream_.handle());
  axis_.send(numbers(message.matrix), 1 - axis_.rank(), stream_.handle());
}

void Channel::recv(Matrix* matrix) {
  float shape[2];
  axis_.recv(shape, 1 - axis_.rank());
  matrix->resize(static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]));
  axis_.recv(numbers(*matrix), 1 - axis_.rank());
}

void Channel::flush() {
  stream_.wait();
  outbox_.clear();
}

Pipeline::Pipeline(Setup setup)
    : setup_(std::move(setup)),
      stages_(setup_.schedule.shape().ranks * setup_.schedule.shape().chunks),
      sampler_({.sample_count = setup_.context.task.data.train->sample_count(),
                .batch_count = setup_.context.options.batch,
                .parts = setup_.context.options.accumulate,
                .rank = static_cast<int>(setup_.data_rank),
                .rank_count = static_cast<int>(setup_.data_count),
                .seed = setup_.context.options.seed}) {
  const int ranks = setup_.axis.count();
  const int rank = setup_.axis.rank();
  // Stages follow one another around the ring of ranks; the last rank reaches the first only with chunks.
  const int links = ranks == 1 ? 0 : setup_.schedule.shape().chunks > 1 ? ranks : ranks - 1;
  for (int low = 0; low < links; ++low) {
    const int high = (low + 1) % ranks;
    Channel* up = channels_.emplace_back(std::make_unique<Channel>(setup_.axis, low, high)).get();
    Channel* down = channels_.emplace_back(std::make_unique<Channel>(setup_.axis, high, low)).get();
    if (rank == low) std::tie(to_above_, from_above_) = std::pair(up, down);
    if (rank == high) std::tie(from_below_, to_below_) = std::pair(up, down);
  }
  for (size_t i = 0; i < setup_.schedule.shape().chunks; ++i) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.owner = make_model(i, true);
    chunk.optimizer = make_optimizer(setup_.context.options.optimizer, chunk.owner->parameters());
  }
}

std::unique_ptr<Model> Pipeline::make_model(size_t chunk, bool allocates) const {
  Placement placement = setup_.placement;
  placement.stage = stage_of({Kind::kForward, 0, chunk});
  placement.stage_count = stages_;
  placement.allocates = allocates;
  return std::make_unique<Model>(setup_.context.task.model, setup_.context.options.seed, SumOverRanks(),
                                 multiply, host_backend(), placement);
}

size_t Pipeline::stage_of(const Action& action) const {
  return setup_.schedule.stage_of(static_cast<size_t>(setup_.axis.rank()), action);
}

Pipeline::Slot& Pipeline::slot_of(Chunk& chunk, std::optional<size_t> micro_batch) {
  for (Slot& slot : chunk.slots)
    if (slot.micro_batch == micro_batch) return slot;
  Slot& slot = chunk.slots.emplace_back();
  slot.model = make_model(static_cast<size_t>(&chunk - chunks_.data()), false);
  return slot;
}

void Pipeline::forward(const Action& action) {
  Chunk& chunk = chunks_[action.chunk];
  Slot& slot = slot_of(chunk, std::nullopt);
  slot.micro_batch = action.micro_batch;
  alive_max_ = std::max(alive_max_, ++alive_);
  // PipeDream: the backward pass must meet the parameters of the forward pass, which updates have changed.
  Parameters& owner = chunk.owner->parameters();
  if (!setup_.flushes) slot.stash.assign(owner.values().begin(), owner.values().end());
  float* values = setup_.flushes ? owner.values().data() : slot.stash.data();
  for (size_t i = 0; i < owner.list().size(); ++i) {
    Parameter& parameter = slot.model->parameters().list()[i];
    parameter.value = values + parameter.offset;
    parameter.gradient = owner.list()[i].gradient;
  }
  const size_t stage = stage_of(action);
  const size_t parts = setup_.context.options.accumulate;
  if (stage == 0 || is_last(stage))
    setup_.context.task.data.train->read(
        sampler_.part(action.micro_batch / parts, action.micro_batch % parts), &slot.batch);
  if (stage > 0) from_below_->recv(&slot.input);
  const Pass pass(setup_.context, Stroke::Kind::kForward, std::to_string(action.micro_batch % parts));
  const Matrix& output = slot.model->forward(stage == 0 ? slot.batch.input : slot.input, true);
  if (is_last(stage)) {
    const size_t samples = sampler_.batch_count(action.micro_batch / parts) / (setup_.flushes ? 1 : parts);
    const size_t targets = samples * setup_.context.task.data.train->targets_per_sample();
    loss_ +=
        cross_entropy(output, slot.batch.targets, 1 / static_cast<float>(targets), &slot.output_gradient);
  }
  pass.wait();
  if (!is_last(stage)) to_above_->send(output);
}

void Pipeline::backward(const Action& action) {
  Slot& slot = slot_of(chunks_[action.chunk], action.micro_batch);
  const size_t stage = stage_of(action);
  if (!is_last(stage)) from_above_->recv(&slot.output_gradient);
  const Pass pass(setup_.context, Stroke::Kind::kBackward,
                  std::to_string(action.micro_batch % setup_.context.options.accumulate));
  const Matrix& gradient = slot.model->backward(slot.output_gradient, {});
  pass.wait();
  if (stage > 0) to_below_->send(gradient);
  slot.micro_batch.reset();
  --alive_;
}

void Pipeline::update(size_t step, size_t number) {
  for (Chunk& chunk : chunks_) {
    Parameters& parameters = chunk.owner->parameters();
    if (setup_.reduce) setup_.reduce(parameters);
    chunk.optimizer->step(number + 1, static_cast<float>(learning_rate(setup_.context.options, step)));
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
  }
}

Loss Pipeline::step(size_t step) {
  loss_ = {};
  const auto& actions = setup_.schedule.of(static_cast<size_t>(setup_.axis.rank()));
  const size_t last = (step + 1) * setup_.context.options.accumulate - 1;
  if (setup_.flushes) next_action_ = 0;
  while (next_action_ < actions.size()) {
    const Action& action = actions[next_action_++];
    switch (action.kind) {
      case Kind::kForward: forward(in_step(action, step)); break;
      case Kind::kBackward: backward(in_step(action, step)); break;
      case Kind::kUpdate: update(step, setup_.flushes ? step : action.micro_batch);
    }
    if (!setup_.flushes && action == Action{Kind::kUpdate, last, 0}) break;
  }
  if (setup_.flushes)
    for (Channel* channel : {to_above_, to_below_})
      if (channel != nullptr) channel->flush();
  return loss_;
}

Action Pipeline::in_step(Action action, size_t step) const {
  if (setup_.flushes) action.micro_batch += step * setup_.context.options.accumulate;
  return action;
}

void Pipeline::copy_to(std::span<float> whole) const {
  for (const Chunk& chunk : chunks_) chunk.owner->parameters().copy_to(whole);
}

double Pipeline::formula_bytes(double activation_bytes) const {
  double borders = 0;
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const size_t stage = stage_of({Kind::kForward, 0, chunk});
    borders += (stage > 0 ? 1 : 0) + (is_last(stage) ? 0 : 1);
  }
  // Each message is preceded by its two sizes.
  const auto messages = static_cast<double>(setup_.context.options.accumulate);
  return borders * (activation_bytes + messages * 2 * sizeof(float));
}

double Pipeline::sent_bytes() const {
  double sum = 0;
  for (const auto& channel : channels_) sum += channel->sent_bytes();
  return sum;
}

}  // namespace tutti::trainer
