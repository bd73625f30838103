// Workload: one collective on all ranks of a RankSet, several times in a row, with data whose result is
// known from the definition of the collective alone.
//
// Every rank goes on to its next run the moment it is done with one, after its result was checked and all its
// memory was overwritten: whoever still reads a completed rank's buffers gets a wrong result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/geometry.h"
#include "tests/sim/cluster.h"
#include "tests/support/placements.h"

namespace tutti::test {

/// What to run. Everything random is drawn from `sim.seed`.
struct RunSpec {
  const Algorithm* algorithm = nullptr;
  Request request;  ///< but for the collective
  Facts facts;
  /// What facts.host_of borrows from; shared, because runs are copied.
  std::shared_ptr<const Placement> placement = nullptr;
  SimOptions sim;
  Carriage carriage = Carriage::kSlot;  ///< how slices may travel: kSlot, kReference, kPull (with sim.pull)
  bool streaming = false;
  uint32_t iterations = 1;
  std::vector<uint64_t> block_counts;  ///< request.variable_counts: elements of every rank's block
};

/// "all_reduce ring, 5 ranks, root 0, 64 bytes of uint32, sum, in place, ..., seed 7", for failures.
std::string describe(const RunSpec& spec);

class Workload {
 public:
  explicit Workload(const RunSpec& spec);

  /// Binds every rank's operation and starts its first run.
  void start(RankSet& cluster);
  /// Gives a rank another signature than the others have; before start().
  void disagree(uint32_t rank) { disagreeing_rank_ = rank; }
  /// For SimCluster::run: checks the rank's result, overwrites its memory, starts its next run.
  void on_done(RankSet& cluster, uint32_t rank);

  /// What was wrong first; empty: nothing.
  const std::string& failure() const { return failure_; }
  /// Every rank has done all its runs.
  bool complete() const;
  /// The bytes that the rank's last run left in its output.
  const std::vector<std::byte>& last_output(uint32_t rank) const { return ranks_[rank].last_output; }

 private:
  using Bytes = std::vector<std::byte>;
  /// One rank's memory: guard, buffers, guard.
  struct Rank {
    Bytes memory;
    Bytes expected;             ///< all of the memory after the run
    std::vector<Extent> input;  ///< blocks, relative to input_offset; empty: the rank has no input
    std::vector<Extent> output;
    size_t input_offset = 0;
    size_t output_offset = 0;
    uint32_t iteration = 0;
    Bytes last_output;
  };

  void lay_out(uint32_t rank);
  void begin(RankSet& cluster, uint32_t rank);
  std::vector<Extent> blocks(bool output, uint32_t rank) const;
  size_t block_bytes(uint32_t block) const;
  Bytes operand(uint32_t iteration, uint32_t rank, uint32_t block, size_t bytes) const;
  const Bytes& reduced(uint32_t iteration, uint32_t block, size_t bytes);
  Bytes result(uint32_t iteration, uint32_t rank, uint32_t block, size_t bytes);

  RunSpec spec_;
  uint32_t disagreeing_rank_ = UINT32_MAX;
  std::vector<Rank> ranks_;
  std::map<std::pair<uint32_t, uint32_t>, Bytes> reduced_;  ///< by iteration and block
  std::string failure_;
};

/// Runs it all; what was wrong, with the run's description, or empty.
std::string run_to_the_end(const RunSpec& spec);

}  // namespace tutti::test
