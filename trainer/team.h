// Team: a rank's membership in the run. Two communicators of the same ranks, so that small questions (are all
// well? sums of losses, batch statistics) do not queue behind gradients, and because these may be reduced by
// GPUs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/error.h"
#include "trainer/gpu.h"
#include "trainer/memory.h"
#include "tutti/tutti.h"

namespace tutti::trainer {

class Team {
 public:
  /// Joins the communicator `id`; blocks until all have. Throws Error.
  Team(tutti_unique_id_t id, int rank, int rank_count, bool reproducible);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  /// For gradients; the caller issues on it from one thread at a time.
  tutti_comm_t* gradients() const { return gradients_; }
  /// Where the memory of what `gradients` reduces has to be.
  const PlacePointer& place() const { return place_; }
  /// What goes wrong here goes wrong everywhere: other ranks' calls end with an error, and so do this rank's
  /// reductions under way; nothing may be called afterwards. Not after a problem that `agree` has told
  /// everybody: some ranks may only just be hearing of it.
  void abort();

  // All of these are collective, block, and throw Error.

  /// Replaces the numbers by their sums over all ranks.
  void sum(std::span<double> values);
  /// From now on GPUs reduce gradients; this rank's is `gpu`, null where it has none. "" when done, else why
  /// they stay on the host, the same on every rank. Before the first use of `gradients` and `place`.
  std::string reduce_on(const std::shared_ptr<const Gpu>& gpu);
  /// Throws on every rank if `problem` is not empty on any: "rank 2: ..." of the first such rank.
  void agree(const std::string& problem);
  /// Rank 0's bytes for everybody; their number may differ before.
  void broadcast(std::vector<std::byte>* bytes);
  /// Rank 0's values over everybody's, of equal number.
  void broadcast(std::span<float> values);
  /// Every rank's bytes, in order of rank, for everybody; their numbers may differ.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);

 private:
  /// "rank 2: ..." of the first rank whose `problem` is not empty; "" without one. Collective.
  std::string first_problem(const std::string& problem);

  int rank_;
  int count_;
  bool reproducible_;
  bool agreed_ = false;  ///< that there is a problem
  PlacePointer place_ = host_place();
  tutti_comm_t* gradients_ = nullptr;
  tutti_comm_t* control_ = nullptr;
};

/// Calls `act`, which may throw on some ranks, and agrees on whether all went well.
template <class Act>
void together(Team& team, const Act& act) {
  std::string problem;
  try {
    act();
  } catch (const std::exception& error) {
    problem = text_of(error);
  }
  team.agree(problem);
}

}  // namespace tutti::trainer
