// Bucketer: gradients are reduced in buckets, while the backward pass still computes others.
//
// A reduction a tensor pays the cost of a message for each; one reduction of everything cannot begin before
// the last gradient is there. Buckets are in between: neighbours in the flat gradient buffer, last layer
// first, because the backward pass ends with the first. A bucket's reduction is issued on a host stream the
// moment its last gradient is ready (a CUDA stream where gradients are reduced on a GPU), and always in the
// order of buckets, so that all ranks issue the same calls. Source: Li et al., "PyTorch distributed:
// experiences on accelerating data parallel training", 2020.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/memory.h"
#include "trainer/stream_watch.h"
#include "tutti/tutti.h"

namespace tutti::trainer {

/// A tensor's place in the flat buffer, or in a bucket: [rows, columns] from element `offset` on.
struct Tensor {
  size_t offset = 0;
  size_t rows = 1;
  size_t columns = 0;

  size_t count() const { return rows * columns; }
};

struct Bucket {
  size_t index = 0;
  std::span<float> values = {};      ///< a view of the flat buffer: reduced in place, nothing is copied
  std::vector<Tensor> tensors = {};  ///< offsets are inside `values`
};

/// How a bucket becomes the sum over all ranks: a plain all-reduce, or a compression of it (compression.h).
class Reduction {
 public:
  virtual ~Reduction() = default;
  /// Issues the first operation for the bucket on `stream`.
  virtual void start(const Bucket& bucket, tutti_stream_t stream) = 0;
  /// Called when what was issued for the bucket is complete. True: the bucket now holds the sum. False:
  /// another operation was issued.
  virtual bool proceed(const Bucket& bucket, tutti_stream_t stream) = 0;
  /// Bytes that a rank has to send for the bucket, by a bandwidth-optimal algorithm.
  virtual double wire_bytes(const Bucket& bucket) const = 0;
  /// What a checkpoint has to keep, this rank's own; empty for most.
  virtual std::vector<std::span<float>> state() { return {}; }
};

struct BucketOptions {
  /// A bucket closes when it has so many bytes or more; the first, whose end decides when communication can
  /// begin, has a limit of its own. 0: each tensor by itself.
  size_t first_bytes = size_t{1} << 20;
  size_t bytes = size_t{25} << 20;
};

/// Groups tensors, given in forward order, into buckets of the flat buffer, last tensor first.
std::vector<Bucket> make_buckets(std::span<float> flat, std::span<const Tensor> tensors,
                                 const BucketOptions& options);

class Bucketer {
 public:
  /// Times of one bucket's reduction, of one step.
  struct Times {
    uint64_t start_ns = 0;  ///< issued
    uint64_t end_ns = 0;    ///< complete on this rank
  };

  /// `reduction` must serve the same buckets on all ranks. It and the buckets' memory, of `place`, outlive
  /// the bucketer. Throws Error.
  Bucketer(std::vector<Bucket> buckets, Reduction& reduction, PlacePointer place = host_place());
  /// Waits for reductions under way.
  ~Bucketer();
  Bucketer(const Bucketer&) = delete;
  Bucketer& operator=(const Bucketer&) = delete;

  /// The gradient of the tensor, by its number in forward order, is complete and will not be touched until
  /// `finish`. Does not block. Throws std::logic_error for a tensor that was ready already.
  void mark_ready(size_t tensor);
  /// Waits until every bucket holds the sum over all ranks; then the next step may begin. Throws Error when a
  /// reduction failed, and std::logic_error when a tensor was not marked.
  void finish();

  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Of the last finished step, by bucket.
  const std::vector<Times>& times() const { return times_; }
  /// Of the last finished step: time during which a reduction ran, and the part of it that `finish` waited.
  uint64_t communication_ns() const { return communication_ns_; }
  uint64_t exposed_ns() const { return exposed_ns_; }

 private:
  void start_ready_buckets();

  std::vector<Bucket> buckets_;
  Reduction& reduction_;
  PlacePointer place_;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< one a bucket, so that its end can be waited for
  std::vector<size_t> bucket_of_;                 ///< by tensor
  std::vector<bool> ready_;                       ///< by tensor
  std::vector<size_t> missing_count_;             ///< by bucket
  size_t started_count_ = 0;                      ///< of buckets
  std::vector<Times> times_;
  uint64_t communication_ns_ = 0;
  uint64_t exposed_ns_ = 0;
  StreamWatch watch_;  ///< last: it ends first
};

}  // namespace tutti::trainer
