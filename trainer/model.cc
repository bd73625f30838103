#include "trainer/model.h"

#include <cmath>

#include "trainer/attention.h"
#include "trainer/convolution.h"
#include "trainer/embedding.h"
#include "trainer/error.h"
#include "trainer/linear.h"

namespace tutti::trainer {
namespace {

template <class... Some>
Layers layers_of(Some... layers) {
  Layers list;
  (list.push_back(std::move(layers)), ...);
  return list;
}

}  // namespace

Model::Model(const ModelOptions& options, uint64_t seed, const SumOverRanks& sum_over_ranks, Product product,
             const BackendPointer& backend)
    : options_(options), product_(std::move(product)) {
  if (options.name == "transformer")
    make_transformer();
  else if (options.name == "mlp")
    make_mlp();
  else if (options.name == "cnn")
    make_cnn(sum_over_ranks);
  else
    throw Error("unknown model '" + options.name + "': transformer, mlp or cnn");
  parameters_.allocate(seed, backend);
}

void Model::add(const std::string& name, std::unique_ptr<Layer> layer) {
  layers_.push_back({name, std::move(layer)});
}

void Model::make_transformer() {
  const size_t width = options_.width;
  if (options_.heads == 0 || width % options_.heads != 0)
    throw Error("a width of " + std::to_string(width) + " does not divide into " +
                std::to_string(options_.heads) + " heads");
  Parameters& p = parameters_;
  add("embedding", std::make_unique<Embedding>(p, options_.classes, options_.context, width));
  // So that the sum of all blocks' outputs starts as large as one block's output.
  const float gain = 1 / std::sqrt(2 * static_cast<float>(options_.depth));
  for (size_t block = 0; block < options_.depth; ++block) {
    const std::string name = "block" + std::to_string(block);
    // One statement each: the order of evaluation of arguments is not fixed, but the order of parameters must
    // be.
    auto norm = std::make_unique<LayerNorm>(p, name + ".attention.norm", width);
    auto in = std::make_unique<Linear>(p, name + ".attention.in", width, 3 * width, product_);
    auto attention = std::make_unique<Attention>(options_.context, options_.heads, product_);
    auto out = std::make_unique<Linear>(p, name + ".attention.out", width, width, product_, gain);
    add(name + ".attention", std::make_unique<Residual>(layers_of(std::move(norm), std::move(in),
                                                                  std::move(attention), std::move(out))));
    norm = std::make_unique<LayerNorm>(p, name + ".mlp.norm", width);
    in = std::make_unique<Linear>(p, name + ".mlp.in", width, 4 * width, product_);
    out = std::make_unique<Linear>(p, name + ".mlp.out", 4 * width, width, product_, gain);
    add(name + ".mlp", std::make_unique<Residual>(layers_of(std::move(norm), std::move(in),
                                                            std::make_unique<Relu>(), std::move(out))));
  }
  add("norm", std::make_unique<LayerNorm>(p, "norm", width));
  add("head", std::make_unique<Linear>(p, "head", width, options_.classes, product_));
}

void Model::make_mlp() {
  constexpr size_t kHidden = 256;
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

void Model::backward(const Matrix& gradient, const GradientReady& ready, Timeline* timeline) {
  const Matrix* current = &gradient;
  for (auto named = layers_.rbegin(); named != layers_.rend(); ++named) {
    const Span span(timeline, named->name, "backward");
    current = &named->layer->backward(*current, ready);
  }
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
