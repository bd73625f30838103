#include "perf/floors.h"

#include <algorithm>
#include <functional>

#include "perf/statistics.h"

namespace tutti::perf {
namespace {

// Far more than caches hold. The best of several batches counts, as the rate of copying.
constexpr uint64_t kCopyBytes = uint64_t{256} << 20;
constexpr uint64_t kCopyGrain = uint64_t{1} << 20;
constexpr int kBatches = 3;
constexpr int kCopiesPerBatch = 3;
constexpr int kKernelsPerGraph = 50;

/// Microseconds of the best of a few batches, after a first batch that does not count.
Result<double> best_us(Site& site, const std::function<Status()>& batch) {
  DeviceQueue& queue = *site.queue();
  TUTTI_TRY(queue.reserve_marks(2));
  TUTTI_TRY(batch());
  double best = 0;
  for (int i = 0; i < kBatches; ++i) {
    TUTTI_TRY(queue.mark(0));
    TUTTI_TRY(batch());
    TUTTI_TRY(queue.mark(1));
    TUTTI_TRY(site.wait());
    const Result<double> time_us = queue.between_us(0, 1);
    if (!time_us) return time_us.status();
    if (best == 0 || *time_us < best) best = *time_us;
  }
  return best;
}

Result<double> measure_copy(Site& site) {
  const uint64_t bytes = std::min(kCopyBytes, site.available_bytes() / 32 / kCopyGrain * kCopyGrain);
  if (bytes == 0) return Status(Code::kOutOfMemory, "the device has no free memory to measure copies");
  auto from = site.allocate(bytes, false);
  if (!from) return from.status();
  auto to = site.allocate(bytes, false);
  if (!to) return to.status();
  TUTTI_TRY(site.fill((*from)->data(), 1, bytes));
  const Result<double> time_us = best_us(site, [&]() -> Status {
    for (int i = 0; i < kCopiesPerBatch; ++i)
      TUTTI_TRY(site.queue()->copy_within((*to)->data(), (*from)->data(), bytes));
    return Status::ok();
  });
  if (!time_us) return time_us.status();
  return gigabytes_per_s(2.0 * static_cast<double>(bytes) * kCopiesPerBatch, *time_us);
}

Result<double> measure_kernel(Site& site) {
  DeviceQueue& queue = *site.queue();
  TUTTI_TRY(queue.launch_nothing());  // loads the kernel, which a capture does not allow
  TUTTI_TRY(queue.begin_capture());
  Status queued;
  for (int i = 0; i < kKernelsPerGraph && queued.is_ok(); ++i) queued = queue.launch_nothing();
  const auto graph = queue.end_capture();
  TUTTI_TRY(queued);
  if (!graph) return graph.status();
  const Result<double> time_us = best_us(site, [&] { return (*graph)->launch(); });
  if (!time_us) return time_us.status();
  return *time_us / kKernelsPerGraph;
}

}  // namespace

Result<Floors> measure_floors(Site& site) {
  const Result<double> copy_gbs = measure_copy(site);
  if (!copy_gbs) return copy_gbs.status();
  const Result<double> kernel_us = measure_kernel(site);
  if (!kernel_us) return kernel_us.status();
  return Floors{.copy_gbs = *copy_gbs, .kernel_us = *kernel_us};
}

}  // namespace tutti::perf
