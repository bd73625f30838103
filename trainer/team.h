// Team: a rank in the run. There are two communicators of the same ranks. So small questions (error checks,
// sums of losses, batch statistics) do not queue behind gradients, and GPUs may reduce the gradients.
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
  /// Joins the communicator `id`. Blocks until all ranks have joined. Throws Error.
  Team(tutti_unique_id_t id, int rank, int rank_count, bool reproducible);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  /// For gradients. Only one thread at a time may issue on it.
  tutti_comm_t* gradients() const { return gradients_; }
  /// The backend whose memory `gradients` reduces.
  const BackendPointer& backend() const { return backend_; }
  /// Ends the run after a failure on this rank. Calls of other ranks, and this rank's reductions in progress,
  /// end with an error. No call may follow. Does nothing after a problem that `agree` has told all ranks,
  /// because some ranks may just be reading it.
  void abort();

  // These functions are collective, block, and throw Error.

  /// Replaces the numbers by their sums over all ranks.
  void sum(std::span<double> values);
  /// From now on GPUs reduce gradients. `gpu` is this rank's GPU, or null. Returns "" on success, else the
  /// reason why gradients stay on the host, the same on every rank. Must come before the first use of
  /// `gradients` and `backend`.
  std::string reduce_on(const std::shared_ptr<const Gpu>& gpu);
  /// Throws on every rank if `problem` is not empty on any rank. The text is "rank 2: ..." for the first such
  /// rank.
  void agree(const std::string& problem);
  /// Gives rank 0's bytes to every rank. Their number may differ before.
  void broadcast(std::vector<std::byte>* bytes);
  /// Gives rank 0's values to every rank. Their number must be equal.
  void broadcast(std::span<float> values);
  /// Gives every rank's bytes, in order of rank, to every rank. Their numbers may differ.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);

 private:
  /// "rank 2: ..." for the first rank whose `problem` is not empty; "" if there is none. Collective.
  std::string first_problem(const std::string& problem);

  int rank_;
  int count_;
  bool reproducible_;
  bool agreed_ = false;  ///< all ranks know of the problem
  BackendPointer backend_ = host_backend();
  tutti_comm_t* gradients_ = nullptr;
  tutti_comm_t* control_ = nullptr;
};

/// Calls `act`, which may throw on some ranks. Then all ranks agree whether it succeeded.
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
