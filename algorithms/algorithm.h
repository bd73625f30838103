// Algorithm: a pure function (request, facts, rank) -> Plan. One file an algorithm; registry.cc lists them.
//
// To add one: write algorithms/NAME.cc, declare its make function in algorithms/generators.h, add one row
// to registry.cc and the file to algorithms/meson.build. The conformance suite then tests it.
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
