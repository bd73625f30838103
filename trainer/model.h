// Model: named layers, and the trainer's three models.
#pragma once

#include <string>

#include "trainer/layer.h"
#include "trainer/norm.h"
#include "trainer/timeline.h"

namespace tutti::trainer {

struct ModelOptions {
  std::string name = "transformer";  ///< or "mlp", "cnn"
  size_t classes = 0;                ///< number of outputs: characters of the vocabulary, or kinds of images
  size_t context = 64;               ///< transformer: visible characters
  size_t width = 128;                ///< transformer
  size_t depth = 2;                  ///< transformer: blocks
  size_t heads = 4;                  ///< transformer
  size_t side = 28;                  ///< mlp, cnn: side of an image in pixels
  bool local_norm = false;           ///< cnn: batch statistics of each rank instead of all ranks
};

class Model {
 public:
  /// Makes the layers and draws the parameters from `seed`. Gradients are in memory of `backend`.
  /// `sum_over_ranks` is for synchronised batch normalisation; may be empty for one rank. Throws Error for an
  /// unknown name and for sizes that do not fit.
  Model(const ModelOptions& options, uint64_t seed, const SumOverRanks& sum_over_ranks,
        Product product = multiply, const BackendPointer& backend = host_backend());

  /// [targets, classes] for `input`, whose rows are samples. Records layers in `timeline`, if there is one.
  const Matrix& forward(const Matrix& input, bool training, Timeline* timeline = nullptr);
  /// Adds to all gradients, last layer first. Calls `ready` for each parameter. Follows a forward pass.
  void backward(const Matrix& gradient, const GradientReady& ready, Timeline* timeline = nullptr);

  Parameters& parameters() { return parameters_; }
  const ModelOptions& options() const { return options_; }
  /// Name and sizes, for messages. Models with equal descriptions have equal shapes.
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
