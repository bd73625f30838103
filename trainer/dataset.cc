#include "trainer/dataset.h"

#include <algorithm>

#include "trainer/error.h"
#include "trainer/random.h"

namespace tutti::trainer {

Sampler::Sampler(const Options& options) : options_(options) {
  const auto text = [](size_t number) { return std::to_string(number); };
  const auto ranks = static_cast<size_t>(options.rank_count);
  if (options.sample_count < ranks)
    throw Error("there are more ranks (" + text(ranks) + ") than samples (" + text(options.sample_count) +
                ")");
  if (options.batch_count < ranks)
    throw Error("a batch of " + text(options.batch_count) + " is less than a sample for each of " +
                text(ranks) + " ranks");
  if (options.batch_count > options.sample_count)
    throw Error("a batch of " + text(options.batch_count) + " is more than all " +
                text(options.sample_count) + " samples");
  if (!options.uneven && options.batch_count % (ranks * options.parts) != 0)
    throw Error("a batch of " + text(options.batch_count) + " does not divide among " + text(ranks) +
                " ranks in " + text(options.parts) +
                " parts: change --batch or --accumulate, or pass --uneven (--mode data)");
}

size_t Sampler::epoch_steps() const {
  const size_t whole = options_.sample_count / options_.batch_count;
  return options_.uneven && options_.sample_count % options_.batch_count != 0 ? whole + 1 : whole;
}

size_t Sampler::batch_count(size_t step) const {
  const size_t first = step % epoch_steps() * options_.batch_count;
  return std::min(options_.batch_count, options_.sample_count - first);
}

std::span<const uint32_t> Sampler::part(size_t step, size_t part) {
  const size_t epoch = step / epoch_steps();
  if (epoch != epoch_) {
    order_ = Random(options_.seed, epoch).permutation(options_.sample_count);
    epoch_ = epoch;
  }
  std::span<const uint32_t> samples(order_);
  samples = samples.subspan(step % epoch_steps() * options_.batch_count, batch_count(step));
  const auto slice = [](std::span<const uint32_t> all, size_t index, size_t count) {
    const size_t begin = all.size() * index / count;
    return all.subspan(begin, all.size() * (index + 1) / count - begin);
  };
  samples = slice(samples, static_cast<size_t>(options_.rank), static_cast<size_t>(options_.rank_count));
  return slice(samples, part, options_.parts);
}

}  // namespace tutti::trainer
