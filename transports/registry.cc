#include "transports/registry.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string>

#include "transports/rdma/rdma_transport.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/ucx/ucx_transport.h"

namespace tutti {
namespace {

const std::array kTransports = {
    TransportEntry{"shm", &kShmTraits, open_shm_transport, nullptr},
    TransportEntry{"tcp", &tcp::kTcpTraits, tcp::open_tcp_transport, tcp::tcp_settings},
    TransportEntry{"rdma", &rdma::kRdmaTraits, rdma::open_rdma_transport, nullptr},
    TransportEntry{"ucx", &ucx::kUcxTraits, ucx::open_ucx_transport, nullptr},
};

/// Costs are compared at this size, between latency-bound and bandwidth-bound messages.
constexpr uint64_t kComparedBytes = 65536;

/// All settings, in one order. The first is the number of Config::transport in the list, or 0.
std::vector<AgreedSetting> agreed_settings(const Config& config) {
  std::vector<AgreedSetting> settings = {{"TUTTI_TRANSPORT", 0}};
  for (size_t i = 0; i < kTransports.size(); ++i) {
    if (config.transport == kTransports[i].name) settings[0].value = i + 1;
    if (kTransports[i].settings == nullptr) continue;
    for (const AgreedSetting& setting : kTransports[i].settings(config)) settings.push_back(setting);
  }
  return settings;
}

std::string describe(size_t setting, uint64_t value) {
  if (setting != 0) return std::to_string(value);
  return value == 0 || value > kTransports.size() ? "not set" : kTransports[value - 1].name;
}

}  // namespace

std::span<const TransportEntry> transports() {
  return kTransports;
}

Result<std::vector<const TransportEntry*>> network_transports(const Config& config) {
  std::vector<const TransportEntry*> entries;
  std::string names;
  for (const TransportEntry& entry : kTransports) {
    if (entry.traits->needs_shared_rings) continue;  // joins ranks of one host only
    add_to_list(names, entry.name);
    if (config.transport.empty() || config.transport == entry.name) entries.push_back(&entry);
  }
  if (!entries.empty()) return entries;
  return Status(Code::kInvalidArgument,
                format("environment variable TUTTI_TRANSPORT is \"%s\"; no transport between hosts has this "
                       "name. Use one of these, or leave the variable unset: %s",
                       config.transport.c_str(), names.c_str()));
}

TransportTraits combined_traits(std::span<const TransportEntry* const> entries) {
  assert(!entries.empty());
  TransportTraits combined = *entries[0]->traits;
  for (const TransportEntry* entry : entries.subspan(1)) {
    combined.slot_bytes = std::max(combined.slot_bytes, entry->traits->slot_bytes);
    combined.reference_bytes = std::min(combined.reference_bytes, entry->traits->reference_bytes);
    combined.prefers_whole_slots = combined.prefers_whole_slots && entry->traits->prefers_whole_slots;
  }
  return combined;
}

AgreedValues agreed_values(const Config& config) {
  AgreedValues values{};
  const std::vector<AgreedSetting> settings = agreed_settings(config);
  assert(settings.size() <= values.size());
  for (size_t i = 0; i < settings.size(); ++i) values[i] = settings[i].value;
  return values;
}

Status compare_settings(uint32_t rank, const AgreedValues& theirs, const AgreedValues& first) {
  const std::vector<AgreedSetting> settings = agreed_settings({});
  for (size_t i = 0; i < settings.size(); ++i) {
    if (theirs[i] == first[i]) continue;
    return {Code::kInvalidArgument,
            format("%s is %s on rank %u and %s on rank 0: it must be the same on all ranks", settings[i].name,
                   describe(i, theirs[i]).c_str(), rank, describe(i, first[i]).c_str())};
  }
  return Status::ok();
}

std::optional<size_t> choose_transport(std::span<const std::optional<LinkCost>> costs) {
  std::optional<size_t> best;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!costs[i]) continue;
    if (!best || costs[i]->microseconds(kComparedBytes) < costs[*best]->microseconds(kComparedBytes))
      best = i;
  }
  return best;
}

}  // namespace tutti
