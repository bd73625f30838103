// Model: named layers, and the trainer's three models.
#pragma once

#include <string>

#include "trainer/layer.h"
#include "trainer/mesh.h"
#include "trainer/norm.h"
#include "trainer/timeline.h"

namespace tutti::trainer {

inline constexpr size_t kHidden = 256;  ///< mlp: width of the hidden layers

struct ModelOptions {
  std::string name = "transformer";  ///< or "mlp", "cnn"
  size_t classes = 0;                ///< number of outputs: characters of the vocabulary, or kinds of images
  size_t context = 64;               ///< transformer: visible characters
  size_t width = 128;                ///< transformer
  size_t depth = 2;                  ///< transformer: blocks
  size_t heads = 4;                  ///< transformer
  size_t side = 28;                  ///< mlp, cnn: side of an image in pixels
  size_t experts = 0;                ///< transformer: experts in place of each block's second half; 0: none
  bool local_norm = false;           ///< cnn: batch statistics of each rank instead of all ranks
};

/// The part of a model that a rank holds. The default is all of it.
struct Placement {
  size_t stage = 0;  ///< this one of `stage_count` runs of neighbouring layers
  size_t stage_count = 1;
  Axis* tensor = nullptr;  ///< cuts the matrices of a transformer's blocks
  bool sequence = false;   ///< and the rows between blocks (tensor_parallel.h)
  Axis* expert = nullptr;  ///< spreads a transformer's experts
  bool allocates = true;   ///< false: the caller gives memory to the parameters
};

class Model {
 public:
  /// Makes the layers and draws the parameters from `seed`. Gradients are in memory of `backend`.
  /// `sum_over_ranks` is for synchronised batch normalisation; may be empty for one rank. Throws Error for an
  /// unknown name and for sizes that do not fit.
  Model(const ModelOptions& options, uint64_t seed, const SumOverRanks& sum_over_ranks,
        Product product = multiply, const BackendPointer& backend = host_backend(),
        const Placement& placement = {});

  /// A named layer with the indices of its parameters.
  struct Named {
    std::string name;
    std::unique_ptr<Layer> layer;
    size_t first_parameter = 0;
    size_t end_parameter = 0;
  };

  /// [targets, classes] for `input`, whose rows are samples. Records layers in `timeline`, if there is one.
  const Matrix& forward(const Matrix& input, bool training, Timeline* timeline = nullptr);
  /// Adds to all gradients, last layer first. Calls `ready` for each parameter. Follows a forward pass.
  /// Returns the gradient with respect to the input; empty where the input is characters.
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready, Timeline* timeline = nullptr);
  /// For modes that do something between layers.
  std::vector<Named>& layers() { return layers_; }

  Parameters& parameters() { return parameters_; }
  const ModelOptions& options() const { return options_; }
  /// Name and sizes, for messages. Models with equal descriptions have equal shapes.
  std::string description() const;

 private:
  void add(const std::string& name, std::unique_ptr<Layer> layer);
  void make_transformer();
  void make_mlp();
  void make_cnn(const SumOverRanks& sum_over_ranks);

  void add_block(const std::string& name);
  void keep_stage();

  ModelOptions options_;
  Product product_;
  Placement placement_;
  Parameters parameters_;
  std::vector<Named> layers_;
};

}  // namespace tutti::trainer
