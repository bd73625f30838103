#include "trainer/model.h"

#include <cmath>

#include "trainer/attention.h"
#include "trainer/convolution.h"
#include "trainer/embedding.h"
#include "trainer/error.h"
#include "trainer/experts.h"
#include "trainer/linear.h"
#include "trainer/tensor_parallel.h"

namespace tutti::trainer {

Model::Model(const ModelOptions& options, uint64_t seed, const SumOverRanks& sum_over_ranks, Product product,
             const BackendPointer& backend, const Placement& placement)
    : options_(options), product_(std::move(product)), placement_(placement) {
  if (placement.tensor != nullptr && options.name != "transformer")
    throw Error("only a transformer can be cut by tensors or experts: --model transformer");
  if (options.name == "transformer")
    make_transformer();
  else if (options.name == "mlp")
    make_mlp();
  else if (options.name == "cnn")
    make_cnn(sum_over_ranks);
  else
    throw Error("unknown model '" + options.name + "': transformer, mlp or cnn");
  keep_stage();
  if (placement.allocates) parameters_.allocate(seed, backend);
}

void Model::add(const std::string& name, std::unique_ptr<Layer> layer) {
  const size_t first = layers_.empty() ? 0 : layers_.back().end_parameter;
  layers_.push_back({name, std::move(layer), first, parameters_.list().size()});
}

void Model::keep_stage() {
  const size_t count = layers_.size();
  if (placement_.stage_count > count)
    throw Error("a model of " + std::to_string(count) + " layers has no " +
                std::to_string(placement_.stage_count) +
                " stages: start fewer ranks, or raise --depth of a transformer");
  const auto at = [&](size_t stage) {
    return static_cast<ptrdiff_t>(count * stage / placement_.stage_count);
  };
  layers_.erase(layers_.begin() + at(placement_.stage + 1), layers_.end());
  layers_.erase(layers_.begin(), layers_.begin() + at(placement_.stage));
  parameters_.keep(layers_.front().first_parameter, layers_.back().end_parameter);
}

void Model::add_block(const std::string& name) {
  // So that the sum of all blocks' outputs starts as large as one block's output.
  const float gain = 1 / std::sqrt(2 * static_cast<float>(options_.depth));
  const size_t width = options_.width;
  Axis* tensor = placement_.tensor;
  const bool by_rows = placement_.sequence;
  const Cut::Held held = by_rows ? Cut::Held::kPartialSum : Cut::Held::kCopy;
  const size_t parts = tensor == nullptr ? 1 : static_cast<size_t>(tensor->count());
  const Cut columns{.part = tensor == nullptr ? 0 : static_cast<size_t>(tensor->rank()), .count = parts};
  Cut three = columns;
  three.groups = 3;
  Parameters& p = parameters_;
  // One statement each: the order of evaluation of arguments is not fixed, but the order of parameters must
  // be.
  Layers layers;
  const auto enter = [&] {
    if (tensor != nullptr) layers.push_back(std::make_unique<EnterCut>(*tensor, by_rows));
  };
  const auto leave = [&](const std::string& out, size_t inputs) {
    if (tensor != nullptr)
      layers.push_back(std::make_unique<RowLinear>(p, out, inputs, width, product_, gain, *tensor, by_rows));
    else
      layers.push_back(std::make_unique<Linear>(p, out, inputs, width, product_, gain));
  };
  layers.push_back(std::make_unique<LayerNorm>(p, name + ".attention.norm", width, held));
  enter();
  layers.push_back(
      std::make_unique<Linear>(p, name + ".attention.in", width, 3 * width, product_, 1.0F, three));
  layers.push_back(std::make_unique<Attention>(options_.context, options_.heads / parts, product_));
  leave(name + ".attention.out", width);
  add(name + ".attention", std::make_unique<Residual>(std::move(layers)));
  layers.clear();
  layers.push_back(std::make_unique<LayerNorm>(p, name + ".mlp.norm", width, held));
  if (options_.experts > 0) {
    layers.push_back(std::make_unique<Experts>(p, name + ".mlp", width, options_.experts, product_, gain,
                                               placement_.expert));
  } else {
    enter();
    layers.push_back(
        std::make_unique<Linear>(p, name + ".mlp.in", width, 4 * width, product_, 1.0F, columns));
    layers.push_back(std::make_unique<Relu>());
    leave(name + ".mlp.out", 4 * width);
  }
  add(name + ".mlp", std::make_unique<Residual>(std::move(layers)));
}

void Model::make_transformer() {
  const size_t width = options_.width;
  const size_t parts = placement_.tensor == nullptr ? 1 : static_cast<size_t>(placement_.tensor->count());
  if (options_.heads == 0 || width % options_.heads != 0)
    throw Error("a width of " + std::to_string(width) + " does not divide into " +
                std::to_string(options_.heads) + " heads");
  if (options_.heads % parts != 0)
    throw Error(std::to_string(options_.heads) + " heads do not divide among " + std::to_string(parts) +
                " ranks of the tensor axis: change --heads");
  Parameters& p = parameters_;
  add("embedding", std::make_unique<Embedding>(p, options_.classes, options_.context, width));
  if (placement_.sequence)
    add("own rows", std::make_unique<RowBorder>(*placement_.tensor, RowBorder::Way::kTake));
  for (size_t block = 0; block < options_.depth; ++block) add_block("block" + std::to_string(block));
  const Cut::Held held = placement_.sequence ? Cut::Held::kPartialSum : Cut::Held::kCopy;
  add("norm", std::make_unique<LayerNorm>(p, "norm", width, held));
  if (placement_.sequence)
    add("all rows", std::make_unique<RowBorder>(*placement_.tensor, RowBorder::Way::kJoin));
  add("head", std::make_unique<Linear>(p, "head", width, options_.classes, product_));
}

void Model::make_mlp() {
  Parameters& p = parameters_;
  const float gain = std::sqrt(2.0F);  // half of Relu's outputs are 0
  add("hidden1",
      std::make_unique<Linear>(p, "hidden1", options_.side * options_.side, kHidden, product_, gain));
  add("relu1", std::make_unique<Relu>());
  add("hidden2", std::make_unique<Linear>(p, "hidden2", kHidden, kHidden, product_, gain));
  add("relu2", std::make_unique<Relu>());
  add("head", std::make_unique<Linear>(p, "head", kHidden, options_.classes, product_));
}

void Model::make_cnn(const SumOverRanks& sum_over_ranks) {
  if (options_.side % 4 != 0)
    throw Error("cnn halves images twice: a side of " + std::to_string(options_.side) +
                " pixels is not a multiple of 4");
  Parameters& p = parameters_;
  const SumOverRanks sum = options_.local_norm ? SumOverRanks() : sum_over_ranks;
  size_t side = options_.side;
  size_t channels = 1;
  add("pixels", std::make_unique<Reshape>(1));
  for (const size_t outputs : {8, 16}) {
    const std::string number = std::to_string(outputs / 8);
    add("convolution" + number,
        std::make_unique<Convolution>(p, "convolution" + number, side, channels, outputs, product_));
    add("norm" + number, std::make_unique<BatchNorm>(p, "norm" + number, outputs, sum));
    add("relu" + number, std::make_unique<Relu>());
    add("pool" + number, std::make_unique<MaxPool>(side));
    side /= 2;
    channels = outputs;
  }
  add("features", std::make_unique<Reshape>(side * side * channels));
  add("head", std::make_unique<Linear>(p, "head", side * side * channels, options_.classes, product_));
}

const Matrix& Model::forward(const Matrix& input, bool training, Timeline* timeline) {
  const Matrix* current = &input;
  for (const Named& named : layers_) {
    const Span span(timeline, named.name, "forward");
    current = &named.layer->forward(*current, training);
  }
  return *current;
}

const Matrix& Model::backward(const Matrix& gradient, const GradientReady& ready, Timeline* timeline) {
  const Matrix* current = &gradient;
  for (auto named = layers_.rbegin(); named != layers_.rend(); ++named) {
    const Span span(timeline, named->name, "backward");
    current = &named->layer->backward(*current, ready);
  }
  return *current;
}

std::string Model::description() const {
  std::string text = options_.name + " with " + std::to_string(options_.classes) + " classes";
  if (options_.name == "transformer")
    return text + ", context " + std::to_string(options_.context) + ", width " +
           std::to_string(options_.width) + ", depth " + std::to_string(options_.depth) + ", heads " +
           std::to_string(options_.heads);
  return text + ", images of " + std::to_string(options_.side) + " x " + std::to_string(options_.side);
}

}  // namespace tutti::trainer
