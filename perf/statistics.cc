#include "perf/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace tutti::perf {
namespace {

double percentile(const std::vector<double>& sorted, int percent) {
  const size_t count = sorted.size();
  const size_t rank = (count * static_cast<size_t>(percent) + 99) / 100;
  return sorted[std::min(count, std::max<size_t>(rank, 1)) - 1];
}

}  // namespace

IterationStatistics iteration_statistics(std::span<const double> samples) {
  IterationStatistics result;
  if (samples.empty()) return result;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double count = static_cast<double>(sorted.size());
  result.min = sorted.front();
  result.max = sorted.back();
  result.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  result.p50 = percentile(sorted, 50);
  result.p95 = percentile(sorted, 95);
  result.p99 = percentile(sorted, 99);
  double squares = 0;
  for (const double sample : sorted) squares += (sample - result.mean) * (sample - result.mean);
  result.deviation = std::sqrt(squares / count);
  if (result.mean > 0) result.variation_percent = 100.0 * result.deviation / result.mean;
  return result;
}

double gigabytes_per_s(double bytes, double microseconds) {
  return microseconds > 0 ? bytes / microseconds * 1e-3 : 0.0;
}

int iteration_count(double one_us, double target_us, int least, int most) {
  if (!(one_us > 0)) return most;
  const double wanted = std::ceil(target_us / one_us);
  return static_cast<int>(std::clamp(wanted, static_cast<double>(least), static_cast<double>(most)));
}

}  // namespace tutti::perf
