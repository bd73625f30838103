// The registry: a table made from the list in generators.h.
#include <algorithm>
#include <array>
#include <cstddef>

#include "algorithms/algorithm.h"
#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "core/name.h"

namespace tutti {
namespace {

using Make = Plan (*)(const Request& request, const Facts& facts, uint32_t rank);
using Supports = bool (*)(const Request& request, const Facts& facts);

/// The plan of `rank`, with its name. With one rank every algorithm is a copy.
template <Name kName, Make kMake>
Plan make(const Request& request, const Facts& facts, uint32_t rank) {
  Plan plan;
  if (request.rank_count > 1) {
    plan = kMake(request, facts, rank);
  } else {
    generators::Builder builder(request, rank);
    builder.canonical(true).finish({0, 1}, {generators::input({0, 1})}, {generators::output({0, 1})});
    plan = builder.take();
  }
  plan.algorithm = kName.view();
  return plan;
}

template <Name kName>
struct NameHolder {
  static constexpr Name kHeld = kName;
};

enum class Blocks : uint8_t { kAny, kEqual };

/// One row. If a generator needs equal blocks, its supports function refuses variable counts.
template <Name kName, Make kMake, Supports kSupports>
constexpr Algorithm row(Collective collective, Blocks blocks) {
  return {.name = NameHolder<kName>::kHeld.view(),
          .collective = collective,
          .uniform_blocks = blocks == Blocks::kEqual,
          .supports = kSupports,
          .make = make<kName, kMake>};
}

using namespace generators;  // NOLINT: each row names two of its functions

#define TUTTI_ROW(collective, name, make, supports, blocks) \
  row<name, make, supports>(Collective::collective, Blocks::blocks),
constexpr std::array kAlgorithms = {TUTTI_ALGORITHMS(TUTTI_ROW)};
#undef TUTTI_ROW

}  // namespace

std::span<const Algorithm> algorithms() {
  return kAlgorithms;
}

bool is_algorithm(std::string_view name) {
  return std::ranges::any_of(kAlgorithms, [&](const Algorithm& known) { return known.name == name; });
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace tutti
