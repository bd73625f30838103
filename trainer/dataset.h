// Dataset: numbered samples, and the order in which ranks see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/matrix.h"

namespace tutti::trainer {

struct Batch {
  Matrix input;              ///< a row for each sample
  std::vector<int> targets;  ///< targets_per_sample for each; may be kIgnored
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual size_t sample_count() const = 0;
  virtual size_t targets_per_sample() const = 0;
  virtual void read(std::span<const uint32_t> samples, Batch* batch) const = 0;
};

/// What there is to learn from, and to be tested on.
struct Data {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  size_t classes = 0;
  size_t side = 0;  ///< pixels of an image's side; 0 for text
};

/// Which samples a rank works on: a function of its arguments, so that ranks agree without a word and a run
/// that resumes goes on where it was.
class Sampler {
 public:
  struct Options {
    size_t sample_count = 0;
    size_t batch_count = 0;  ///< samples of a step, of all ranks together
    size_t parts = 1;        ///< in which each rank takes its samples one after the other
    int rank = 0;
    int rank_count = 1;
    bool uneven =
        false;  ///< batches that do not divide, and the short one at the end of an epoch, are allowed
    uint64_t seed = 1;
  };

  /// Throws Error, the same on every rank, where a batch cannot be spread.
  explicit Sampler(const Options& options);

  /// Steps that see every sample once.
  size_t epoch_steps() const;
  /// Samples of all ranks in step 0, 1, ...
  size_t batch_count(size_t step) const;
  /// This rank's samples of a part of a step, maybe none. Each epoch has an order of its own, the same on
  /// every rank; a step's batch is a slice of it, of which each rank has a slice, of which each part is a
  /// slice.
  std::span<const uint32_t> part(size_t step, size_t part);

 private:
  Options options_;
  size_t epoch_ = SIZE_MAX;
  std::vector<uint32_t> order_;
};

}  // namespace tutti::trainer
