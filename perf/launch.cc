// See launch.h: the place of a process and the way of the unique id. Supervision is in supervise.cc.
#include "perf/launch.h"

#include <unistd.h>

#include <cerrno>
#include <span>

#include "perf/check.h"
#include "perf/worker_environment.h"

namespace tutti::perf {
namespace {

constexpr const char* kLauncher = "launcher";

Status write_all(int descriptor, const void* data, size_t bytes) {
  const char* cursor = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(descriptor, cursor, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("writing the unique id", errno);
    cursor += n;
    bytes -= static_cast<size_t>(n);
  }
  return Status::ok();
}

/// Bytes read; fewer than asked only at the end of the stream.
Result<size_t> read_all(int descriptor, void* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(descriptor, static_cast<char*>(data) + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("reading the unique id", errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

Status share_by_pipe(const Place& place, tutti_unique_id_t* id) {
  if (place.process == 0) {
    // One copy for each reader: 128 bytes are below PIPE_BUF, so each write and each read is whole.
    for (int reader = 1; reader < place.process_count; ++reader)
      TUTTI_TRY(write_all(place.pipe_descriptor, id->bytes, sizeof(id->bytes)));
    return Status::ok();
  }
  const Result<size_t> done = read_all(place.pipe_descriptor, id->bytes, sizeof(id->bytes));
  if (!done) return done.status();
  if (*done != sizeof(id->bytes))
    return Status(Code::kPeerLost, "process 0 ended before it made a unique id");
  return Status::ok();
}

}  // namespace

bool is_supervisor(const LaunchOptions& options, const Environment& get_env) {
  return options.processes > 0 && get_env(kWorkerVariable) == nullptr;
}

Status check_alone(const LaunchOptions& options, const Environment& get_env) {
  const auto launch = find_launch_context(get_env);
  // What contradicts itself is of no launcher; --procs needs none.
  if (!launch || !*launch || (*launch)->rank_count == 1) return Status::ok();
  // A batch script of Slurm has the variables of a rank, but is the only process of its kind.
  if ((*launch)->launcher == "Slurm" && get_env("SLURM_STEP_ID") == nullptr) return Status::ok();
  return {Code::kInvalidUsage,
          format("%s %d is refused under %s (this is rank %u of %u): each of its processes would start "
                 "%d ranks of a run of its own; leave %s away, or start one process",
                 options.flag, options.processes, (*launch)->launcher.c_str(), (*launch)->rank,
                 (*launch)->rank_count, options.processes, options.flag)};
}

Result<Place> find_locality(const LaunchOptions& options, const Environment& get_env) {
  if (const char* text = get_env(kWorkerVariable); text != nullptr && options.processes > 0) {
    Place place;
    if (!read_worker(text, &place))
      return Status(Code::kInvalidUsage, std::string(kWorkerVariable) + " is not of our making: unset it");
    return place;
  }
  const auto launch = find_launch_context(get_env);
  if (!launch) return launch.status();
  Place place;
  if (!*launch) return place;
  place.process = static_cast<int>((*launch)->rank);
  place.process_count = static_cast<int>((*launch)->rank_count);
  if (place.process_count == 1) return place;
  place.channel = Place::Channel::kLauncher;
  place.launch = **launch;
  return place;
}

Status share_id(const Place& place, tutti_unique_id_t* id) {
  switch (place.channel) {
    case Place::Channel::kNone: return Status::ok();
    case Place::Channel::kPipe: return share_by_pipe(place, id);
    case Place::Channel::kLauncher:
      return check(tutti_share_unique_id(id, kLauncher, place.process, place.process_count, 0),
                   "sharing the unique id");
  }
  return Status::ok();
}

void forget_id(const Place& place) {
  if (place.channel == Place::Channel::kLauncher) tutti_forget_file(kLauncher, place.process);
}

}  // namespace tutti::perf
