// Algorithm: a pure function (request, facts, rank) -> Plan, one file each.
//
// To add an algorithm: write algorithms/NAME.cc, and add a row to algorithms/generators.h and the file to
// algorithms/meson.build. Tests then take the algorithm from the list and check these rules:
//
//  - `supports` refuses only for a reason of the algorithm: radix, reproducible mode, facts, slots, variable
//    counts, equal blocks. With the usual facts it accepts every rank count from its least to 64, powers of
//    two or not: ranks that do not fit the pattern first send their data to others. A test lists least counts
//    above 1 (RegistryTest.EveryRankCountIsSupportedUpToTheRadix).
//  - The first row of a collective supports everything: any rank count, 1 slot, no shared memory,
//    reproducible mode, and variable counts if the collective has that form.
//  - Plans fit the slots of a link. If an exchange needs more than Facts::slots (the tests try 1, 2, 3 and
//    5), `make` cuts the exchange, or `supports` refuses and the choice takes the next row (FewSlotsTest).
//  - Reproducible mode is supported exactly where the plan's association is canonical, for each rank count
//    and root (RegistryTest.InReproducibleModeOnlyCanonicalPlansAreMade).
//  - A row says kEqual exactly if its `supports` refuses variable counts.
//  - Ranks are on hosts in any order, and hosts are numbered by their lowest ranks. Use hosts.h, and refuse
//    if knows_hosts is false. Tests between hosts take the algorithms named "hierarchical...".
//  - In place, a block is overwritten only after its last read, for every rank and rank count.
//    request.in_place tells `make` to copy where references are not safe.
//  - `make` reads only its arguments. Its time and memory are proportional to the rank's own steps. With
//    16,384 ranks a rank has at most 4 steps for each rank.
//  - Plans pass all checks of plan/verify.h for 1 to 64 ranks, each kind of root, in place and not, with and
//    without publication.
//  - The first row of choice.txt that matches and is supported wins, else the first row of the list that
//    supports the request. So a new algorithm is never chosen until choice.txt names it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

struct Algorithm {
  std::string_view name;  ///< e.g. "ring"
  Collective collective;
  /// Whether blocks must have equal sizes, because steps put several blocks into one range of scratch. Then
  /// supports() refuses variable counts.
  bool uniform_blocks;
  /// Whether the algorithm can serve the request: rank count, radix, reproducible mode, facts, variable
  /// counts. Pure.
  bool (*supports)(const Request& request, const Facts& facts);
  /// The plan of `rank`. Time and memory are proportional to the rank's own steps. Call only if supports() is
  /// true.
  Plan (*make)(const Request& request, const Facts& facts, uint32_t rank);
};

/// All algorithms, grouped by collective. Names are unique within a collective.
std::span<const Algorithm> algorithms();

/// Null if no algorithm has this name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
/// Whether an algorithm of any collective has this name.
bool is_algorithm(std::string_view name);

}  // namespace tutti
