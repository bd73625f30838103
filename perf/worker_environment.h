// The one environment variable by which a supervisor tells a worker its place: "process count descriptor".
#pragma once

#include <cstdio>
#include <string>

#include "perf/launch.h"

namespace tutti::perf {

inline constexpr const char* kWorkerVariable = "TUTTI_PERF_WORKER";

inline std::string write_worker(int process, int process_count, int descriptor) {
  return format("%d %d %d", process, process_count, descriptor);
}

/// False when the text is not one of write_worker's.
inline bool read_worker(const char* text, Place* place) {
  int used = 0;
  if (std::sscanf(text, "%d %d %d%n", &place->process, &place->process_count, &place->pipe_descriptor,
                  &used) != 3)
    return false;
  place->channel = place->process_count > 1 ? Place::Channel::kPipe : Place::Channel::kNone;
  return text[used] == '\0' && place->process >= 0 && place->process < place->process_count;
}

}  // namespace tutti::perf
