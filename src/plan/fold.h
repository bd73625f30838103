// Fold: where all hosts do the same at the same time, one host can stand for all.
//
// Hosts are alike if each host's plans are those of the first one with the hosts of all peers shifted. Then
// what another host sends to the first one is what the first one sends to some host.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace tutti {

/// Plans that are made one by one while they are walked.
struct PlanMaker {
  uint32_t rank_count = 0;
  /// The plan of a rank, from an algorithm: its shape is not checked again.
  std::function<Plan(uint32_t rank)> plan_of;
};

/// How the plans of a host differ from those of host 0: its ranks' peers are on other hosts.
enum class HostShift : uint8_t {
  kAdd,  ///< peer's host + host, modulo the hosts
  kXor,  ///< peer's host xor host; the hosts are a power of two
};

/// The peer of a rank of `host` where the same rank of host 0 has `peer`.
uint32_t shifted(uint32_t peer, uint32_t host, uint32_t rank_count, uint32_t ranks_per_host, HostShift shift);

/// How many neighbouring ranks make one host, if all hosts are alike; 0: they are not, or there is one host.
uint32_t ranks_per_host(std::span<const uint32_t> host_of);

/// How much the plans of hosts must be alike.
enum class Likeness : uint8_t {
  kSteps,     ///< equal steps in equal order: one host does exactly what all do
  kMessages,  ///< equal messages, each lane in its own order. All hosts are taken to do what the first one
              ///< does.
};

/// The shift of hosts of `ranks_per_host` ranks, as far as four hosts tell. Nothing if the plans are not
/// alike, if there are less than four hosts, or if ranks_per_host is 0. `first_host`: plans of the first
/// ranks, to which plans of the first host are added as far as they are needed.
std::optional<HostShift> find_shift(const PlanMaker& maker, uint32_t ranks_per_host,
                                    std::vector<Plan>& first_host, Likeness likeness = Likeness::kSteps);

}  // namespace tutti
