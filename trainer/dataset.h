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
  Matrix input;              ///< one row for each sample
  std::vector<int> targets;  ///< targets_per_sample for each sample; may be kIgnored
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual size_t sample_count() const = 0;
  virtual size_t targets_per_sample() const = 0;
  virtual void read(std::span<const uint32_t> samples, Batch* batch) const = 0;
};

struct Data {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  size_t classes = 0;
  size_t side = 0;  ///< side of an image in pixels; 0 for text
};

/// Chooses the samples of a rank. A pure function of its arguments, so ranks agree without messages, and a
/// resumed run continues where it stopped.
class Sampler {
 public:
  struct Options {
    size_t sample_count = 0;
    size_t batch_count = 0;  ///< samples of a step, on all ranks together
    size_t parts = 1;        ///< of each rank's samples, processed one after the other
    int rank = 0;
    int rank_count = 1;
    bool uneven = false;  ///< allow batches that do not divide, and the short batch at the end of an epoch
    uint64_t seed = 1;
  };

  /// Throws Error, the same on every rank, if a batch cannot be spread.
  explicit Sampler(const Options& options);

  /// Number of steps that see every sample once.
  size_t epoch_steps() const;
  /// Samples on all ranks in step 0, 1, ...
  size_t batch_count(size_t step) const;
  /// This rank's samples in a part of a step, maybe none. Each epoch has its own order, equal on every rank.
  /// A step's batch is a slice of this order; each rank has a slice of the batch, and each part a slice of
  /// the rank's.
  std::span<const uint32_t> part(size_t step, size_t part);

 private:
  Options options_;
  size_t epoch_ = SIZE_MAX;
  std::vector<uint32_t> order_;
};

}  // namespace tutti::trainer
