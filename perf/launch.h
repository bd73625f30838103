// How ranks start, and how the unique id reaches them.
//
// Local processes (--procs N): the first process becomes a supervisor. It executes itself N times, because
// fresh images have different address layouts, as in real jobs. A pipe carries the unique id from worker 0 to
// the others. When a worker dies, the supervisor prints its rank, gives the others time to report the error,
// and kills the rest. Workers die with their supervisor (PR_SET_PDEATHSIG).
//
// Launchers: bootstrap/launcher.h finds rank and size; tutti_share_unique_id carries the id.
#pragma once

#include <chrono>

#include "bootstrap/launcher.h"
#include "core/config.h"
#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti::perf {

struct LaunchOptions {
  int processes = 0;             ///< 0: the processes of a launcher, or this process alone
  int threads = 1;               ///< ranks of each process, for messages
  const char* flag = "--procs";  ///< the flag that asks for processes, for messages
};

/// The position of this process among the processes of the run.
struct ProcessContext {
  enum class Channel { kNone, kPipe, kLauncher };

  int process = 0;
  int process_count = 1;
  Channel channel = Channel::kNone;
  int pipe_descriptor = -1;  ///< kPipe: the write end in process 0, the read end in other processes; owned
  LaunchContext launch;      ///< for kLauncher
};

/// The context of this process: a worker of our own supervisor, a process of a launcher, or alone.
/// kInvalidUsage: the environment contradicts itself.
Result<ProcessContext> find_process_context(const LaunchOptions& options, const Environment& get_env);

/// True if this process must supervise: a number of processes was given, and this process is not a worker.
bool is_supervisor(const LaunchOptions& options, const Environment& get_env);

/// For a supervisor. kInvalidUsage: a launcher started several such processes, and each would start all ranks
/// again.
Status check_alone(const LaunchOptions& options, const Environment& get_env);

/// Starts options.processes workers with the same arguments and waits for all. Returns the exit status: 0,
/// the first failing worker's status, or kExitFailure if a signal killed that worker. All children are
/// reaped.
int supervise(const LaunchOptions& options, char** argv, std::chrono::milliseconds grace);

/// From now on this process seems to be on one of `hosts` hosts, and reaches the others over the loopback
/// interface. Before the first call of the library.
void emulate_host(int hosts, int process, int process_count);

/// From now on this process runs on one of the cores that it might use, in turn. Errors: kSystemError.
Status bind_to_core(int process);

/// Process 0 sends its id to the other processes. They wait for the id; under a launcher at most
/// TUTTI_SETUP_TIMEOUT_MS. Errors: kPeerLost (process 0 ended first), kSystemError, errors of
/// tutti_share_unique_id.
Status share_id(const ProcessContext& context, tutti_unique_id_t* id);

/// Called by process 0 when every rank has joined. Removes the file that carried the id, if there is one.
void forget_id(const ProcessContext& context);

}  // namespace tutti::perf
