// See launch.h: the place of a process and the way of the unique id. Supervision is in supervise.cc.
#include "perf/launch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "perf/worker_environment.h"

namespace tutti::perf {
namespace {

constexpr std::chrono::milliseconds kFilePollPeriod{2};

struct LauncherVariables {
  const char* rank;
  const char* size;
};

constexpr LauncherVariables kLaunchers[] = {
    {"RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
};

std::optional<int> read_int(const char* text) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < 0 || value > 1 << 24) return std::nullopt;
  return static_cast<int>(value);
}

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

Status publish_file(const std::string& path, const tutti_unique_id_t& id) {
  // Written aside and linked, so that a reader sees all of it or nothing; link() fails if the name exists.
  const std::string aside = path + "." + std::to_string(::getpid());
  const int descriptor = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return system_error("creating " + aside, errno);
  const Status written = write_all(descriptor, id.bytes, sizeof(id.bytes));
  ::close(descriptor);
  const int linked = written ? ::link(aside.c_str(), path.c_str()) : 0;
  const int link_error = errno;
  ::unlink(aside.c_str());
  TUTTI_TRY(written);
  if (linked == 0) return Status::ok();
  if (link_error == EEXIST)
    return Status(Code::kInvalidUsage,
                  "TUTTI_ID_FILE " + path + " exists already: it is of an earlier run, remove it");
  return system_error("creating " + path, link_error);
}

Status await_file(const std::string& path, tutti_unique_id_t* id,
                  std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
      const Result<size_t> done = read_all(descriptor, id->bytes, sizeof(id->bytes));
      ::close(descriptor);
      if (!done) return done.status();
      if (*done == sizeof(id->bytes)) return Status::ok();
      return Status(Code::kInvalidUsage, "TUTTI_ID_FILE " + path + " does not hold a unique id");
    }
    if (errno != ENOENT) return system_error("opening " + path, errno);
    if (std::chrono::steady_clock::now() >= deadline)
      return Status(Code::kTimeout, "rank 0 did not write TUTTI_ID_FILE " + path + " in time");
    std::this_thread::sleep_for(kFilePollPeriod);
  }
}

Result<Place> place_of_launcher(const LauncherVariables& launcher, GetEnv get_env) {
  const std::optional<int> rank = read_int(get_env(launcher.rank));
  const std::optional<int> size = read_int(get_env(launcher.size));
  if (!rank || !size || *size < 1 || *rank >= *size)
    return Status(Code::kInvalidUsage, std::string(launcher.rank) + " and " + launcher.size +
                                           " must be set together, with 0 <= rank < size (or use --procs)");
  Place place;
  place.process = *rank;
  place.process_count = *size;
  if (*size == 1) return place;
  const char* path = get_env("TUTTI_ID_FILE");
  if (path == nullptr || *path == '\0')
    return Status(Code::kInvalidUsage,
                  std::string(launcher.size) + " is " + std::to_string(*size) +
                      " but TUTTI_ID_FILE is not set: name a file that all ranks can reach "
                      "(or use --procs)");
  place.channel = Place::Channel::kFile;
  place.id_path = path;
  return place;
}

}  // namespace

bool is_supervisor(const Options& options, GetEnv get_env) {
  return options.processes > 0 && get_env(kWorkerVariable) == nullptr;
}

Result<Place> find_place(const Options& options, GetEnv get_env) {
  if (const char* text = get_env(kWorkerVariable); text != nullptr && options.processes > 0) {
    Place place;
    if (!read_worker(text, &place))
      return Status(Code::kInvalidUsage, std::string(kWorkerVariable) + " is not of our making: unset it");
    return place;
  }
  for (const LauncherVariables& launcher : kLaunchers)
    if (get_env(launcher.rank) != nullptr && get_env(launcher.size) != nullptr)
      return place_of_launcher(launcher, get_env);
  return Place{};
}

Status share_id(const Place& place, tutti_unique_id_t* id, std::chrono::steady_clock::time_point deadline) {
  switch (place.channel) {
    case Place::Channel::kNone: return Status::ok();
    case Place::Channel::kPipe: return share_by_pipe(place, id);
    case Place::Channel::kFile:
      return place.process == 0 ? publish_file(place.id_path, *id) : await_file(place.id_path, id, deadline);
  }
  return Status::ok();
}

void forget_id(const Place& place) {
  if (place.channel == Place::Channel::kFile && place.process == 0) ::unlink(place.id_path.c_str());
}

}  // namespace tutti::perf
