#include "trainer/bucketer.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "trainer/timeline.h"

namespace tutti::trainer {

std::vector<Bucket> make_buckets(std::span<float> flat, std::span<const Tensor> tensors,
                                 const BucketOptions& options) {
  std::vector<Bucket> buckets;
  for (size_t end = tensors.size(); end > 0;) {
    const size_t limit = buckets.empty() ? std::min(options.first_bytes, options.bytes) : options.bytes;
    size_t begin = end;
    size_t bytes = 0;
    do bytes += tensors[--begin].count() * sizeof(float);
    while (begin > 0 && bytes < limit);
    const size_t first = tensors[begin].offset;
    Bucket bucket{.index = buckets.size()};
    bucket.values = flat.subspan(first, tensors[end - 1].offset + tensors[end - 1].count() - first);
    for (size_t i = begin; i < end; ++i)
      bucket.tensors.push_back({tensors[i].offset - first, tensors[i].rows, tensors[i].columns});
    buckets.push_back(std::move(bucket));
    end = begin;
  }
  return buckets;
}

Bucketer::Bucketer(std::vector<Bucket> buckets, Reduction& reduction, BackendPointer backend)
    : buckets_(std::move(buckets)),
      reduction_(reduction),
      backend_(std::move(backend)),
      times_(buckets_.size()),
      ends_(buckets_.size()) {
  // The last bucket holds the first tensors.
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket)
    bucket_of_.insert(bucket_of_.end(), bucket->tensors.size(), bucket->index);
  ready_.assign(bucket_of_.size(), false);
  for (const Bucket& bucket : buckets_) {
    missing_count_.push_back(bucket.tensors.size());
    streams_.push_back(backend_->make_stream());
  }
}

void Bucketer::mark_ready(size_t tensor) {
  if (ready_.at(tensor))
    throw std::logic_error("tensor " + std::to_string(tensor) + " was already marked ready");
  ready_[tensor] = true;
  --missing_count_[bucket_of_[tensor]];
  start_ready_buckets();
}

void Bucketer::start_ready_buckets() {
  for (; started_count_ < buckets_.size() && missing_count_[started_count_] == 0; ++started_count_) {
    times_[started_count_].start_ns = now_ns();
    reduction_.start(buckets_[started_count_], streams_[started_count_]->handle());
    watch(started_count_);
  }
}

void Bucketer::watch(size_t bucket) {
  Stream& stream = *streams_[bucket];
  stream.mark();
  ends_[bucket] = std::async(std::launch::async, [&stream] {
    stream.wait();
    return now_ns();
  });
}

void Bucketer::finish() {
  if (started_count_ < buckets_.size()) {
    const auto tensor = std::find(ready_.begin(), ready_.end(), false) - ready_.begin();
    throw std::logic_error("the gradient of tensor " + std::to_string(tensor) + " was never marked ready");
  }
  exposed_ns_ = 0;
  std::vector<bool> done(buckets_.size());
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    for (const Bucket& bucket : buckets_) {
      if (done[bucket.index]) continue;
      const uint64_t before_ns = now_ns();
      times_[bucket.index].end_ns = ends_[bucket.index].get();
      exposed_ns_ += now_ns() - before_ns;
      done[bucket.index] = reduction_.proceed(bucket, streams_[bucket.index]->handle());
      if (!done[bucket.index]) watch(bucket.index);
    }
  }
  // Reductions run one after the other: a bucket's reduction begins when the bucket before has ended.
  communication_ns_ = 0;
  uint64_t free_ns = 0;
  for (const Times& times : times_) {
    communication_ns_ += times.end_ns - std::min(times.end_ns, std::max(times.start_ns, free_ns));
    free_ns = std::max(free_ns, times.end_ns);
  }
  started_count_ = 0;
  ready_.assign(ready_.size(), false);
  for (const Bucket& bucket : buckets_) missing_count_[bucket.index] = bucket.tensors.size();
}

}  // namespace tutti::trainer
