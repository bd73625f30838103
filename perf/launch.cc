// See launch.h: the context of a process and how the unique id travels. Supervision is in supervise.cc.
#include "perf/launch.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <vector>

#include "core/cpu.h"
#include "core/file_descriptor.h"
#include "perf/check.h"
#include "perf/worker_environment.h"

namespace tutti::perf {
namespace {

constexpr const char* kLauncher = "launcher";

Status share_by_pipe(const ProcessContext& context, tutti_unique_id_t* id) {
  const auto bytes = std::as_writable_bytes(std::span(id->bytes));
  if (context.process == 0) {
    // One copy for each reader. 128 bytes are below PIPE_BUF, so each write and each read is whole.
    for (int reader = 1; reader < context.process_count; ++reader) {
      if (!write_all(context.pipe_descriptor, bytes)) return system_error("writing the unique id", errno);
    }
    return Status::ok();
  }
  const auto done = read_all(context.pipe_descriptor, bytes);
  if (!done) return system_error("reading the unique id", errno);
  if (*done != bytes.size()) return Status(Code::kPeerLost, "process 0 ended before it made a unique id");
  return Status::ok();
}

}  // namespace

bool is_supervisor(const LaunchOptions& options, const Environment& get_env) {
  return options.processes > 0 && get_env(kWorkerVariable) == nullptr;
}

Status check_alone(const LaunchOptions& options, const Environment& get_env) {
  const auto launch = find_launch_context(get_env);
  // An environment that contradicts itself comes from no launcher. --procs needs no launcher.
  if (!launch || !*launch || (*launch)->rank_count == 1) return Status::ok();
  // A batch script of Slurm has a rank's variables, but is the only process of its kind.
  if ((*launch)->launcher == "Slurm" && get_env("SLURM_STEP_ID") == nullptr) return Status::ok();
  return {Code::kInvalidUsage,
          format("%s %d is refused under %s (this is rank %u of %u): each process would start "
                 "its own run of %d ranks; remove %s, or start one process",
                 options.flag, options.processes, (*launch)->launcher.c_str(), (*launch)->rank,
                 (*launch)->rank_count, options.processes, options.flag)};
}

Result<ProcessContext> find_process_context(const LaunchOptions& options, const Environment& get_env) {
  if (const char* text = get_env(kWorkerVariable); text != nullptr && options.processes > 0) {
    ProcessContext context;
    if (!read_worker(text, &context))
      return Status(Code::kInvalidUsage,
                    std::string(kWorkerVariable) + " was not set by this program: unset it");
    return context;
  }
  const auto launch = find_launch_context(get_env);
  if (!launch) return launch.status();
  ProcessContext context;
  if (!*launch) return context;
  context.process = static_cast<int>((*launch)->rank);
  context.process_count = static_cast<int>((*launch)->rank_count);
  if (context.process_count == 1) return context;
  context.channel = ProcessContext::Channel::kLauncher;
  context.launch = **launch;
  return context;
}

void emulate_host(int hosts, int process, int process_count) {
  const std::string host = "host" + std::to_string(hosts * process / process_count);
  (void)setenv("TUTTI_HOSTID", host.c_str(), 1);
  (void)setenv("TUTTI_SOCKET_IFNAME", "lo", 0);
}

Status bind_to_core(int process) {
  const CpuSet usable = usable_cpus();
  std::vector<size_t> cpus;  // one of each core before any second one
  std::vector<size_t> siblings;
  for (size_t cpu = 0; cpu < usable.size(); ++cpu) {
    if (usable[cpu]) (first_sibling(cpu) < cpu ? siblings : cpus).push_back(cpu);
  }
  cpus.insert(cpus.end(), siblings.begin(), siblings.end());
  cpu_set_t one;
  CPU_ZERO(&one);
  if (!cpus.empty()) CPU_SET(cpus[static_cast<size_t>(process) % cpus.size()], &one);
  return sched_setaffinity(0, sizeof one, &one) == 0 ? Status::ok()
                                                     : system_error("sched_setaffinity", errno);
}

Status share_id(const ProcessContext& context, tutti_unique_id_t* id) {
  switch (context.channel) {
    case ProcessContext::Channel::kNone: return Status::ok();
    case ProcessContext::Channel::kPipe: return share_by_pipe(context, id);
    case ProcessContext::Channel::kLauncher:
      return check(tutti_share_unique_id(id, kLauncher, context.process, context.process_count, 0),
                   "sharing the unique id");
  }
  return Status::ok();
}

void forget_id(const ProcessContext& context) {
  if (context.channel == ProcessContext::Channel::kLauncher) tutti_forget_file(kLauncher, context.process);
}

}  // namespace tutti::perf
