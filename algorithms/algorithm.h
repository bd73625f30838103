// Algorithm: a pure function (request, facts, rank) -> Plan. Each algorithm has its own file.
//
// To add an algorithm: write algorithms/NAME.cc, add its row to the list in algorithms/generators.h, and add
// its file to algorithms/meson.build. Tests then take the algorithm from the list. Tests check these rules:
//
//  - `supports` may refuse only for a reason of the algorithm: its radix, reproducible mode, facts, slots,
//    variable counts, equal blocks. With the usual facts `supports` accepts every rank count from the
//    algorithm's least to 64, powers of two or not. Ranks that do not fit the pattern first send their data
//    to other ranks. If the least count is not 1, a test lists the count
//    (RegistryTest.EveryRankCountIsSupportedUpToTheRadix).
//  - The first row of a collective supports everything: any rank count, 1 slot, no shared memory,
//    reproducible mode, and variable counts if the collective has that form.
//  - Plans fit the slots of a link. If an exchange needs more than Facts::slots (the tests try 1, 2, 3 and
//    5), `make` cuts the exchange, or `supports` refuses and the choice takes the next row (FewSlotsTest).
//  - An algorithm supports reproducible mode exactly where the plan's association is canonical, for each rank
//    count and root (RegistryTest.InReproducibleModeOnlyCanonicalPlansAreMade).
//  - A row says kEqual exactly if its `supports` refuses variable counts.
//  - Ranks are on hosts in any order. Hosts are numbered by their lowest ranks, and the ranks of a host need
//    not be neighbours. Use hosts.h, and refuse if knows_hosts is false. Tests between hosts take the
//    algorithms whose names begin with "hierarchical".
//  - In place, a block is overwritten only after its last read, on every rank and for every rank count. If
//    in-place buffers are safe only as copies, request.in_place tells `make`.
//  - Each rank makes its plan alone. `make` reads only its arguments. Its time and memory are proportional to
//    the rank's own steps. With 16,384 ranks a rank has at most 4 steps for each rank.
//  - Plans are checked for 1 to 64 ranks, each kind of root, in place and not, with and without publication:
//    result, deadlock, races, scratch, association. A plan that fails one check fails the build's tests.
//  - The first row of choice.txt that matches and is supported wins. If no row matches, the first row of the
//    list that supports the request wins. So a new algorithm is never chosen until choice.txt names it.
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
  /// The steps put several blocks into one range of scratch, so blocks must have equal sizes. Never chosen
  /// for a request with variable_counts.
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

}  // namespace tutti
