// Algorithm: a pure function (request, facts, rank) -> Plan. One file an algorithm.
//
// To add one: write algorithms/NAME.cc, add its row to the list in algorithms/generators.h and its file to
// algorithms/meson.build. Tests then take it from the list. The rules that they check:
//
//  - `supports` decides, and it may refuse only for a reason of the algorithm: its radix, reproducible mode,
//    facts, slots, variable counts, blocks of one size. Every rank count from the least it serves to 64 must
//    be supported with the usual facts, powers of two or not: ranks that do not fit the pattern hand their
//    data over first. A test knows the least count where that is not 1
//    (RegistryTest.EveryRankCountIsSupportedUpToTheRadix).
//  - The first row of a collective supports everything: any rank count, 1 slot, no shared memory,
//    reproducible mode, and variable counts where the collective has that form.
//  - Plans fit the slots of a link. `make` cuts an exchange that needs more than Facts::slots (1, 2, 3 and 5
//    are tried), or `supports` refuses so few; then the choice takes the next row (FewSlotsTest).
//  - Reproducible mode is supported exactly where the plan's association is canonical, for each rank count
//  and
//    root (RegistryTest.InReproducibleModeOnlyCanonicalPlansAreMade).
//  - A row says kEqual exactly if its `supports` refuses variable counts.
//  - Ranks lie on hosts in any order. Host numbers follow the lowest rank of each host, and the ranks of a
//    host need not be neighbours. Use hosts.h, and refuse where knows_hosts is false. The tests between hosts
//    take the algorithms whose names begin with "hierarchical".
//  - In place a block is overwritten only after its last read, on every rank and for every rank count. Where
//    in-place buffers are safe only as copies, request.in_place tells `make`.
//  - All ranks make their plans alone: `make` reads nothing but its arguments, and its time and memory are
//    proportional to that rank's own steps. With 16,384 ranks a rank has at most 4 steps for each rank.
//  - Plans are proved for 1 to 64 ranks, each kind of root, in place and not, with and without publication:
//    result, deadlock, races, scratch, association. A plan that fails one proof fails the build's tests.
//  - The first row of choice.txt that matches and is supported wins; without one, the first row of the list
//    that supports the request. A new algorithm is therefore never chosen until choice.txt names it.
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
  /// Its steps put several blocks into one range of scratch, so it needs blocks of equal size; never chosen
  /// for a request with variable_counts.
  bool uniform_blocks;
  /// Whether the request can be served: rank count, radix, reproducible mode, facts, variable counts. Pure.
  bool (*supports)(const Request& request, const Facts& facts);
  /// The plan of `rank`. Time and memory proportional to that rank's own steps. Only called when supports()
  /// holds.
  Plan (*make)(const Request& request, const Facts& facts, uint32_t rank);
};

/// All algorithms, grouped by collective; names are unique within a collective.
std::span<const Algorithm> algorithms();

/// Null when there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

}  // namespace tutti
