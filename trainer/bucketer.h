// Bucketer: reduces gradients in buckets while the backward pass still computes other gradients.
//
// One reduction for each tensor costs a message each time. One reduction of everything cannot begin before
// the last gradient is ready. Buckets are in between: neighbours in the flat gradient buffer, last layer
// first, because the backward pass ends with the first layer. A bucket is issued when its last gradient is
// ready, on a host stream or a CUDA stream, and always in order, so that all ranks issue the same calls.
// Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "trainer/memory.h"
#include "tutti/tutti.h"

namespace tutti::trainer {

/// A tensor's position in the flat buffer or in a bucket: [rows, columns] from element `offset` on.
struct Tensor {
  size_t offset = 0;
  size_t rows = 1;
  size_t columns = 0;

  size_t count() const { return rows * columns; }
};

struct Bucket {
  size_t index = 0;
  std::span<float> values = {};      ///< a view of the flat buffer, reduced in place without a copy
  std::vector<Tensor> tensors = {};  ///< offsets count inside `values`
};

/// How a bucket becomes the sum over all ranks: a plain all-reduce, or a compressed one (compression.h).
class Reduction {
 public:
  virtual ~Reduction() = default;
  /// Issues the first operation for the bucket on `stream`.
  virtual void start(const Bucket& bucket, tutti_stream_t stream) = 0;
  /// Called when the issued operation is complete. True: the bucket now holds the sum. False: another
  /// operation was issued.
  virtual bool proceed(const Bucket& bucket, tutti_stream_t stream) = 0;
  /// Bytes that a rank must send for the bucket with a bandwidth-optimal algorithm.
  virtual double wire_bytes(const Bucket& bucket) const = 0;
  /// This rank's state for a checkpoint; usually empty.
  virtual std::vector<std::span<float>> state() { return {}; }
};

struct BucketOptions {
  /// A bucket closes when it has this many bytes or more. The first bucket has its own limit, because its end
  /// decides when communication can begin. 0: one bucket for each tensor.
  size_t first_bytes = size_t{1} << 20;
  size_t bytes = size_t{25} << 20;
};

/// Groups tensors, given in forward order, into buckets of the flat buffer, last tensor first.
std::vector<Bucket> make_buckets(std::span<float> flat, std::span<const Tensor> tensors,
                                 const BucketOptions& options);

class Bucketer {
 public:
  struct Times {
    uint64_t start_ns = 0;  ///< issued
    uint64_t end_ns = 0;    ///< complete on this rank
  };

  /// `reduction` must serve the same buckets on all ranks. `reduction` and the buckets' memory, from
  /// `backend`, outlive the bucketer. Throws Error.
  Bucketer(std::vector<Bucket> buckets, Reduction& reduction, BackendPointer backend = host_backend());
  Bucketer(const Bucketer&) = delete;
  Bucketer& operator=(const Bucketer&) = delete;

  /// The gradient of tensor number `tensor`, in forward order, is complete and does not change until
  /// `finish`. Does not block. Throws std::logic_error if the tensor was already marked.
  void mark_ready(size_t tensor);
  /// Waits until every bucket holds the sum over all ranks. Then the next step may begin. Throws Error if a
  /// reduction failed, and std::logic_error if a tensor was not marked.
  void finish();

  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// The times of the last finished step, by bucket.
  const std::vector<Times>& times() const { return times_; }
  /// For the last finished step: time in which a reduction ran, and the part of this time that `finish`
  /// waited.
  uint64_t communication_ns() const { return communication_ns_; }
  uint64_t exposed_ns() const { return exposed_ns_; }

 private:
  void start_ready_buckets();
  /// Waits in a thread of its own, asleep, for all operations issued on the bucket's stream.
  void watch(size_t bucket);

  std::vector<Bucket> buckets_;
  Reduction& reduction_;
  BackendPointer backend_;
  std::vector<std::unique_ptr<Stream>>
      streams_;                        ///< one for each bucket, so that the bucket's end can be waited for
  std::vector<size_t> bucket_of_;      ///< by tensor
  std::vector<bool> ready_;            ///< by tensor
  std::vector<size_t> missing_count_;  ///< by bucket
  size_t started_count_ = 0;           ///< number of buckets
  std::vector<Times> times_;
  uint64_t communication_ns_ = 0;
  uint64_t exposed_ns_ = 0;
  /// By bucket: when its reduction was done. Declared last, so destroyed first, which waits for all.
  std::vector<std::future<uint64_t>> ends_;
};

}  // namespace tutti::trainer
