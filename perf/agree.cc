#include "perf/agree.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace tutti::perf {
namespace {

/// Has a fixed size, so that one all_gather of bytes carries it.
struct RankRecord {
  int32_t process_id = 0;
  int32_t device = 0;
  char host[64] = {};
  char address[24] = {};
  char name[96] = {};
};
static_assert(sizeof(RankRecord) == 192);

constexpr size_t kLeastExchangeBytes = 64 * 1024;
constexpr const char* kExchange = "exchanging measurements";

void put_text(const std::string& text, char* field, size_t bytes) {
  (void)text.copy(field, bytes - 1);  // the field was all zero before
}

RankRecord record_of(const SiteFacts& facts) {
  RankRecord record;
  record.process_id = static_cast<int32_t>(::getpid());
  record.device = facts.on_device() ? facts.device : 0;
  (void)::gethostname(record.host, sizeof(record.host) - 1);
  put_text(facts.address, record.address, sizeof(record.address));
  put_text(facts.name, record.name, sizeof(record.name));
  return record;
}

}  // namespace

size_t Agreement::memory_bytes(int rank_count) {
  // One record is sent, all are received.
  const size_t records = static_cast<size_t>(rank_count) + 1;
  return std::max(kLeastExchangeBytes, records * sizeof(RankRecord));
}

void Agreement::add(const Site& site, tutti_comm_t* comm, char* memory) {
  members_.push_back({.site = &site, .comm = comm, .memory = memory});
}

/// One call for each of the thread's ranks. Several ranks need a group: otherwise each call would wait for
/// the next.
template <class Issue>
Status Agreement::call(const char* what, Issue&& issue) const {
  return together(members_.size() > 1, what, [&]() -> Status {
    for (const BootstrapNode& member : members_) TUTTI_TRY(check(issue(member), what));
    return Status::ok();
  });
}

Status Agreement::reduce(std::span<double> values, tutti_op_t op) const {
  const size_t most = kLeastExchangeBytes / sizeof(double);
  for (size_t first = 0; first < values.size(); first += most) {
    const std::span<double> part = values.subspan(first, std::min(most, values.size() - first));
    for (const BootstrapNode& member : members_) {
      // A sum counts each thread once.
      const bool counts = op != TUTTI_SUM || &member == &members_.front();
      if (counts)
        std::memcpy(member.memory, part.data(), part.size_bytes());
      else
        std::memset(member.memory, 0, part.size_bytes());
    }
    TUTTI_TRY(call(kExchange, [&](const BootstrapNode& member) {
      return tutti_all_reduce(member.memory, member.memory, part.size(), TUTTI_FLOAT64, op, member.comm,
                              TUTTI_BLOCKING);
    }));
    std::memcpy(part.data(), members_.front().memory, part.size_bytes());
  }
  return Status::ok();
}

Status Agreement::sum(std::span<double> values) const {
  return reduce(values, TUTTI_SUM);
}

Status Agreement::average(double* value, int how) const {
  const std::span<double> one(value, 1);
  switch (how) {
    case 0:
      for (const BootstrapNode& member : members_) std::memcpy(member.memory, value, sizeof(*value));
      TUTTI_TRY(call(kExchange, [](const BootstrapNode& member) {
        return tutti_broadcast(member.memory, member.memory, 1, TUTTI_FLOAT64, 0, member.comm,
                               TUTTI_BLOCKING);
      }));
      std::memcpy(value, members_.front().memory, sizeof(*value));
      return Status::ok();
    case 2: return min(one);
    case 3: return max(one);
    default: break;
  }
  TUTTI_TRY(sum(one));
  const int thread_count = rank_count_ / static_cast<int>(members_.size());
  *value /= thread_count;
  return Status::ok();
}

Status Agreement::barrier() const {
  return call("barrier",
              [](const BootstrapNode& member) { return tutti_barrier(member.comm, TUTTI_BLOCKING); });
}

Result<std::vector<RankInfo>> Agreement::rank_infos() const {
  for (const BootstrapNode& member : members_) {
    const RankRecord own = record_of(member.site->facts());
    std::memcpy(member.memory, &own, sizeof(own));
  }
  const Status gathered = call("exchanging names", [](const BootstrapNode& member) {
    return tutti_all_gather(member.memory, member.memory + sizeof(RankRecord), sizeof(RankRecord),
                            TUTTI_UINT8, member.comm, TUTTI_BLOCKING);
  });
  if (!gathered) return gathered;
  std::vector<RankRecord> records(static_cast<size_t>(rank_count_));
  std::memcpy(records.data(), members_.front().memory + sizeof(RankRecord),
              records.size() * sizeof(RankRecord));
  std::vector<RankInfo> infos;
  for (size_t rank = 0; rank < records.size(); ++rank)
    infos.push_back({.rank = static_cast<int>(rank),
                     .process_id = records[rank].process_id,
                     .host = records[rank].host,
                     .device = records[rank].name,
                     .device_number = records[rank].device,
                     .address = records[rank].address});
  return infos;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace tutti::perf
