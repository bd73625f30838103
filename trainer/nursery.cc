#include "trainer/nursery.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <set>
#include <thread>

#include "perf/launch.h"
#include "trainer/error.h"

namespace tutti::trainer {
namespace {

pid_t start(const Options& options, const Place& place, const std::function<void(const Place&)>& run) {
  const pid_t child = ::fork();
  if (child < 0) throw Error("no process for rank " + std::to_string(place.rank) + " can be started");
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.parallel.hosts > 0)
    perf::emulate_host(options.parallel.hosts, place.rank % options.ranks, options.ranks);
  int status = 0;
  try {
    run(place);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer, rank %d: %s\n", place.rank, text_of(error).c_str());
    status = 1;
  }
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

int supervise(const Options& options, Board& board, const Sketch& clock, std::vector<Stroke>& lives,
              const std::function<void(const Place&)>& run) {
  std::vector<pid_t> processes;
  const auto add = [&](int rank, int count) {
    const Place place{.number = processes.size(), .rank = rank, .count = count};
    lives.push_back(Stroke::of(static_cast<uint32_t>(place.number), Stroke::Kind::kLife, clock.now(), 0, ""));
    processes.push_back(start(options, place, run));
  };
  board.count = options.ranks;
  for (int rank = 0; rank < options.ranks; ++rank) add(rank, options.ranks);
  std::set<pid_t> stopped;
  bool ends = false;
  int worst = 0;
  for (int running = options.ranks; running > 0;) {
    int status = 0;
    if (const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED); pid > 0) {
      const auto found = std::find(processes.begin(), processes.end(), pid);
      if (found == processes.end()) continue;
      stopped.erase(pid);
      if (WIFSTOPPED(status)) stopped.insert(pid);
      if (!WIFEXITED(status) && !WIFSIGNALED(status)) continue;
      lives[static_cast<size_t>(found - processes.begin())].end = clock.now();
      --running;
      if (WIFEXITED(status)) {
        ends = true;
        worst = std::max(worst, WEXITSTATUS(status));
      }
      continue;
    }
    const bool waits = board.joins < board.offers;
    if (ends && waits && running == 1) ::kill(processes.back(), SIGKILL);  // too late to join
    // The others went on without a process that was stopped, or they have ended: it would never end.
    if (ends ? stopped.size() == static_cast<size_t>(running) : !waits && running > board.count)
      for (const pid_t pid : stopped) ::kill(pid, SIGKILL);
    if (!ends && !waits && running < options.ranks && running == board.count) {
      if (tutti_get_unique_id(&board.id) != TUTTI_SUCCESS) break;
      ++board.offers;
      ++running;
      add(board.count, board.count + 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!ends) throw Error("every rank was killed: none is left to go on");
  return worst;
}

}  // namespace tutti::trainer
