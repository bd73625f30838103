// Site: the memory and the stream that a rank works with. Host memory and CUDA devices look alike to the code
// that fills, measures and checks.
//
// A DeviceQueue has the marks and graphs of a device's stream. This header does not depend on CUDA: builds
// without the toolkit use cuda_site_none.cc instead of cuda_site.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti::perf {

struct SiteFacts {
  int device = -1;               ///< CUDA device, by its number in this process; -1: host memory
  std::string address = "host";  ///< PCI id of a device
  std::string name;              ///< name of the device, or of the processor
  uint64_t cache_bytes = 0;      ///< last-level cache

  bool on_device() const { return device >= 0; }
};

class SiteMemory {
 public:
  virtual ~SiteMemory() = default;
  virtual char* data() const = 0;
  virtual size_t bytes() const = 0;
};

/// A captured part of a stream. The stream outlives the graph.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Queues the graph on its stream. Errors: kSystemError.
  virtual Status launch() = 0;
};

/// The stream of a rank on a device. Errors name the driver's function.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  /// Makes marks 0 .. count - 1 usable.
  virtual Status reserve_marks(size_t count) = 0;
  /// The stream sets mark `index` when it gets here.
  virtual Status mark(size_t index) = 0;
  /// Time between two marks. Both must be set and waited for.
  virtual Result<double> between_us(size_t from, size_t to) = 0;
  virtual Status copy_within(void* to, const void* from, size_t bytes) = 0;
  virtual Status launch_nothing() = 0;
  /// Operations that `other` gets from now on wait for operations that this queue has. During a capture
  /// `other` joins the capture. Both queues are on one device.
  virtual Status go_before(DeviceQueue& other) = 0;
  /// Operations on the stream from now on are captured instead of run.
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture() = 0;
};

/// Used by one thread at a time.
class Site {
 public:
  virtual ~Site() = default;
  virtual const SiteFacts& facts() const = 0;
  virtual tutti_stream_t stream() const = 0;
  /// Null in host memory.
  virtual DeviceQueue* queue() = 0;

  /// `symmetric`: allocate with tutti_mem_alloc, host memory only. Errors: kOutOfMemory, kSystemError.
  virtual Result<std::unique_ptr<SiteMemory>> allocate(size_t bytes, bool symmetric) = 0;
  /// Memory that both the host and the rank's operations reach.
  virtual Result<std::unique_ptr<SiteMemory>> allocate_shared(size_t bytes) = 0;
  /// Copies between memory of the site and of the host; complete on return. Neither may be in use.
  virtual Status copy(void* to, const void* from, size_t bytes) = 0;
  /// Sets every byte to one value; complete on return.
  virtual Status fill(void* to, unsigned char value, size_t bytes) = 0;
  /// Bytes that can be allocated now; 0 if unknown.
  virtual uint64_t available_bytes() const = 0;
  /// Bytes in use: the process's resident memory, or all memory in use on the device.
  virtual uint64_t used_bytes() const = 0;

  virtual Status wait() = 0;
};

/// A site in host memory. `has_stream`: with a host stream; otherwise calls block.
Result<std::unique_ptr<Site>> open_host_site(bool has_stream);

/// The CUDA devices of this process. Thread-safe. Outlives its sites.
class CudaDevices {
 public:
  /// Looks for the driver. Errors: kUnsupported with the reason and a remedy.
  static Result<std::unique_ptr<CudaDevices>> find();
  virtual ~CudaDevices() = default;
  virtual int count() const = 0;
  /// Opens a site with its own stream, or with the device's null stream. Errors: kInvalidArgument (no such
  /// device), kOutOfMemory, kSystemError.
  virtual Result<std::unique_ptr<Site>> open(int device, bool null_stream) const = 0;
};

}  // namespace tutti::perf
