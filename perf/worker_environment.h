// The environment variable by which a supervisor tells a worker its position: "process count descriptor".
#pragma once

#include <cstdio>
#include <string>

#include "perf/launch.h"

namespace tutti::perf {

inline constexpr const char* kWorkerVariable = "TUTTI_PERF_WORKER";

inline std::string write_worker(int process, int process_count, int descriptor) {
  return format("%d %d %d", process, process_count, descriptor);
}

/// False if write_worker did not write the text.
inline bool read_worker(const char* text, ProcessContext* context) {
  int used = 0;
  if (std::sscanf(text, "%d %d %d%n", &context->process, &context->process_count, &context->pipe_descriptor,
                  &used) != 3)
    return false;
  context->channel =
      context->process_count > 1 ? ProcessContext::Channel::kPipe : ProcessContext::Channel::kNone;
  return text[used] == '\0' && context->process >= 0 && context->process < context->process_count;
}

}  // namespace tutti::perf
