// Site: where a rank works. Whose memory its buffers are in, what its operations are issued on, and how one
// waits for them; host memory and CUDA devices look alike to all that fills, measures and checks.
//
// What only a device can do, its streams' marks and graphs, is a DeviceQueue. Nothing of CUDA is seen here:
// builds without its toolkit have cuda_site_none.cc in the place of cuda_site.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// What the tables say of a site, and what sizes depend on.
struct SiteFacts {
  int device = -1;               ///< CUDA device, by its number in this process; -1: host memory
  std::string address = "host";  ///< of a device: its PCI id
  std::string name;              ///< of the device, or the processor
  uint64_t cache_bytes = 0;      ///< last-level cache

  bool on_device() const { return device >= 0; }
};

/// Owns memory of a site.
class SiteMemory {
 public:
  virtual ~SiteMemory() = default;
  virtual char* data() const = 0;
  virtual size_t bytes() const = 0;
};

/// A captured piece of a stream. The stream outlives it.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Queues it on its stream. Errors: kSystemError.
  virtual Status launch() = 0;
};

/// The stream of a rank on a device. What fails names the driver's function.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  /// Marks 0 .. count - 1 can be set.
  virtual Status reserve_marks(size_t count) = 0;
  /// Mark `index` is set when the stream gets here.
  virtual Status mark(size_t index) = 0;
  /// Time between two marks, which both have been set and waited for.
  virtual Result<double> between_us(size_t from, size_t to) = 0;
  /// Queues a copy within the device's memory.
  virtual Status copy_within(void* to, const void* from, size_t bytes) = 0;
  /// Queues a kernel that does nothing.
  virtual Status launch_nothing() = 0;
  /// What `other` is given from now on waits for what this queue has been given; in a capture it becomes part
  /// of it. Both are on one device.
  virtual Status go_before(DeviceQueue& other) = 0;
  /// What is issued on the stream from now on is captured, not run.
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture() = 0;
};

/// Used by one thread at a time.
class Site {
 public:
  virtual ~Site() = default;
  virtual const SiteFacts& facts() const = 0;
  /// What the rank's operations are issued on.
  virtual tutti_stream_t stream() const = 0;
  /// Null in host memory.
  virtual DeviceQueue* queue() = 0;

  /// `symmetric`: from tutti_mem_alloc, which gives host memory only. Errors: kOutOfMemory, kSystemError.
  virtual Result<std::unique_ptr<SiteMemory>> allocate(size_t bytes, bool symmetric) = 0;
  /// Memory that the host and the rank's operations both reach.
  virtual Result<std::unique_ptr<SiteMemory>> allocate_shared(size_t bytes) = 0;
  /// Copies between memory of the site or of the host; done on return. Nothing that uses either may be under
  /// way.
  virtual Status copy(void* to, const void* from, size_t bytes) = 0;
  /// Gives every byte one value; done on return.
  virtual Status fill(void* to, unsigned char value, size_t bytes) = 0;
  /// Bytes that could be allocated now; 0 when unknown.
  virtual uint64_t available_bytes() const = 0;
  /// Bytes in use: resident memory of the process, or all that is taken of the device.
  virtual uint64_t used_bytes() const = 0;

  /// Waits until all that was issued on stream() is done.
  virtual Status wait() = 0;
};

/// In host memory; `has_stream`: with a host stream, else blocking calls.
Result<std::unique_ptr<Site>> open_host_site(bool has_stream);

/// The CUDA devices of this process. Thread-safe. Outlives its sites.
class CudaDevices {
 public:
  /// Looks for the driver. Errors: kUnsupported with the reason and what to do.
  static Result<std::unique_ptr<CudaDevices>> find();
  virtual ~CudaDevices() = default;
  virtual int count() const = 0;
  /// With a stream of its own, or the device's null stream. Errors: kInvalidArgument (no such device),
  /// kOutOfMemory, kSystemError.
  virtual Result<std::unique_ptr<Site>> open(int device, bool null_stream) const = 0;
};

}  // namespace tutti::perf
