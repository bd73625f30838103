#include "perf/traffic.h"

#include <algorithm>

namespace tutti::perf {

std::vector<size_t> traffic_by_distance(size_t total, int rank_count, double spread) {
  const auto on_circle = [rank_count](int step) { return std::min(step, rank_count - step); };
  double distances = 0;
  for (int step = 0; step < rank_count; ++step) distances += on_circle(step);
  std::vector<size_t> counts;
  for (int step = 0; step < rank_count; ++step) {
    const double far = distances > 0 ? on_circle(step) / distances : 1.0;
    const double share = (1.0 - spread) / rank_count + spread * far;
    counts.push_back(static_cast<size_t>(static_cast<double>(total) * share));
  }
  return counts;
}

}  // namespace tutti::perf
