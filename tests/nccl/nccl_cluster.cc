#include "tests/nccl/nccl_cluster.h"

#include <cstring>
#include <thread>
#include <utility>

namespace tutti::test {

ncclUniqueId NcclRank::next_id() {
  ncclUniqueId id{};
  if (!rank_.meet()) return id;
  if (rank() == 0 && expect_ok(ncclGetUniqueId(&id), "ncclGetUniqueId")) {
    std::memcpy(rank_.shared_bytes(), &id, sizeof(id));
  }
  if (!rank_.meet()) return id;
  std::memcpy(&id, rank_.shared_bytes(), sizeof(id));
  return id;
}

bool NcclRank::expect(ncclResult_t result, ncclResult_t wanted, const std::string& what) {
  if (result == wanted) return true;
  std::string text = what + ": got " + std::to_string(result) + " (" + ncclGetErrorString(result) +
                     "), not " + std::to_string(wanted);
  if (result != ncclSuccess) text += std::string(": ") + ncclGetLastError(comm);
  rank_.fail(text);
  return false;
}

void NcclRank::expect_text(const std::vector<std::string>& parts, const std::string& what) {
  const std::string text = ncclGetLastError(comm);
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) rank_.fail(what + ": no '" + part + "' in: " + text);
  }
}

ncclResult_t NcclRank::finish(ncclComm_t polled) {
  const double deadline_s = seconds_now() + patience_s(30);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && seconds_now() < deadline_s) {
    if (!expect_ok(ncclCommGetAsyncError(polled, &state), "ncclCommGetAsyncError")) break;
    std::this_thread::yield();
  }
  return state;
}

void NcclRank::use(ncclComm_t used, int ranks) {
  int32_t sum = 1;
  const ncclResult_t issued = ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, used, nullptr);
  rank_.expect_true(issued == ncclSuccess || issued == ncclInProgress, "all_reduce");
  expect(finish(used), ncclSuccess, "operation");
  rank_.expect_true(sum == ranks, "sum is " + std::to_string(sum));
}

std::string run_nccl(ClusterOptions options, const NcclBody& body) {
  const bool create = std::exchange(options.create, false);
  return run_cluster(options, [&](Rank& base) {
    NcclRank rank(base);
    if (create) {
      base.at("ncclCommInitRank");
      const ncclUniqueId id = rank.next_id();
      if (!rank.expect_ok(ncclCommInitRank(&rank.comm, rank.count(), id, rank.rank()), "init")) return;
    }
    body(rank);
    if (rank.comm != nullptr) {
      base.at("ncclCommDestroy");
      rank.expect_ok(ncclCommDestroy(rank.comm), "destroy");
    }
  });
}

std::string run_nccl(const std::vector<int>& layout, const NcclBody& body) {
  return run_nccl(ClusterOptions{.layout = layout}, body);
}

ClusterOptions uncreated(const std::vector<int>& layout) {
  ClusterOptions options;
  options.layout = layout;
  options.create = false;
  return options;
}

ncclConfig_t config_of(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  return config;
}

}  // namespace tutti::test
