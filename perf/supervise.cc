// See launch.h: the supervisor of --procs.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "perf/exit_status.h"
#include "perf/launch.h"
#include "perf/worker_environment.h"

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

struct Worker {
  pid_t pid = -1;
  int process = 0;
  bool running = false;
};

/// Runs in the child and becomes a worker. Uses only async-signal-safe calls and setenv (the parent has one
/// thread).
[[noreturn]] void become_worker(int process, const LaunchOptions& options, int descriptor, char** argv,
                                pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFD, 0);
  ::setenv(kWorkerVariable, write_worker(process, options.processes, descriptor).c_str(), 1);
  ::execv("/proc/self/exe", argv);
  std::fprintf(stderr, "cannot execute this program again: %s\n", std::strerror(errno));
  ::_exit(127);
}

std::string rank_text(int process, int threads) {
  if (threads == 1) return format("rank %d", process);
  return format("ranks %d-%d (process %d)", process * threads, (process + 1) * threads - 1, process);
}

/// The exit status for a worker's end. If it is not 0, prints the reason on stderr.
int judge(const Worker& worker, int threads, int status) {
  if (WIFEXITED(status)) {
    const int code = WEXITSTATUS(status);
    // The table shows wrong results. Every other failure needs a message.
    if (code != kExitOk && code != kExitWrong)
      std::fprintf(stderr, "%s, pid %d, ended with status %d\n", rank_text(worker.process, threads).c_str(),
                   static_cast<int>(worker.pid), code);
    return code;
  }
  std::fprintf(stderr, "%s, pid %d, was killed by signal %d (%s)\n",
               rank_text(worker.process, threads).c_str(), static_cast<int>(worker.pid), WTERMSIG(status),
               ::strsignal(WTERMSIG(status)));
  return kExitFailure;
}

/// Waits for SIGCHLD until `deadline` (or without a deadline). The caller blocks SIGCHLD, so none is missed.
void await_child_signal(bool bounded, Clock::time_point deadline) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  if (!bounded) {
    ::sigwaitinfo(&set, nullptr);
    return;
  }
  const auto left = std::max(Clock::duration::zero(), deadline - Clock::now());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{static_cast<time_t>(seconds.count()),
                         static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
  ::sigtimedwait(&set, nullptr, &timeout);
}

/// Reaps every worker. After the first failure the other workers get `grace` to end by themselves.
int reap(std::vector<Worker>& workers, int threads, std::chrono::milliseconds grace) {
  int result = 0;
  bool failed = false;
  bool killed = false;
  Clock::time_point deadline{};
  size_t running = workers.size();
  while (running > 0) {
    for (Worker& worker : workers) {
      int status = 0;
      if (!worker.running || ::waitpid(worker.pid, &status, WNOHANG) != worker.pid) continue;
      worker.running = false;
      --running;
      // Workers that this process killed are not reported.
      const int code = killed ? kExitFailure : judge(worker, threads, status);
      // Which worker ends first is chance, so the worst status is the job's.
      result = std::max(result, code);
      if (code != 0 && !failed) {
        failed = true;
        deadline = Clock::now() + grace;
      }
    }
    if (running == 0) break;
    if (failed && !killed && Clock::now() >= deadline) {
      killed = true;
      for (const Worker& worker : workers)
        if (worker.running) {
          std::fprintf(stderr, "%s, pid %d, did not end by itself and was killed\n",
                       rank_text(worker.process, threads).c_str(), static_cast<int>(worker.pid));
          ::kill(worker.pid, SIGKILL);
        }
    }
    await_child_signal(failed && !killed, deadline);
  }
  return result;
}

}  // namespace

int supervise(const LaunchOptions& options, char** argv, std::chrono::milliseconds grace) {
  int ends[2] = {-1, -1};
  if (options.processes > 1 && ::pipe2(ends, O_CLOEXEC) != 0) {
    std::fprintf(stderr, "%s\n",
                 std::string(system_error("making a pipe for the unique id", errno).text()).c_str());
    return kExitFailure;
  }
  sigset_t set;
  sigset_t before;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &set, &before);
  const pid_t parent = ::getpid();
  std::vector<Worker> workers;
  int start_error = 0;
  for (int process = 0; process < options.processes && start_error == 0; ++process) {
    const pid_t pid = ::fork();
    if (pid == 0) become_worker(process, options, process == 0 ? ends[1] : ends[0], argv, parent);
    if (pid < 0)
      start_error = errno;
    else
      workers.push_back({pid, process, true});
  }
  for (const int end : ends)
    if (end >= 0) ::close(end);
  if (start_error != 0) {
    std::fprintf(stderr, "%s\n", std::string(system_error("starting a process", start_error).text()).c_str());
    for (const Worker& worker : workers) ::kill(worker.pid, SIGKILL);
  }
  const int result = reap(workers, options.threads, grace);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return start_error != 0 ? kExitFailure : result;
}

}  // namespace tutti::perf
