// Launcher: this process's rank in a job, from the launcher's environment variables. Contradictory or
// incomplete variables are an error that names them. No system calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/config.h"
#include "core/result.h"
#include "net/endpoint.h"

namespace tutti {

/// How ranks of a launcher can exchange their first bytes.
enum class LaunchChannel : uint8_t {
  kNone,  ///< only by `rendezvous`, or on one host
  kPmi1,  ///< MPICH's process manager: descriptor PMI_FD
  kPmix,  ///< the PMIx server of Open MPI and Slurm
};

struct LaunchContext {
  std::string launcher;  ///< for messages: "torchrun", "Open MPI", ...
  uint32_t rank = 0;
  uint32_t rank_count = 1;
  std::optional<uint32_t> local_rank;
  std::optional<uint32_t> local_count;
  LaunchChannel channel = LaunchChannel::kNone;
  /// Where rank 0 may listen, if the launcher names its host.
  std::optional<HostPort> rendezvous;
  /// Distinguishes the job from others on its hosts; may be empty.
  std::string job;

  bool is_one_host() const { return rank_count == 1 || local_count == rank_count; }
};

/// Empty if no launcher started this process. Errors: kInvalidUsage, with the variables that contradict each
/// other, are missing or are out of range.
///
/// Order: RANK and WORLD_SIZE (torchrun, or set by hand), Open MPI, MPICH (PMI), PMIx, Slurm, Kubernetes. The
/// first three must not disagree. The others' variables are often left over from around the job (mpirun in a
/// Slurm allocation), and then ignored.
Result<std::optional<LaunchContext>> find_launch_context(const Environment& environment);

/// The first host of Slurm's list: "n[01-04,7]-ib,m2" -> "n01-ib". Empty if the text is no such list.
std::string first_host_of(std::string_view node_list);

}  // namespace tutti
