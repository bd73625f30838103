#include "plugins/nccl/config.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>

#include "plugins/nccl/errors.h"
#include "plugins/nccl/settings.h"

namespace tutti::nccl {
namespace {

/// A number in the struct: the version that added it, and its range. The ranges are NCCL's.
struct Field {
  const char* name;
  int ncclConfig_t::*member;
  unsigned since;
  int min;
  int max;
};

constexpr Field kFields[] = {
    {"blocking", &ncclConfig_t::blocking, 21400, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 21700, 0, INT_MAX},
    {"minCTAs", &ncclConfig_t::minCTAs, 21700, 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 21700, 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, 21800, 0, 1},
    {"trafficClass", &ncclConfig_t::trafficClass, 22600, -INT_MAX, INT_MAX},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 22700, 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 22700, 0, INT_MAX},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 22700, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 22700, 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 22800, 1, INT_MAX},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 22800, 0, 1},
    {"graphUsageMode", &ncclConfig_t::graphUsageMode, 22900, 0, 2},
    {"numRmaCtx", &ncclConfig_t::numRmaCtx, 22900, 1, INT_MAX},
    {"maxP2pPeers", &ncclConfig_t::maxP2pPeers, 23003, 1, INT_MAX},
    {"graphStreamOrdering", &ncclConfig_t::graphStreamOrdering, 23007, 0, 1},
    {"launchOrderImplicit", &ncclConfig_t::launchOrderImplicit, 23100, 0, 1},
    {"numRmaSig", &ncclConfig_t::numRmaSig, 23100, 1, INT_MAX},
    {"rmaEagerInit", &ncclConfig_t::rmaEagerInit, 23100, 0, 1},
    {"hostCftMode", &ncclConfig_t::hostCftMode, 23100, ncclHostCftEnable, ncclHostCftFallback},
    {"nvlsHostMode", &ncclConfig_t::nvlsHostMode, 23200, 0, INT_MAX},
};
constexpr unsigned kNamesSince = 22700;  // commName

bool is_set(int value) {
  return value != NCCL_CONFIG_UNDEF_INT;
}

Status check_fields(const ncclConfig_t& config) {
  for (const Field& field : kFields) {
    const int value = config.*field.member;
    if (config.version < field.since || !is_set(value) || (value >= field.min && value <= field.max))
      continue;
    return {Code::kInvalidArgument, format("config.%s is %d: it must be %d to %d, or NCCL_CONFIG_UNDEF_INT",
                                           field.name, value, field.min, field.max)};
  }
  if (config.version >= 21700 && is_set(config.minCTAs) && is_set(config.maxCTAs) &&
      config.minCTAs > config.maxCTAs) {
    return {Code::kInvalidArgument, format("config.minCTAs is %d, more than config.maxCTAs, which is %d",
                                           config.minCTAs, config.maxCTAs)};
  }
  return Status::ok();
}

/// Numbers of a collective's configuration. The ranges are NCCL's.
struct CollField {
  const char* name;
  int ncclCollConfig_t::*member;
  int min;
  int max;
};

constexpr CollField kCollFields[] = {
    {"minCTAs", &ncclCollConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &ncclCollConfig_t::maxCTAs, 1, INT_MAX},
    {"nvlsCTAs", &ncclCollConfig_t::nvlsCTAs, 1, INT_MAX},
    {"cgaClusterSize", &ncclCollConfig_t::cgaClusterSize, 0, INT_MAX},
    {"CTAPolicy", &ncclCollConfig_t::CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
};

/// The struct of 2.31, which the field of 2.32 follows.
constexpr size_t kCollConfigBytes = offsetof(ncclCollConfig_t, launchCompletionEvent);

}  // namespace

Status check_coll_config(const ncclCollConfig_t* given) {
  if (given == nullptr) return Status::ok();
  if (given->size < kCollConfigBytes || given->magic != NCCL_API_MAGIC) {
    return {Code::kInvalidArgument,
            format("argument config is not an ncclCollConfig_t (size %zu, magic 0x%x): start from "
                   "NCCL_COLLCONFIG_INITIALIZER",
                   given->size, given->magic)};
  }
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  std::memcpy(&config, given, std::min(given->size, sizeof(config)));
  if ((config.forceAlgSelection | 1) != 1) {
    return {Code::kInvalidArgument,
            format("config.forceAlgSelection is %d: it must be 0 or 1", config.forceAlgSelection)};
  }
  for (const CollField& field : kCollFields) {
    const int value = config.*field.member;
    if (!is_set(value) || (value >= field.min && value <= field.max)) continue;
    return {Code::kInvalidArgument, format("config.%s is %d: it must be %d to %d, or NCCL_CONFIG_UNDEF_INT",
                                           field.name, value, field.min, field.max)};
  }
  if (is_set(config.minCTAs) && is_set(config.maxCTAs) && config.minCTAs > config.maxCTAs) {
    return {Code::kInvalidArgument, format("config.minCTAs is %d, more than config.maxCTAs, which is %d",
                                           config.minCTAs, config.maxCTAs)};
  }
  if (config.algSelection != nullptr && *config.algSelection != '\0' && config.forceAlgSelection != 0) {
    return {Code::kInvalidArgument,
            format("config.algSelection is \"%s\": tutti has other algorithms than NCCL and chooses among "
                   "them; set config.forceAlgSelection to 0 (for experiments: TUTTI_ALGORITHM)",
                   config.algSelection)};
  }
  if (config.launchCompletionEvent != nullptr) {
    return not_implemented(
        "config.launchCompletionEvent is not implemented (record an event on the stream after the call)");
  }
  return Status::ok();
}

Result<CommConfig> read_comm_config(const ncclConfig_t* given, const CommConfig& defaults) {
  CommConfig result = defaults;
  if (given != nullptr) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (given->size < offsetof(ncclConfig_t, blocking) || given->magic != NCCL_API_MAGIC) {
      return Status(Code::kInvalidArgument,
                    format("argument config is not an ncclConfig_t (size %zu, magic 0x%x): start from "
                           "NCCL_CONFIG_INITIALIZER",
                           given->size, given->magic));
    }
    // Fields of a newer caller behind our last field are ignored, as NCCL does.
    std::memcpy(&config, given, std::min(given->size, sizeof(config)));
    TUTTI_TRY(check_fields(config));
    if (config.version >= kFields[0].since && is_set(config.blocking)) result.blocking = config.blocking != 0;
    if (config.version >= kNamesSince && config.commName != nullptr) result.name = config.commName;
  }
  if (settings().blocking) result.blocking = *settings().blocking;
  return result;
}

}  // namespace tutti::nccl
