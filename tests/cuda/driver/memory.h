// AddressSpace: the memory that the fake driver knows of, as ranges of the process's addresses.
//
// Memory of a device lies in anonymous files, between guard pages, so that other processes can map it. Where
// the processor has protection keys, host threads cannot touch it: a host that follows a device pointer dies
// of SIGSEGV, as does a device that follows a pointer of another one without peer access. Fresh memory of a
// device is not zero.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda/driver/cuda_api.h"

namespace fake_cuda {

/// Granularity of VMM allocations, as on hardware.
inline constexpr size_t kGranularity = size_t{2} << 20;

class Multicast;

/// Memory of a device, or of the host, that ranges map: a part of an anonymous file.
struct Physical {
  Physical(int file, size_t bytes, int device, bool exportable);
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical();

  const int fd;
  const size_t byte_count;
  const int owner;  ///< number of the device in the machine
  const bool shareable;
  std::unique_ptr<Multicast> multicast;  ///< what it is instead of memory, or null
  unsigned char* view = nullptr;         ///< FAKE_CUDA_HIDDEN: where copies find it
  size_t* counter = nullptr;             ///< what this process uses of the device, where it made the memory
};

enum class Origin : uint8_t {
  kAlloc,       ///< cuMemAlloc
  kManaged,     ///< cuMemAllocManaged
  kHost,        ///< cuMemHostAlloc
  kRegistered,  ///< cuMemHostRegister
  kReserved,    ///< cuMemAddressReserve: addresses without memory
  kMapped,      ///< cuMemMap
  kImported,    ///< cuIpcOpenMemHandle
  kModule,      ///< variables of a module
  kPool,        ///< cuMemAllocAsync
};

struct Range {
  uintptr_t base = 0;
  size_t bytes = 0;
  Origin origin = Origin::kAlloc;
  int device = -1;  ///< number, in the machine, of the device it belongs to; -1: the host
  void* context = nullptr;
  uint64_t id = 0;
  std::shared_ptr<Physical> physical;
  std::vector<int> accessible;  ///< kMapped: devices that may touch it
  size_t opened = 0;            ///< kImported: times
  std::string handle;           ///< kImported: what was opened

  bool is_on_device() const {
    return origin == Origin::kAlloc || origin == Origin::kMapped || origin == Origin::kImported ||
           origin == Origin::kModule || origin == Origin::kPool;
  }
};

class AddressSpace {
 public:
  AddressSpace();

  /// Memory of a device; null: none is left.
  Range* allocate(int device, size_t bytes, void* context, Origin origin = Origin::kAlloc);
  Range* allocate_managed(int device, size_t bytes, void* context);
  Range* allocate_host(size_t bytes, void* context);
  /// Null: part of it is registered already.
  Range* register_host(void* address, size_t bytes, void* context);
  Range* reserve(size_t bytes, size_t alignment);
  std::shared_ptr<Physical> create(int device, size_t bytes, bool shareable);
  /// The memory of a file that another process exported; null: it is none of the fake driver's.
  std::shared_ptr<Physical> import(int fd);
  /// Maps at an address that was reserved. Null: the addresses are not reserved, or are mapped already.
  Range* map(uintptr_t address, size_t bytes, std::shared_ptr<Physical> physical);
  /// Opens a handle of `export_handle`; null: its process, or the memory, is no more.
  Range* open_handle(const CUipcMemHandle& handle, void* context);
  static CUipcMemHandle export_handle(const Range& range);

  /// The range that `address` is in, mapped ranges before the reservation around them; null: host memory that
  /// the driver does not know.
  Range* find(uintptr_t address);
  /// The range that begins at `address`, of one of the origins.
  Range* find_base(uintptr_t address, std::initializer_list<Origin> origins);
  /// Where the fake itself reads and writes the memory.
  uintptr_t view(uintptr_t address);
  /// Whether the driver knows all of [address, address + bytes).
  bool covers(uintptr_t address, size_t bytes);
  /// Makes true what the range's `accessible` says.
  void protect(Range& range);
  void release(Range& range);
  size_t used_bytes(int device) const;
  const std::map<uintptr_t, Range>& ranges() const { return ranges_; }
  const std::map<uintptr_t, Range>& reservations() const { return reservations_; }

  /// Lets the calling thread touch memory of these devices, and of no others. Without protection keys it does
  /// nothing.
  void let_in(const std::vector<int>& devices) const;
  /// Lets the calling thread touch all memory, or none.
  void let_in_everywhere(bool yes) const;
  bool has_keys() const { return !keys_.empty(); }

 private:
  Range* add(Range range);
  Range* map_file(Range range);
  int key_of(const Range& range) const;

  std::map<uintptr_t, Range> ranges_;
  std::map<uintptr_t, Range> reservations_;
  std::map<int, size_t> used_;
  std::vector<int> keys_;  ///< one a device of the machine, the last for what several devices share
  uint64_t ids_ = 0;
};

}  // namespace fake_cuda
