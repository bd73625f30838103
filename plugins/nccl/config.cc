#include "plugins/nccl/config.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>

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

}  // namespace

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
