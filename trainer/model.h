// Model: named layers, and the three models that the trainer knows.
#pragma once

#include <string>

#include "trainer/layer.h"
#include "trainer/norm.h"
#include "trainer/timeline.h"

namespace tutti::trainer {

struct ModelOptions {
  std::string name = "transformer";  ///< or "mlp", "cnn"
  size_t classes = 0;                ///< of outputs: characters of the vocabulary, kinds of images
  size_t context = 64;               ///< transformer: characters that it sees
  size_t width = 128;                ///< transformer
  size_t depth = 2;                  ///< transformer: blocks
  size_t heads = 4;                  ///< transformer
  size_t side = 28;                  ///< mlp, cnn: pixels of an image's side
  bool local_norm = false;           ///< cnn: batch statistics of each rank, not of all
};

class Model {
 public:
  /// Makes the layers and draws the parameters from `seed`. Throws Error for an unknown name and for sizes
  /// that do not fit. Gradients are in memory of `place`. `sum_over_ranks` is for synchronised batch
  /// normalisation; may be empty for one rank.
  Model(const ModelOptions& options, uint64_t seed, const SumOverRanks& sum_over_ranks,
        Product product = multiply, const PlacePointer& place = host_place());

  /// [targets, classes] for `input`, whose rows are samples. Layers are noted in `timeline` if there is one.
  const Matrix& forward(const Matrix& input, bool training, Timeline* timeline = nullptr);
  /// Adds to all gradients, last layer first; `ready` hears of each parameter. Follows a forward pass.
  void backward(const Matrix& gradient, const GradientReady& ready, Timeline* timeline = nullptr);

  Parameters& parameters() { return parameters_; }
  const ModelOptions& options() const { return options_; }
  /// Name and sizes, for messages: models of equal descriptions have equal shapes.
  std::string description() const;

 private:
  void add(const std::string& name, std::unique_ptr<Layer> layer);
  void make_transformer();
  void make_mlp();
  void make_cnn(const SumOverRanks& sum_over_ranks);

  struct Named {
    std::string name;
    std::unique_ptr<Layer> layer;
  };
  ModelOptions options_;
  Product product_;
  Parameters parameters_;
  std::vector<Named> layers_;
};

}  // namespace tutti::trainer
