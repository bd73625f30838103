// Model parallel by layers: rank r has the r-th run of neighbouring layers.
//
// Forward, activations go from rank to rank; backward, their gradients come back. So a model may be as large
// as all ranks' memory together. But one rank computes at a time: pipeline.cc fills the gaps with other
// micro-batches. Bytes a step: the activations at each border, once in each direction.
// The result has the bits of one process, because every layer sees the same operands.
#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {
namespace {

class LayersMode : public Mode {
 public:
  explicit LayersMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        data_(*context.task.data.train),
        axis_(context, 0, "layers axis"),
        model_(
            context.task.model, options_.seed, SumOverRanks(), multiply, host_backend(),
            {.stage = static_cast<size_t>(axis_.rank()), .stage_count = static_cast<size_t>(axis_.count())}),
        optimizer_(make_optimizer(options_.optimizer, model_.parameters())),
        sampler_(sampler_of(context)) {}

  Loss step(size_t step) override {
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part) {
      // Every rank knows the samples, so nobody has to send them.
      data_.read(sampler_.part(step, part), &batch_);
      loss += pass();
    }
    Parameters& parameters = model_.parameters();
    optimizer_->step(step + 1, static_cast<float>(learning_rate(options_, step)));
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
    return loss;
  }

  void copy_to(std::span<float> whole) override { model_.parameters().copy_to(whole); }

  std::vector<Fact> facts() override {
    const int borders = (axis_.rank() > 0 ? 1 : 0) + (axis_.rank() + 1 < axis_.count() ? 1 : 0);
    // Each message is preceded by its two sizes.
    const auto sizes = static_cast<double>(options_.accumulate * 2 * sizeof(float));
    return {{"sent bytes a step", axis_.sent_bytes() / static_cast<double>(options_.steps)},
            {"by the formula", borders * (activation_bytes(context_) + sizes)},
            {"parameters held", static_cast<double>(model_.parameters().trained_count())}};
  }

 private:
  Loss pass() {
    const int rank = axis_.rank();
    const bool is_last = rank + 1 == axis_.count();
    Loss loss;
    if (rank > 0) recv(rank - 1, &input_);
    const Pass forward(context_, Stroke::Kind::kForward);
    const Matrix& output = model_.forward(rank == 0 ? batch_.input : input_, true);
    forward.wait();
    if (is_last) {
      const size_t targets = options_.batch * data_.targets_per_sample();
      loss = cross_entropy(output, batch_.targets, 1 / static_cast<float>(targets), &gradient_);
    } else {
      send(output, rank + 1);
      recv(rank + 1, &gradient_);
    }
    const Pass backward(context_, Stroke::Kind::kBackward);
    const Matrix& before = model_.backward(gradient_, {});
    backward.wait();
    if (rank > 0) send(before, rank - 1);
    return loss;
  }

  void send(const Matrix& matrix, int peer) {
    const float shape[] = {static_cast<float>(matrix.rows()), static_cast<float>(matrix.columns())};
    axis_.send(shape, peer);
    axis_.send({matrix.data(), matrix.size()}, peer);
  }

  void recv(int peer, Matrix* matrix) {
    float shape[2];
    axis_.recv(shape, peer);
    matrix->resize(static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]));
    axis_.recv({matrix->data(), matrix->size()}, peer);
  }

  const ModeContext& context_;
  const Options& options_;
  const Dataset& data_;
  Axis axis_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  Sampler sampler_;
  Batch batch_;
  Matrix input_;
  Matrix gradient_;
};

}  // namespace

std::unique_ptr<Mode> make_layers_mode(const ModeContext& context) {
  return std::make_unique<LayersMode>(context);
}

}  // namespace tutti::trainer
