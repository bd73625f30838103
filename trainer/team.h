// Team: a rank's membership in the run. Two communicators of the same ranks, so that small questions (are all
// well? sums of losses, batch statistics) do not queue behind gradients.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trainer/error.h"
#include "tutti/tutti.h"

namespace tutti::trainer {

class Team {
 public:
  /// Joins the communicator `id`; blocks until all have. Throws Error.
  Team(tutti_unique_id_t id, int rank, int rank_count, bool reproducible);
  /// After `abort` or an error of a call, the communicators are aborted, else destroyed.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  /// For gradients; the caller issues on it from one thread at a time.
  tutti_comm_t* gradients() const { return gradients_; }
  /// What goes wrong here goes wrong everywhere: other ranks' calls end with an error. Not after a problem
  /// that `agree` has told everybody: some ranks may only just be hearing of it.
  void abort() { aborted_ = !agreed_; }

  // All of these are collective, block, and throw Error.

  /// Replaces the numbers by their sums over all ranks.
  void sum(std::span<double> values);
  /// Throws on every rank if `problem` is not empty on any: "rank 2: ..." of the first such rank.
  void agree(const std::string& problem);
  /// Rank 0's bytes for everybody; their number may differ before.
  void broadcast(std::vector<std::byte>* bytes);
  /// Rank 0's values over everybody's, of equal number.
  void broadcast(std::span<float> values);
  /// Every rank's bytes, in order of rank, for everybody; their numbers may differ.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);

 private:
  int rank_;
  int count_;
  bool agreed_ = false;  ///< that there is a problem
  bool aborted_ = false;
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
    problem = error.what();
  }
  team.agree(problem);
}

}  // namespace tutti::trainer
