// Place: where gradients lie and their reductions run: the host, or a GPU (gpu_place.h).
//
// The host computes in the memory of either, and a communicator of that place reduces it as it lies.
#pragma once

#include <cstddef>
#include <memory>

#include "tutti/tutti.h"

namespace tutti::trainer {

/// What a bucket's operations are issued on.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual tutti_stream_t handle() const = 0;
  /// What has been issued so far is what `wait` waits for. Throws Error.
  virtual void mark() = 0;
  /// Blocks until it is complete; then the host may use its memory. Any thread. Throws Error when it failed.
  virtual void wait() = 0;
};

class Place {
 public:
  virtual ~Place() = default;
  /// Zeroed memory for host and reductions, at one address; 0 bytes give null. Throws Error.
  virtual void* allocate(size_t bytes) = 0;
  /// Nothing may be using it.
  virtual void free(void* memory) = 0;
  /// To be given up before the place. Throws Error.
  virtual std::unique_ptr<Stream> make_stream() = 0;
};
using PlacePointer = std::shared_ptr<Place>;

/// Memory of the symmetric heap, which peers of this host reduce without a copy, and host streams.
PlacePointer host_place();

/// Numbers in the memory of a place.
template <class T>
class PlacedVector {
 public:
  PlacedVector() = default;
  PlacedVector(size_t count, const PlacePointer& place)
      : memory_(static_cast<T*>(place->allocate(count * sizeof(T))), Free{place}), count_(count) {}
  T* data() const { return memory_.get(); }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return memory_[static_cast<ptrdiff_t>(i)]; }

 private:
  struct Free {
    PlacePointer place;
    void operator()(T* memory) const { place->free(memory); }
  };
  std::unique_ptr<T[], Free> memory_;
  size_t count_ = 0;
};

}  // namespace tutti::trainer
