// DataParallel: what makes one model out of the copies of all ranks.
#pragma once

#include <memory>

#include "trainer/bucketer.h"
#include "trainer/compression.h"
#include "trainer/layer.h"
#include "trainer/team.h"

namespace tutti::trainer {

class DataParallel {
 public:
  /// While it lives, gradients stay on this rank and add up: for all but the last part of a batch.
  class NoSync {
   public:
    explicit NoSync(DataParallel& parallel) : parallel_(parallel) { parallel_.syncing_ = false; }
    ~NoSync() { parallel_.syncing_ = true; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
  };

  /// Collective. Both outlive it; gradients are in memory of the team's place. Throws Error.
  DataParallel(Team& team, Parameters& parameters, const BucketOptions& buckets,
               const CompressionOptions& compression);

  /// Everybody gets rank 0's parameters and buffers. Collective, blocks.
  void broadcast_parameters();
  /// The buffers only: needed where they are not the same everywhere by construction.
  void broadcast_buffers();

  /// For Model::backward: reduces what is ready, unless a NoSync lives.
  GradientReady on_ready();
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  /// Waits until all gradients are the sums over all ranks; to be called once a step, after the last backward
  /// pass.
  void finish() { bucketer_->finish(); }

  const Bucketer& bucketer() const { return *bucketer_; }
  Reduction& reduction() { return *reduction_; }
  /// A rank's bytes a step, and what they would be without compression.
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
