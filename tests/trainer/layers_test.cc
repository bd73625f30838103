// Every backward pass against finite differences of the forward pass.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/cluster.h"
#include "trainer/attention.h"
#include "trainer/convolution.h"
#include "trainer/embedding.h"
#include "trainer/error.h"
#include "trainer/linear.h"
#include "trainer/loss.h"
#include "trainer/model.h"
#include "trainer/norm.h"
#include "trainer/random.h"

namespace tutti::trainer {
namespace {

using MakeLayer = std::function<std::unique_ptr<Layer>(Parameters&)>;

struct LayerCase {
  std::string name;
  MakeLayer make;
  size_t rows;
  size_t columns;
  bool tokens = false;  ///< the input is token numbers below 5, which have no gradient
};

Matrix random_matrix(size_t rows, size_t columns, uint64_t seed) {
  Matrix matrix(rows, columns);
  Random random(seed);
  for (size_t i = 0; i < matrix.size(); ++i) {
    const double value = random.normal();
    // Away from 0, where Relu has no derivative.
    matrix.data()[i] = static_cast<float>(value + std::copysign(0.05, value));
  }
  return matrix;
}

double dot(const Matrix& left, const Matrix& right) {
  double sum = 0;
  for (size_t i = 0; i < left.size(); ++i) sum += static_cast<double>(left.data()[i]) * right.data()[i];
  return sum;
}

/// Failures of gradients of `loss` by each of `values`, as text.
std::string compare(const std::string& what, std::span<float> values, const float* gradient,
                    const std::function<double()>& loss) {
  constexpr float kStep = 1e-2F;
  std::string failures;
  for (size_t i = 0; i < values.size(); ++i) {
    const float kept = values[i];
    values[i] = kept + kStep;
    const double above = loss();
    values[i] = kept - kStep;
    const double below = loss();
    values[i] = kept;
    const double expected = (above - below) / (2 * static_cast<double>(kStep));
    if (std::abs(expected - gradient[i]) > 5e-3 + 1e-2 * std::abs(expected))
      failures += what + " " + std::to_string(i) + ": " + std::to_string(gradient[i]) +
                  ", but differences give " + std::to_string(expected) + "\n";
  }
  return failures;
}

/// Runs where tutti may be called: parameters lie in its memory.
std::string check_layer(const LayerCase& layer_case) {
  Parameters parameters;
  const std::unique_ptr<Layer> layer = layer_case.make(parameters);
  parameters.allocate(1);
  Matrix input = random_matrix(layer_case.rows, layer_case.columns, 2);
  if (layer_case.tokens)
    for (size_t i = 0; i < input.size(); ++i) input.data()[i] = static_cast<float>(i * 7 % 5);
  for (const Parameter& parameter : parameters.list())
    for (size_t i = 0; i < parameter.count(); ++i) parameter.value[i] += 0.01F * static_cast<float>(i % 7);
  const Matrix& output = layer->forward(input, true);
  const Matrix weights = random_matrix(output.rows(), output.columns(), 3);
  const auto loss = [&] { return dot(weights, layer->forward(input, true)); };

  std::vector<std::string> reported;
  const Matrix& gradient =
      layer->backward(weights, [&](const Parameter& parameter) { reported.push_back(parameter.name); });
  std::string failures;
  if (reported.size() != parameters.list().size()) failures += "not every parameter was reported once\n";
  if (!layer_case.tokens) {
    const Matrix kept = gradient;
    failures += compare("input", {input.data(), input.size()}, kept.data(), loss);
  }
  for (const Parameter& parameter : parameters.list())
    failures += compare(parameter.name, {parameter.value, parameter.count()}, parameter.gradient, loss);

  // A second backward pass adds; no rows are fine.
  const std::vector<float> once(parameters.gradients().begin(), parameters.gradients().end());
  layer->forward(input, true);
  layer->backward(weights, {});
  for (size_t i = 0; i < once.size(); ++i)
    if (std::abs(parameters.gradients()[i] - 2 * once[i]) > 1e-3 * (1 + std::abs(once[i])))
      failures += "gradient " + std::to_string(i) + " did not add up\n";
  const Matrix none(0, layer_case.columns);
  const Matrix nothing = layer->forward(none, true);
  layer->backward(nothing, {});
  return failures;
}

template <class Kind, class... Arguments>
MakeLayer maker(Arguments... arguments) {
  return [=](Parameters& parameters) { return std::make_unique<Kind>(parameters, arguments...); };
}
template <class Kind, class... Arguments>
MakeLayer plain_maker(Arguments... arguments) {
  return [=](Parameters&) { return std::make_unique<Kind>(arguments...); };
}

std::unique_ptr<Layer> make_residual(Parameters& parameters) {
  Layers layers;
  layers.push_back(std::make_unique<LayerNorm>(parameters, "norm", 6));
  layers.push_back(std::make_unique<Linear>(parameters, "in", 6, 4, multiply));
  layers.push_back(std::make_unique<Linear>(parameters, "out", 4, 6, multiply));
  return std::make_unique<Residual>(std::move(layers));
}

std::vector<LayerCase> all_layers() {
  return {
      {"linear", maker<Linear>(std::string("linear"), size_t{5}, size_t{3}, Product(multiply)), 4, 5},
      {"relu", plain_maker<Relu>(), 3, 5},
      {"reshape", plain_maker<Reshape>(size_t{3}), 2, 6},
      {"embedding", maker<Embedding>(size_t{5}, size_t{4}, size_t{3}), 3, 4, true},
      {"attention", plain_maker<Attention>(size_t{5}, size_t{2}, Product(multiply)), 10, 12},
      {"layer_norm", maker<LayerNorm>(std::string("norm"), size_t{6}), 4, 6},
      {"batch_norm", maker<BatchNorm>(std::string("norm"), size_t{3}, SumOverRanks()), 7, 3},
      {"convolution",
       maker<Convolution>(std::string("convolution"), size_t{4}, size_t{2}, size_t{3}, Product(multiply)), 32,
       2},
      {"max_pool", plain_maker<MaxPool>(size_t{4}), 32, 2},
      {"residual", make_residual, 4, 6},
  };
}

class LayerTest : public testing::TestWithParam<LayerCase> {};

// Goal: hand-written derivatives are right. Method: every input and parameter is moved a little both ways.
TEST_P(LayerTest, BackwardAgreesWithFiniteDifferences) {
  EXPECT_EQ(test::run_child([] { return check_layer(GetParam()); }), "");
}
INSTANTIATE_TEST_SUITE_P(All, LayerTest, testing::ValuesIn(all_layers()),
                         [](const auto& test) { return test.param.name; });

// Goal: the same of a loss, and of whole models along random directions.
std::string check_model(const ModelOptions& options) {
  Model model(options, 1, {});
  Parameters& parameters = model.parameters();
  const bool text = options.name == "transformer";
  Matrix input = random_matrix(3, text ? options.context : options.side * options.side, 4);
  if (text)
    for (size_t i = 0; i < input.size(); ++i) input.data()[i] = static_cast<float>(i % options.classes);
  std::vector<int> targets(text ? 3 * options.context : 3);
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<int>((3 * i + 1) % options.classes);
  targets.back() = kIgnored;
  Matrix gradient;
  const auto loss = [&](Matrix* result) {
    return cross_entropy(model.forward(input, true), targets, 1, result).sum;
  };
  loss(&gradient);
  size_t last = parameters.list().size();
  bool in_order = true;
  model.backward(gradient, [&](const Parameter& parameter) {
    // Layers report last to first; within a layer the order does not matter.
    in_order = in_order && parameter.index <= last + 3;
    last = std::min(last, parameter.index);
  });
  std::string failures = in_order ? "" : "parameters were not reported in reverse order\n";
  for (uint64_t seed = 10; seed < 14; ++seed) {
    const std::vector<float> kept(parameters.values().begin(), parameters.values().end());
    constexpr double kStep = 2e-3;
    double expected = 0;
    double slope = 0;
    for (const double sign : {1.0, -1.0}) {
      Random random(seed);
      for (size_t i = 0; i < kept.size(); ++i) {
        const double direction = random.normal() / std::sqrt(static_cast<double>(kept.size()));
        parameters.values()[i] = kept[i] + static_cast<float>(sign * kStep * direction);
        if (sign > 0) slope += direction * parameters.gradients()[i];
      }
      expected += sign * loss(nullptr) / (2 * kStep);
    }
    std::copy(kept.begin(), kept.end(), parameters.values().begin());
    if (std::abs(slope - expected) > 0.02 + 0.05 * std::abs(expected))
      failures +=
          "slope " + std::to_string(slope) + ", but differences give " + std::to_string(expected) + "\n";
  }
  return failures;
}

TEST(ModelTest, BackwardAgreesWithFiniteDifferences) {
  for (const std::string name : {"transformer", "mlp", "cnn"}) {
    const ModelOptions options{
        .name = name, .classes = 7, .context = 6, .width = 8, .depth = 2, .heads = 2, .side = 8};
    EXPECT_EQ(test::run_child([&] { return check_model(options); }), "") << name;
  }
}

// Goal: nobody sees the future. Method: only the last character changes; nothing before it may.
TEST(ModelTest, OutputsDoNotDependOnLaterCharacters) {
  const auto body = []() -> std::string {
    const ModelOptions options{.classes = 7, .context = 6, .width = 8, .depth = 2, .heads = 2};
    Model model(options, 1, {});
    Matrix input(1, 6);
    input.fill(2);
    const Matrix before = model.forward(input, false);
    input.data()[5] = 4;
    const Matrix after = model.forward(input, false);
    if (!std::equal(before.data(), before.row(5), after.data())) return "an earlier output changed";
    if (std::equal(before.row(5), before.row(5) + 7, after.row(5))) return "the last output did not change";
    return "";
  };
  EXPECT_EQ(test::run_child(body), "");
}

TEST(ModelTest, SizesThatDoNotFitAreRefused) {
  EXPECT_THROW(Model({.name = "lstm", .classes = 2}, 1, {}), Error);
  EXPECT_THROW(Model({.classes = 2, .width = 10, .heads = 4}, 1, {}), Error);
  EXPECT_THROW(Model({.name = "cnn", .classes = 2, .side = 10}, 1, {}), Error);
}

// Goal: the loss and its gradient by hand: two outputs, one twice as likely.
TEST(LossTest, IsTheNegativeLogarithmOfTheTargetsShare) {
  Matrix output(2, 2);
  output.fill(0);
  output.row(0)[1] = std::log(2.0F);
  Matrix gradient;
  const Loss loss = cross_entropy(output, std::vector<int>{1, kIgnored}, 0.5F, &gradient);
  EXPECT_NEAR(loss.sum, std::log(1.5), 1e-6);
  EXPECT_EQ(loss.count, 1u);
  EXPECT_EQ(loss.correct, 1u);
  EXPECT_NEAR(gradient.row(0)[0], 0.5 / 3, 1e-6);
  EXPECT_NEAR(gradient.row(0)[1], -0.5 / 3, 1e-6);
  EXPECT_EQ(gradient.row(1)[0], 0);
}

}  // namespace
}  // namespace tutti::trainer
