// Launcher: who this process is among those that a launcher has started, read from its environment. A table
// of launchers, no system call; what contradicts itself or is incomplete is an error that names the
// variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/config.h"
#include "core/result.h"
#include "net/endpoint.h"

namespace tutti {

/// How ranks of a launcher can tell each other the first few bytes.
enum class LaunchChannel : uint8_t {
  kNone,  ///< by nothing but `rendezvous`, or on one host
  kPmi1,  ///< MPICH's process manager: descriptor PMI_FD
  kPmix,  ///< Open MPI's and Slurm's PMIx server
};

/// The place of this process in its job.
struct LaunchContext {
  std::string launcher;  ///< for messages: "torchrun", "Open MPI", ...
  uint32_t rank = 0;
  uint32_t rank_count = 1;
  std::optional<uint32_t> local_rank;   ///< among the ranks of this host
  std::optional<uint32_t> local_count;  ///< ranks of this host
  LaunchChannel channel = LaunchChannel::kNone;
  /// Where rank 0 may listen, when the launcher says on which host it is.
  std::optional<HostPort> rendezvous;
  /// Tells this job from others that run at the same time on the same hosts; may be empty.
  std::string job;

  /// All ranks are known to be on this host.
  bool is_one_host() const { return rank_count == 1 || local_count == rank_count; }
};

/// Empty when no launcher started this process. Errors: kInvalidUsage naming the variables that contradict
/// each other, are missing or are no numbers in range.
///
/// Order: RANK and WORLD_SIZE (torchrun, or set by hand) before Open MPI, MPICH (PMI), PMIx, Slurm,
/// Kubernetes. Two of the first three that disagree are an error; the later ones are often left over from
/// around the job (mpirun in a Slurm allocation) and then say nothing about it.
Result<std::optional<LaunchContext>> find_launch_context(const Environment& environment);

/// The first host of Slurm's compressed list: "n[01-04,7]-ib,m2" -> "n01-ib". Empty when the text is none.
std::string first_host_of(std::string_view node_list);

}  // namespace tutti
