#include "bootstrap/launcher.h"

#include <array>
#include <charconv>
#include <vector>

namespace tutti {
namespace {

constexpr uint32_t kMostRanks = 1u << 24;

/// Of several names, the first one set counts.
struct LauncherRow {
  const char* name;
  const char* rank;
  std::array<const char*, 2> count;
  const char* local_rank;
  const char* local_count;
  /// Only this launcher sets these variables, so a disagreement is an error.
  bool decides;
  /// The number of ranks may be missing: the launcher has started single processes.
  bool count_is_optional;
};

constexpr LauncherRow kLaunchers[] = {
    {"torchrun", "RANK", {"WORLD_SIZE"}, "LOCAL_RANK", "LOCAL_WORLD_SIZE", true, false},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     true,
     false},
    {"MPICH", "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true, false},
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     nullptr,
     false,
     true},
    {"Kubernetes", "JOB_COMPLETION_INDEX", {"WORLD_SIZE"}, nullptr, nullptr, false, true},
};

const char* find(const Environment& environment, const char* name) {
  const char* text = name != nullptr ? environment(name) : nullptr;
  return text != nullptr && *text != '\0' ? text : nullptr;
}

Result<uint32_t> read_number(const char* name, const char* text) {
  const std::string_view view = text;
  uint32_t value = 0;
  const auto [stop, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error == std::errc() && stop == view.data() + view.size() && value <= kMostRanks) return value;
  return Status(
      Code::kInvalidUsage,
      format("environment variable %s is \"%s\"; it must be a number from 0 to %u", name, text, kMostRanks));
}

Status read_optional(const Environment& environment, const char* name, std::optional<uint32_t>& value) {
  const char* text = find(environment, name);
  if (text == nullptr) return Status::ok();
  auto number = read_number(name, text);
  TUTTI_TRY(number.status());
  value = *number;
  return Status::ok();
}

const char* count_name(const Environment& environment, const LauncherRow& row) {
  for (const char* name : row.count) {
    if (find(environment, name) != nullptr) return name;
  }
  return nullptr;
}

/// The launch context in one launcher's variables; empty if it did not start this process.
Result<std::optional<LaunchContext>> read_row(const Environment& environment, const LauncherRow& row) {
  const char* rank_text = find(environment, row.rank);
  const char* count = count_name(environment, row);
  if (rank_text == nullptr || (count == nullptr && row.count_is_optional))
    return std::optional<LaunchContext>();
  if (count == nullptr) {
    return Status(
        Code::kInvalidUsage,
        format("environment variable %s is set but %s is not: set both or neither", row.rank, row.count[0]));
  }
  LaunchContext context;
  context.launcher = row.name;
  auto rank = read_number(row.rank, rank_text);
  TUTTI_TRY(rank.status());
  auto rank_count = read_number(count, find(environment, count));
  TUTTI_TRY(rank_count.status());
  context.rank = *rank;
  context.rank_count = *rank_count;
  if (context.rank >= context.rank_count) {
    return Status(Code::kInvalidUsage,
                  format("environment variable %s is %u but %s is %u: a rank must be less than "
                         "the number of ranks",
                         row.rank, context.rank, count, context.rank_count));
  }
  TUTTI_TRY(read_optional(environment, row.local_rank, context.local_rank));
  TUTTI_TRY(read_optional(environment, row.local_count, context.local_count));
  const bool local_fits =
      (!context.local_count || *context.local_count <= context.rank_count) &&
      (!context.local_rank || *context.local_rank < context.local_count.value_or(context.rank_count));
  if (!local_fits) {
    return Status(
        Code::kInvalidUsage,
        format("environment variables %s and %s do not fit %s and %s of %s", row.local_rank,
               row.local_count != nullptr ? row.local_count : "its count", row.rank, count, row.name));
  }
  return std::optional<LaunchContext>(std::move(context));
}

/// Whether these are variables of srun --mpi=pmi2: the same names, another protocol. MPICH sets a local rank;
/// its processes under srun may see Slurm's variables too.
bool is_pmi_of_slurm(const Environment& environment) {
  const auto agree = [&](const char* one, const char* other) {
    const char* text = find(environment, one);
    const char* other_text = find(environment, other);
    return text != nullptr && other_text != nullptr && std::string_view(text) == other_text;
  };
  return find(environment, "MPI_LOCALRANKID") == nullptr && agree("PMI_RANK", "SLURM_PROCID") &&
         agree("PMI_SIZE", "SLURM_STEP_NUM_TASKS");
}

/// With PMIx, the server tells the number of ranks.
LaunchChannel find_channel(const Environment& environment, const LaunchContext& context) {
  const bool has_pmix =
      find(environment, "PMIX_NAMESPACE") != nullptr && find(environment, "PMIX_RANK") != nullptr;
  if (has_pmix && (context.launcher == "Open MPI" || context.launcher == "Slurm"))
    return LaunchChannel::kPmix;
  if (context.launcher == "MPICH" && find(environment, "PMI_FD") != nullptr) return LaunchChannel::kPmi1;
  return LaunchChannel::kNone;
}

/// All ranks compute the same port from the job's name: 20000 to 29999, below the kernel's own range.
uint16_t port_of_job(std::string_view job) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619;
  return static_cast<uint16_t>(20000 + hash % 10000);
}

Status find_rendezvous(const Environment& environment, LaunchContext& context) {
  std::string job;
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE", "MASTER_PORT"}) {
    if (const char* text = find(environment, name); text != nullptr)
      job += std::string(name) + "=" + text + ";";
  }
  context.job = std::move(job);
  const char* host = find(environment, "MASTER_ADDR");
  std::string slurm_host;
  if (host == nullptr && context.launcher == "Slurm") {
    const char* nodes = find(environment, "SLURM_STEP_NODELIST");
    if (nodes == nullptr) nodes = find(environment, "SLURM_NODELIST");
    slurm_host = nodes != nullptr ? first_host_of(nodes) : std::string();
    host = !slurm_host.empty() ? slurm_host.c_str() : find(environment, "SLURM_LAUNCH_NODE_IPADDR");
  }
  if (host == nullptr) return Status::ok();
  uint16_t port = port_of_job(context.job);
  if (const char* text = find(environment, "MASTER_PORT"); text != nullptr) {
    auto number = read_number("MASTER_PORT", text);
    TUTTI_TRY(number.status());
    if (*number == 0 || *number > 65535) {
      return {Code::kInvalidUsage,
              format("environment variable MASTER_PORT is \"%s\"; it must be a port from 1 to 65535", text)};
    }
    // The framework's store uses the port itself.
    port = static_cast<uint16_t>(*number == 65535 ? 65534 : *number + 1);
  }
  context.rendezvous = HostPort{host, port};
  return Status::ok();
}

}  // namespace

std::string first_host_of(std::string_view node_list) {
  const size_t bracket = node_list.find_first_of("[,");
  if (bracket == node_list.npos || node_list[bracket] == ',')
    return std::string(node_list.substr(0, bracket));
  const size_t close = node_list.find(']', bracket);
  if (close == node_list.npos) return "";
  const std::string_view numbers = node_list.substr(bracket + 1, close - bracket - 1);
  const std::string_view first = numbers.substr(0, numbers.find_first_of("-,"));
  const std::string_view rest = node_list.substr(close + 1);
  return std::string(node_list.substr(0, bracket))
      .append(first)
      .append(rest.substr(0, rest.find_first_of("[,")));
}

Result<std::optional<LaunchContext>> find_launch_context(const Environment& environment) {
  std::optional<LaunchContext> found;
  const LauncherRow* by = nullptr;
  for (const LauncherRow& row : kLaunchers) {
    if (found && !row.decides) break;
    if (std::string_view(row.name) == "MPICH" && is_pmi_of_slurm(environment)) continue;
    auto context = read_row(environment, row);
    TUTTI_TRY(context.status());
    if (!*context) continue;
    if (found && (found->rank != (*context)->rank || found->rank_count != (*context)->rank_count)) {
      return Status(Code::kInvalidUsage,
                    format("the environment has rank %u of %u by %s and %s, and rank %u of %u by %s and %s: "
                           "unset the variables that do not belong to this job",
                           found->rank, found->rank_count, by->rank, by->count[0], (*context)->rank,
                           (*context)->rank_count, row.rank, row.count[0]));
    }
    if (found) {
      // RANK and WORLD_SIZE were set by hand under mpirun: the launcher knows the rest.
      if (!found->local_rank) found->local_rank = (*context)->local_rank;
      if (!found->local_count) found->local_count = (*context)->local_count;
      found->launcher = (*context)->launcher;
      continue;
    }
    found = std::move(*context);
    by = &row;
  }
  if (!found) {
    const char* count = find(environment, "WORLD_SIZE");
    if (count != nullptr && std::string_view(count) != "1") {
      return Status(
          Code::kInvalidUsage,
          format("environment variable WORLD_SIZE is \"%s\" but RANK is not set: set both or neither",
                 count));
    }
    return found;
  }
  // Slurm tells tasks per node only as a list of all nodes.
  const char* node_count = find(environment, "SLURM_STEP_NUM_NODES");
  if (found->launcher == "Slurm" && node_count != nullptr && std::string_view(node_count) == "1") {
    found->local_count = found->rank_count;
  }
  found->channel = find_channel(environment, *found);
  TUTTI_TRY(find_rendezvous(environment, *found));
  return found;
}

}  // namespace tutti
