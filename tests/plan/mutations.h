// Mutations: small random damage to a set of plans, of every kind that a generator's bug or a wrong file
// could do.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string_view>

#include "tests/plan/sample_plans.h"

namespace tutti::test {

struct Mutation {
  std::string_view name;
  /// Damages the plans at a random place; false when there is none of that kind.
  bool (*apply)(PlanSet& plans, std::mt19937& random);
};

std::span<const Mutation> mutations();

}  // namespace tutti::test
