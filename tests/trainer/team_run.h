// Ranks of a trainer's team as threads, processes or both, for tests.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cluster.h"
#include "trainer/team.h"

namespace tutti::test {

/// Runs `body` on every rank of a reproducible team. Empty when all went well, else what failed, a line each;
/// an exception is a failure of its rank. `hosts`: the emulated host of each process, for TCP. `environment`:
/// of each process.
inline std::string run_team(const std::vector<int>& layout,
                            const std::function<void(Rank&, trainer::Team&)>& body,
                            const std::vector<int>& hosts = {},
                            const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  ClusterOptions options{.layout = layout, .hosts = hosts, .environment = environment};
  options.create = false;
  return run_cluster(options, [&](Rank& rank) {
    try {
      trainer::Team team(rank.id(), rank.rank(), rank.count(), true);
      try {
        body(rank, team);
      } catch (...) {
        team.abort();
        throw;
      }
    } catch (const std::exception& error) {
      rank.fail(error.what());
    }
  });
}

/// The text of the Error that `act` throws; "" if it throws none.
template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const trainer::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace tutti::test
