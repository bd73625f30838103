// DataParallel: makes one model from the copies on all ranks.
#pragma once

#include <memory>

#include "trainer/bucketer.h"
#include "trainer/compression.h"
#include "trainer/layer.h"
#include "trainer/team.h"

namespace tutti::trainer {

class DataParallel {
 public:
  /// While this object lives, gradients stay on this rank and add up. Used for all parts of a batch except
  /// the last.
  class NoSync {
   public:
    explicit NoSync(DataParallel& parallel) : parallel_(parallel) { parallel_.syncing_ = false; }
    ~NoSync() { parallel_.syncing_ = true; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
  };

  /// Collective. Both arguments outlive this object. Gradients are in memory of the team's backend. Throws
  /// Error.
  DataParallel(Team& team, Parameters& parameters, const BucketOptions& buckets,
               const CompressionOptions& compression);

  /// Gives rank 0's parameters and buffers to every rank. Collective, blocks.
  void broadcast_parameters();
  /// Only the buffers: needed if they differ between ranks.
  void broadcast_buffers();

  /// For Model::backward: reduces ready gradients, unless a NoSync lives.
  GradientReady on_ready();
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  /// Waits until all gradients are sums over all ranks. Called once a step, after the last backward pass.
  void finish() { bucketer_->finish(); }

  const Bucketer& bucketer() const { return *bucketer_; }
  Reduction& reduction() { return *reduction_; }
  /// Bytes that a rank sends in a step, and the bytes without compression.
  double wire_bytes() const;
  double plain_wire_bytes() const;

 private:
  Team& team_;
  Parameters& parameters_;
  bool syncing_ = true;
  std::unique_ptr<Reduction> reduction_;
  std::unique_ptr<Bucketer> bucketer_;
};

}  // namespace tutti::trainer
