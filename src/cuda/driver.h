// Driver: CUDA's driver, found at run time. No CUDA library is linked: the same binary runs with and without
// a GPU, and a process whose ranks use no device never touches the driver.
//
// Members of the table are called like the functions they stand for: `driver.mem_alloc(&pointer, bytes)` is
// cuMemAlloc. Whoever calls one turns the answer into a Status with `check`.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "cuda/functions.h"

namespace tutti::cuda {

/// Where an address points.
enum class MemoryKind : uint8_t {
  kHost,     ///< memory that the driver does not know
  kPinned,   ///< host memory that the driver allocated or registered
  kDevice,   ///< memory of one device; the host must not touch it
  kManaged,  ///< memory that host and devices may touch
};

/// What the driver knows of an address.
struct Pointer {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;  ///< kDevice, kManaged, kPinned: the device it belongs to
};

/// A device as all its ranks, of any process, know it.
struct DeviceFacts {
  std::string name;
  std::array<char, 16> uuid{};  ///< the same in every process; of a MIG instance its own
  std::string pci_bus_id;
  int compute_major = 0;
  int compute_minor = 0;
  uint32_t multiprocessors = 0;
  uint64_t memory_bytes = 0;
  bool shares_by_file = false;  ///< VMM allocations can be exported as file descriptors
  bool launches_cooperatively = false;
  bool is_shared = false;   ///< by processes at the same time (MPS): it holds less than it says
  bool multicasts = false;  ///< it, and the driver, have multicast memory that can be exported
};

/// The table of functions. Thread-safe, as the driver is; never unloaded.
class Driver {
 public:
  /// Looks for the driver and initializes it, with at least one device. To be called once per process, and
  /// kept. Errors: kUnsupported with the reason and what to do: there is no driver, it is a stub for linking,
  /// it is too old, or has no device.
  static Result<std::unique_ptr<const Driver>> find();

  /// The driver that this process has already loaded and initialized, as a program that works on a device
  /// has; loads nothing and begins nothing. Errors: kUnsupported: it has not, or `find` would fail.
  static Result<std::unique_ptr<const Driver>> find_in_use();

  /// Ok for CUDA_SUCCESS; else a failure that says `what` (the function, and what it was to do), the driver's
  /// name for the error and a remedy. Errors: kOutOfMemory, kUnsupported, kInvalidUsage (stream capture),
  /// kSystemError.
  Status check(CUresult result, std::string_view what) const {
    if (result == CUDA_SUCCESS) [[likely]]
      return Status::ok();
    return failure(result, what);
  }
  /// The same for a `result` that is known to be an error.
  Status failure(CUresult result, std::string_view what) const;

  int device_count() const { return device_count_; }
  /// CUDA version that the driver supports, in CUDA's notation (12080: 12.8).
  int version() const { return version_; }
  /// The device whose context is current in the calling thread; -1: none.
  int current_device() const;
  /// Errors: kInvalidArgument: there is no such device.
  Result<DeviceFacts> describe(int device) const;
  /// Where `address` points. Needs no current context and may be called at any time, in a capture too.
  Pointer look_up(const void* address) const;

#define TUTTI_CUDA_MEMBER(member, function, type) type member = nullptr;
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
  // Null where the driver is older than they are: only where DeviceFacts::multicasts.
  TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER

 private:
  Driver() = default;
  Status load(void* library);
  Status start();
  /// 0 where the device does not know the attribute.
  int attribute(CUdevice device, CUdevice_attribute which) const;

  int device_count_ = 0;
  int version_ = 0;
  bool has_multicast_ = true;  ///< nothing of the second list is missing
};

}  // namespace tutti::cuda
