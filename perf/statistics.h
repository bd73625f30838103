// Statistics of one row: the figures of -I, and bandwidth from time.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::perf {

/// Of the times of iterations, in the unit of the samples.
struct IterationStatistics {
  double min = 0;
  double max = 0;
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double deviation = 0;          ///< of the whole set (divided by n)
  double variation_percent = 0;  ///< deviation / mean
};

/// All zero if `samples` is empty. Percentile p is the smallest sample that at least p % of the samples do
/// not exceed.
IterationStatistics iteration_statistics(std::span<const double> samples);

/// GB/s (1e9) for `bytes` in `microseconds`; 0 if either is 0.
double gigabytes_per_s(double bytes, double microseconds);

/// The number of timed iterations, so that a row takes about `target_us` and one late wake-up does not decide
/// it. At least `least`, at most `most`.
int iteration_count(double one_us, double target_us, int least, int most);

}  // namespace tutti::perf
