#include "perf/traffic.h"

namespace tutti::perf {

std::vector<size_t> traffic_by_distance(size_t total, int rank_count, double spread) {
  const double distances = 0.5 * rank_count * (rank_count - 1);
  std::vector<size_t> counts;
  for (int step = 0; step < rank_count; ++step) {
    const double far = distances > 0 ? step / distances : 1.0;
    const double share = (1.0 - spread) / rank_count + spread * far;
    counts.push_back(static_cast<size_t>(static_cast<double>(total) * share));
  }
  return counts;
}

}  // namespace tutti::perf
