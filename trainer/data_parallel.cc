#include "trainer/data_parallel.h"

namespace tutti::trainer {

DataParallel::DataParallel(Team& team, Parameters& parameters, const BucketOptions& options,
                           const CompressionOptions& compression)
    : team_(team), parameters_(parameters) {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : parameters.list())
    tensors.push_back({parameter.offset, parameter.rows, parameter.columns});
  std::vector<Bucket> buckets = make_buckets(parameters.gradients(), tensors, options);
  reduction_ = make_reduction(compression, buckets, team.gradients(), team.backend());
  bucketer_ = std::make_unique<Bucketer>(std::move(buckets), *reduction_, team.backend());
}

void DataParallel::broadcast_parameters() {
  team_.broadcast(parameters_.values());
  broadcast_buffers();
}

void DataParallel::broadcast_buffers() {
  for (Buffer& buffer : parameters_.buffers()) team_.broadcast(std::span(buffer.values));
}

GradientReady DataParallel::on_ready() {
  return [this](const Parameter& parameter) {
    if (syncing_) bucketer_->mark_ready(parameter.index);
  };
}

double DataParallel::wire_bytes() const {
  double bytes = 0;
  for (const Bucket& bucket : bucketer_->buckets()) bytes += reduction_->wire_bytes(bucket);
  return bytes;
}

double DataParallel::plain_wire_bytes() const {
  size_t count = 0;
  for (const Bucket& bucket : bucketer_->buckets()) count += bucket.values.size();
  return 2.0 * (team_.count() - 1) / team_.count() * static_cast<double>(count * sizeof(float));
}

}  // namespace tutti::trainer
