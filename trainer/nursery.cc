#include "trainer/nursery.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "trainer/error.h"

namespace tutti::trainer {
namespace {

pid_t start(const Options& options, const Place& place, const std::function<void(const Place&)>& run) {
  const pid_t child = ::fork();
  if (child < 0) throw Error("no process for rank " + std::to_string(place.rank) + " can be started");
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.parallel.hosts > 0)
    emulate_host(options.parallel.hosts, place.rank % options.ranks, options.ranks);
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
  for (int rank = 0; rank < options.ranks; ++rank) add(rank, options.ranks);
  uint32_t losses = 0;
  bool ends = false;
  int worst = 0;
  for (size_t running = processes.size(); running > 0;) {
    int status = 0;
    if (const pid_t ended = ::waitpid(-1, &status, WNOHANG); ended > 0) {
      const auto found = std::find(processes.begin(), processes.end(), ended);
      if (found == processes.end()) continue;
      lives[static_cast<size_t>(found - processes.begin())].end = clock.now();
      --running;
      if (WIFEXITED(status)) {
        ends = true;
        worst = std::max(worst, WEXITSTATUS(status));
      } else if (!ends) {
        ++losses;
      }
      continue;
    }
    const bool waits = board.joins < board.offers;
    if (ends && waits && running == 1) ::kill(processes.back(), SIGKILL);  // too late to join
    if (!ends && !waits && losses > board.offers && board.shrinks == losses) {
      if (tutti_get_unique_id(&board.id) != TUTTI_SUCCESS) break;
      ++board.offers;
      ++running;
      add(board.count, board.count + 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return worst;
}

}  // namespace tutti::trainer
