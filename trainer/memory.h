// Backend: the memory of gradients, and the streams on which their reductions run. On the host, or on a GPU
// (gpu_backend.h).
//
// The host computes in either memory. A communicator of the backend reduces this memory in place.
#pragma once

#include <cstddef>
#include <memory>

#include "tutti/tutti.h"

namespace tutti::trainer {

/// The stream for a bucket's operations.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual tutti_stream_t handle() const = 0;
  /// `wait` waits for all operations issued before this call. Throws Error.
  virtual void mark() = 0;
  /// Blocks until the marked operations are complete. Then the host may use their memory. Any thread. Throws
  /// Error if an operation failed.
  virtual void wait() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Zeroed memory for the host and for reductions, at one address; null for 0 bytes. Throws Error.
  virtual void* allocate(size_t bytes) = 0;
  /// No operation may use the memory.
  virtual void free(void* memory) = 0;
  /// The stream must be destroyed before the backend. Throws Error.
  virtual std::unique_ptr<Stream> make_stream() = 0;
};
using BackendPointer = std::shared_ptr<Backend>;

/// Memory of the symmetric heap, which ranks on this host reduce without a copy, and host streams.
BackendPointer host_backend();

template <class T>
class BackendVector {
 public:
  BackendVector() = default;
  BackendVector(size_t count, const BackendPointer& backend)
      : memory_(static_cast<T*>(backend->allocate(count * sizeof(T))), Free{backend}), count_(count) {}
  T* data() const { return memory_.get(); }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return memory_[static_cast<ptrdiff_t>(i)]; }

 private:
  struct Free {
    BackendPointer backend;
    void operator()(T* memory) const { backend->free(memory); }
  };
  std::unique_ptr<T[], Free> memory_;
  size_t count_ = 0;
};

}  // namespace tutti::trainer
