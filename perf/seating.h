// Chooses the memory and the device of each rank of a process.
//
// As in nccl-tests, the processes of a host take its devices in order, and each thread takes -g of them.
// --ranks-per-gpu puts several ranks on each device. NCCL_TESTS_DEVICE names the first device of every
// process.
#pragma once

#include <memory>

#include "core/result.h"
#include "perf/launch.h"
#include "perf/options.h"
#include "perf/site.h"

namespace tutti::perf {

class Seating {
 public:
  /// All ranks in host memory.
  Seating() = default;
  /// Looks for devices if the options allow it, and settles the flags that depend on the result (`options`
  /// gets notes). Errors: kUnsupported (--memory cuda, and no device), kInvalidUsage (fewer devices than
  /// requested, or a flag that cannot be obeyed).
  static Result<Seating> choose(Options& options, const ProcessContext& context);

  bool on_devices() const { return devices_ != nullptr; }
  int device_of(const Options& options, int thread, int index) const {
    return first_device_ + thread * options.gpus + index / options.ranks_per_gpu;
  }
  /// Opens the rank's site. Errors: see open_host_site and CudaDevices::open.
  Result<std::unique_ptr<Site>> open(const Options& options, int thread, int index) const;

 private:
  std::unique_ptr<CudaDevices> devices_;
  int first_device_ = 0;
};

}  // namespace tutti::perf
