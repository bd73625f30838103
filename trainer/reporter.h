// Reporter: rank 0's output during data-parallel training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "trainer/bucketer.h"
#include "trainer/loss.h"

namespace tutti::trainer {

class DataParallel;

class Reporter {
 public:
  /// Silent unless `prints`. Shows bits a character of text, percent of images.
  Reporter(bool prints, bool text) : prints_(prints), text_(text) {}

  void head(const DataParallel& parallel, const std::string& about);
  /// Adds the times of a step.
  void count(size_t samples, const Bucketer& bucketer);
  /// Prints a progress line for the steps since the last line.
  void progress(size_t step, const Loss& train, const std::optional<Loss>& held_out);
  /// Times of the whole run, without evaluations.
  void summary(const DataParallel& parallel, size_t steps, const Loss& held_out,
               std::optional<double> trigram_nats);
  /// The time from `pause` to `resume` does not count as training.
  void pause();
  void resume();

 private:
  struct Times {
    uint64_t training_ns = 0;
    uint64_t communication_ns = 0;
    uint64_t exposed_ns = 0;
    size_t samples = 0;

    double samples_per_s() const;
    double hidden_percent() const;
  };

  bool prints_;
  bool text_;
  uint64_t since_ns_ = 0;
  Times recent_;
  Times total_;
};

}  // namespace tutti::trainer
