// See agree.h.
#include "perf/agree.h"

#include <unistd.h>

#include <cstring>
#include <fstream>

namespace tutti::perf {
namespace {

/// Fixed size, so that one all_gather of bytes carries it.
struct RankRecord {
  int32_t process_id = 0;
  char host[64] = {};
  char device[60] = {};
};
static_assert(sizeof(RankRecord) == 128);

void put_text(const std::string& text, char* field, size_t bytes) {
  std::memcpy(field, text.data(), std::min(text.size(), bytes - 1));
}

}  // namespace

Status check(tutti_result_t result, const char* what) {
  if (result == TUTTI_SUCCESS) return Status::ok();
  return Status(static_cast<Code>(result), format("%s: %s", what, tutti_last_error()));
}

Status Agreement::reduce(std::span<double> values, tutti_op_t op) const {
  return check(
      tutti_all_reduce(values.data(), values.data(), values.size(), TUTTI_FLOAT64, op, comm_, TUTTI_BLOCKING),
      "exchanging measurements");
}

Status Agreement::average(double* value, int how) const {
  const std::span<double> one(value, 1);
  switch (how) {
    case 0:
      return check(tutti_broadcast(value, value, 1, TUTTI_FLOAT64, 0, comm_, TUTTI_BLOCKING),
                   "exchanging measurements");
    case 2: return min(one);
    case 3: return max(one);
    default: break;
  }
  TUTTI_TRY(sum(one));
  *value /= rank_count_;
  return Status::ok();
}

Status Agreement::barrier() const {
  return check(tutti_barrier(comm_, TUTTI_BLOCKING), "barrier");
}

Result<std::vector<RankInfo>> Agreement::rank_infos() const {
  RankRecord own;
  own.process_id = static_cast<int32_t>(::getpid());
  (void)::gethostname(own.host, sizeof(own.host) - 1);
  put_text(processor_name(), own.device, sizeof(own.device));
  std::vector<RankRecord> records(static_cast<size_t>(rank_count_));
  const Status gathered =
      check(tutti_all_gather(&own, records.data(), sizeof(own), TUTTI_UINT8, comm_, TUTTI_BLOCKING),
            "exchanging names");
  if (!gathered) return gathered;
  std::vector<RankInfo> infos;
  for (size_t rank = 0; rank < records.size(); ++rank)
    infos.push_back({.rank = static_cast<int>(rank),
                     .process_id = records[rank].process_id,
                     .host = records[rank].host,
                     .device = records[rank].device});
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
