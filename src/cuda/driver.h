// Driver: CUDA's driver, found at run time. No CUDA library is linked: the same binary runs without a GPU,
// and a process whose ranks use no device never touches the driver.
//
// The members are the driver's functions: `driver.mem_alloc(&pointer, bytes)` is cuMemAlloc. `check` turns a
// result into a Status.
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
  kHost,     ///< memory unknown to the driver
  kPinned,   ///< host memory that the driver allocated or registered
  kDevice,   ///< memory of one device, out of the host's reach
  kManaged,  ///< memory for host and devices
  kUnknown,  ///< the driver does not say: see Pointer::failure
};

struct Pointer {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;                  ///< the memory's device, except for kHost
  CUresult failure = CUDA_SUCCESS;  ///< kUnknown: as after a failed kernel
};

/// Facts that all processes find alike.
struct DeviceFacts {
  std::string name;
  std::array<char, 16> uuid{};  ///< of the MIG instance, if there is one
  std::string pci_bus_id;
  int compute_major = 0;
  int compute_minor = 0;
  uint32_t multiprocessors = 0;
  uint64_t memory_bytes = 0;
  bool shares_by_file = false;  ///< VMM allocations can be exported as file descriptors
  bool launches_cooperatively = false;
  bool is_shared = false;         ///< by processes at the same time (MPS): the device holds less than it says
  bool multicasts = false;        ///< device and driver have exportable multicast memory
  bool exports_to_cards = false;  ///< its memory can become a dma-buf
  bool orders_writes = false;     ///< what a card has written is visible without a flush
  bool flushes_writes = false;    ///< ... or after one by the host
};

/// Whether a kernel has failed, so that the context answers every call with this code.
constexpr bool ends_context(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED ||
         result == CUDA_ERROR_MISALIGNED_ADDRESS || result == CUDA_ERROR_HARDWARE_STACK_ERROR ||
         result == CUDA_ERROR_ASSERT;
}

/// The table of functions. Thread-safe like the driver; never unloaded.
class Driver {
 public:
  /// Loads and initializes the driver. Call once per process and keep the result. Errors: kUnsupported: no
  /// driver, a stub for linking, too old, or no device; the text says what to do.
  static Result<std::unique_ptr<const Driver>> find();

  /// The driver, if this process has already initialized it. Starts nothing. Errors: kUnsupported: not
  /// initialized, or `find` would fail.
  static Result<std::unique_ptr<const Driver>> find_in_use();

  /// Ok for CUDA_SUCCESS. Else an error of `what` (the function and its purpose), the driver's name for it
  /// and a remedy. Errors: kOutOfMemory, kUnsupported, kInvalidUsage (stream capture), kSystemError.
  Status check(CUresult result, std::string_view what) const {
    if (result == CUDA_SUCCESS) [[likely]]
      return Status::ok();
    return failure(result, what);
  }
  /// For a `result` known to be an error.
  Status failure(CUresult result, std::string_view what) const;

  int device_count() const { return device_count_; }
  /// The CUDA version that the driver supports, in CUDA's notation (12080: 12.8).
  int version() const { return version_; }
  /// The device of the calling thread's current context; -1: none.
  int current_device() const;
  /// Errors: kInvalidArgument: no such device.
  Result<DeviceFacts> describe(int device) const;
  /// Needs no current context and may be called at any time, even in a capture.
  Pointer look_up(const void* address) const;

#define TUTTI_CUDA_MEMBER(member, function, type) type member = nullptr;
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
  // Null in older drivers. Use only with DeviceFacts::multicasts.
  TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_MEMBER)
  // Null where the driver lacks them.
  TUTTI_CUDA_CARD_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER

 private:
  Driver() = default;
  Status load(void* library);
  Status start();
  /// 0 if the device does not know the attribute.
  int attribute(CUdevice device, CUdevice_attribute which) const;

  int device_count_ = 0;
  int version_ = 0;
  bool has_multicast_ = true;  ///< the second list is complete
};

}  // namespace tutti::cuda
