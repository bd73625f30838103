// Which memory a process' ranks are in, and which device each of them is on.
//
// As in nccl-tests: a host's processes take its devices in order, each thread -g of them. --ranks-per-gpu
// puts several ranks on each, and NCCL_TESTS_DEVICE names the first device of every process.
#pragma once

#include <memory>

#include "core/result.h"
#include "perf/launch.h"
#include "perf/options.h"
#include "perf/site.h"

namespace tutti::perf {

class Seating {
 public:
  /// In host memory.
  Seating() = default;
  /// Looks for devices where the options allow it, and settles the flags that depend on what is found
  /// (`options` gets notes). Errors: kUnsupported (--memory cuda, and no device), kInvalidUsage (fewer
  /// devices than asked for, a flag that cannot be obeyed).
  static Result<Seating> choose(Options& options, const Place& place);

  bool on_devices() const { return devices_ != nullptr; }
  /// The device of rank `index` of thread `thread`.
  int device_of(const Options& options, int thread, int index) const {
    return first_device_ + thread * options.gpus + index / options.ranks_per_gpu;
  }
  /// Where that rank works. Errors: as open_host_site and CudaDevices::open.
  Result<std::unique_ptr<Site>> open(const Options& options, int thread, int index) const;

 private:
  std::unique_ptr<CudaDevices> devices_;
  int first_device_ = 0;
};

}  // namespace tutti::perf
