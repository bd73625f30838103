// Statistics of one row: what -I prints, and how a time becomes bandwidth.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::perf {

/// Of per-iteration times, in the unit they were given.
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

/// All zero when `samples` is empty. Percentile p is the smallest sample that at least p % do not exceed.
IterationStatistics iteration_statistics(std::span<const double> samples);

/// GB/s (1e9) of `bytes` in `microseconds`; 0 when either is 0.
double gigabytes_per_s(double bytes, double microseconds);

/// How many timed iterations: what was asked for, or enough that a row takes about `target_us`, so that one
/// late wake-up does not decide the row; never fewer than `least`, never more than `most`.
int iteration_count(double one_us, double target_us, int least, int most);

}  // namespace tutti::perf
