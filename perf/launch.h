// How ranks come to be: processes that the tool starts itself, or those of a launcher, and how the unique id
// reaches them.
//
// Local processes (--procs N): the first process stays a supervisor. It executes itself N times (a fresh
// image each, so that address layouts differ as they do for real jobs) with a pipe that carries the unique id
// from worker 0 to the others, waits for all of them, and when one dies says which rank, gives the others a
// moment to report the error themselves, and ends what is left. Workers die with their supervisor
// (PR_SET_PDEATHSIG).
//
// Launchers: rank and size are found by meet/launcher.h; the id travels by tutti_share_unique_id, as any
// program's does.
#pragma once

#include <chrono>

#include "bootstrap/launcher.h"
#include "core/config.h"
#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// What is to be launched.
struct LaunchOptions {
  int processes = 0;             ///< 0: those of a launcher, or this one alone
  int threads = 1;               ///< ranks of each process; for messages
  const char* flag = "--procs";  ///< that asks for processes; for messages
};

/// Where this process stands among the processes of the run.
struct Place {
  enum class Channel { kNone, kPipe, kLauncher };

  int process = 0;
  int process_count = 1;
  Channel channel = Channel::kNone;
  int pipe_descriptor = -1;  ///< kPipe: the write end in process 0, the read end elsewhere; owned
  LaunchContext launch;      ///< kLauncher
};

/// This process' place: a worker of our own supervisor, a process of a launcher, or alone.
/// kInvalidUsage: the environment contradicts itself.
Result<Place> find_locality(const LaunchOptions& options, const Environment& get_env);

/// True in a process that must supervise instead of work: a number of processes was given and it is not a
/// worker yet.
bool is_supervisor(const LaunchOptions& options, const Environment& get_env);

/// Of a supervisor. kInvalidUsage: a launcher has started it as one of several, each of which would start all
/// ranks again.
Status check_alone(const LaunchOptions& options, const Environment& get_env);

/// Starts options.processes workers with the same arguments, waits for all; returns the exit status: 0, the
/// first failing worker's, or kExitFailure when that died by a signal. All children are reaped before it
/// returns.
int supervise(const LaunchOptions& options, char** argv, std::chrono::milliseconds grace);

/// Process 0 hands its id to the others; they wait for it, under a launcher for TUTTI_SETUP_TIMEOUT_MS at
/// most. kPeerLost: process 0 ended first. kSystemError, and those of tutti_share_unique_id.
Status share_id(const Place& place, tutti_unique_id_t* id);

/// Called by process 0 when every rank has joined: the file that carried the id, if one did, may go.
void forget_id(const Place& place);

}  // namespace tutti::perf
