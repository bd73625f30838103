#include "trainer/pipeline.h"

#include "trainer/timeline.h"

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
      sampler_({.sample_count = setup_.task.data.train->sample_count(),
                .batch_count = setup_.options.batch,
                .parts = setup_.options.accumulate,
                .rank = static_cast<int>(setup_.data_rank),
                .rank_count = static_cast<int>(setup_.data_count),
                .seed = setup_.options.seed}) {
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
    chunk.optimizer = make_optimizer(setup_.options.optimizer, chunk.owner->parameters());
  }
}

std::unique_ptr<Model> Pipeline::make_model(size_t chunk, bool allocates) const {
  Placement placement = setup_.placement;
  placement.stage = stage_of({Kind::kForward, 0, chunk});
  placement.stage_count = stages_;
  placement.allocates = allocates;
  return std::make_unique<Model>(setup_.task.model, setup_.options.seed, SumOverRanks(), multiply,
                                 host_backend(), placement);
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
  if (setup_.flushes)
    slot.model->parameters().share(chunk.owner->parameters());
  else
    slot.model->parameters().stash(chunk.owner->parameters());
  const size_t stage = stage_of(action);
  const bool is_last = stage + 1 == stages_;
  const size_t parts = setup_.options.accumulate;
  if (stage == 0 || is_last)
    setup_.task.data.train->read(sampler_.part(action.micro_batch / parts, action.micro_batch % parts),
                                 &slot.batch);
  if (stage > 0) from_below_->recv(&slot.input);
  const Pace pace(setup_.options.parallel, setup_.axis.rank(), 1);
  const auto begin = static_cast<double>(now_ns()) / 1e9;
  const Matrix& output = slot.model->forward(stage == 0 ? slot.batch.input : slot.input, true);
  if (is_last) {
    const size_t samples = sampler_.batch_count(action.micro_batch / parts) / (setup_.flushes ? 1 : parts);
    const size_t targets = samples * setup_.task.data.train->targets_per_sample();
    loss_ +=
        cross_entropy(output, slot.batch.targets, 1 / static_cast<float>(targets), &slot.output_gradient);
  }
  pace.wait();
  bars_.push_back(
      {static_cast<size_t>(setup_.axis.rank()), action, begin, static_cast<double>(now_ns()) / 1e9});
  if (!is_last) to_above_->send(output);
}

void Pipeline::backward(const Action& action) {
  Slot& slot = slot_of(chunks_[action.chunk], action.micro_batch);
  const size_t stage = stage_of(action);
  if (stage + 1 < stages_) from_above_->recv(&slot.output_gradient);
  const Pace pace(setup_.options.parallel, setup_.axis.rank(), 2);
  const auto begin = static_cast<double>(now_ns()) / 1e9;
  const Matrix& gradient = slot.model->backward(slot.output_gradient, {});
  pace.wait();
  bars_.push_back(
      {static_cast<size_t>(setup_.axis.rank()), action, begin, static_cast<double>(now_ns()) / 1e9});
  if (stage > 0) to_below_->send(gradient);
  slot.micro_batch.reset();
  --alive_;
}

void Pipeline::update(size_t step, size_t number) {
  for (Chunk& chunk : chunks_) {
    Parameters& parameters = chunk.owner->parameters();
    if (setup_.reduce) setup_.reduce(parameters);
    chunk.optimizer->step(number + 1, static_cast<float>(learning_rate(setup_.options, step)));
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
  }
}

Loss Pipeline::step(size_t step) {
  loss_ = {};
  bars_.clear();
  const auto& actions = setup_.schedule.of(static_cast<size_t>(setup_.axis.rank()));
  const size_t last = (step + 1) * setup_.options.accumulate - 1;
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
  if (setup_.flushes) action.micro_batch += step * setup_.options.accumulate;
  return action;
}

void Pipeline::copy_to(std::span<float> whole) const {
  for (const Chunk& chunk : chunks_) chunk.owner->parameters().copy_to(whole);
}

double Pipeline::sent_bytes() const {
  double sum = 0;
  for (const auto& channel : channels_) sum += channel->sent_bytes();
  return sum;
}

}  // namespace tutti::trainer
