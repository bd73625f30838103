// The list of algorithms. Within a collective the first that supports a request is what the choice falls
// back to, so each begins with one that supports everything.
#include <algorithm>
#include <array>
#include <cstddef>

#include "algorithms/algorithm.h"
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti {
namespace {

using Make = Plan (*)(const Request& request, const Facts& facts, uint32_t rank);
using Supports = bool (*)(const Request& request, const Facts& facts);

/// A name as a template argument, so that a plan can say what made it.
template <size_t kSize>
struct Name {
  constexpr Name(const char (&text)[kSize]) { std::copy_n(text, kSize, characters); }  // NOLINT: implicit
  constexpr std::string_view view() const { return {characters, kSize - 1}; }

  char characters[kSize];
};

/// The plan of `rank`, with its name. One rank copies, whatever the algorithm.
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

/// One row; a generator that needs equal blocks refuses variable counts in its supports function.
template <Name kName, Make kMake, Supports kSupports = generators::supports_everything>
constexpr Algorithm row(Collective collective, bool uniform_blocks = false) {
  return {.name = NameHolder<kName>::kHeld.view(),
          .collective = collective,
          .uniform_blocks = uniform_blocks,
          .supports = kSupports,
          .make = make<kName, kMake>};
}

constexpr bool kUniformBlocks = true;

using namespace generators;  // NOLINT: the rows below name one or two functions each

constexpr std::array kAlgorithms = {
    row<"direct_one_shot", make_direct_one_shot>(Collective::kAllReduce),
    row<"direct_two_shot", make_direct_two_shot, supports_direct_two_shot>(Collective::kAllReduce),
    row<"ring", make_ring_all_reduce, supports_ring>(Collective::kAllReduce),
    row<"recursive_doubling", make_recursive_doubling_all_reduce, supports_recursive_doubling>(
        Collective::kAllReduce),
    row<"recursive_halving_doubling", make_recursive_halving_doubling, supports_recursive_halving_doubling>(
        Collective::kAllReduce),
    row<"recursive_multiplying_3", make_recursive_multiplying_3, supports_recursive_multiplying_3>(
        Collective::kAllReduce),
    row<"recursive_multiplying_4", make_recursive_multiplying_4, supports_recursive_multiplying_4>(
        Collective::kAllReduce),
    row<"double_binary_tree", make_double_binary_tree, supports_double_binary_tree>(Collective::kAllReduce),
    row<"hierarchical", make_hierarchical_all_reduce, supports_hierarchical_all_reduce>(
        Collective::kAllReduce),
    row<"hierarchical_leaders", make_hierarchical_leaders_all_reduce, supports_hierarchical>(
        Collective::kAllReduce),
    row<"multicast", make_multicast_all_reduce, supports_multicast>(Collective::kAllReduce),

    row<"direct", make_direct_reduce>(Collective::kReduce),
    row<"binomial", make_binomial_reduce>(Collective::kReduce),
    row<"chain", make_chain_reduce, supports_chain>(Collective::kReduce),
    row<"hierarchical_binomial", make_hierarchical_binomial_reduce, supports_hierarchical>(
        Collective::kReduce),
    row<"hierarchical_chain", make_hierarchical_chain_reduce, supports_hierarchical_chain_reduce>(
        Collective::kReduce),
    row<"multicast", make_multicast_reduce, supports_multicast>(Collective::kReduce),

    row<"direct", make_direct_broadcast>(Collective::kBroadcast),
    row<"binomial", make_binomial_broadcast>(Collective::kBroadcast),
    row<"chain", make_chain_broadcast>(Collective::kBroadcast),
    row<"scatter_all_gather", make_scatter_all_gather, supports_scatter_all_gather>(Collective::kBroadcast),
    row<"hierarchical_binomial", make_hierarchical_binomial_broadcast, supports_hierarchical>(
        Collective::kBroadcast),
    row<"hierarchical_chain", make_hierarchical_chain_broadcast, supports_hierarchical>(
        Collective::kBroadcast),
    row<"multicast", make_multicast_broadcast, supports_multicast>(Collective::kBroadcast),

    row<"direct", make_direct_all_gather>(Collective::kAllGather),
    row<"ring", make_ring_all_gather, supports_ring>(Collective::kAllGather),
    row<"recursive_doubling", make_recursive_doubling_all_gather>(Collective::kAllGather),
    row<"bruck", make_bruck_all_gather>(Collective::kAllGather),
    row<"hierarchical", make_hierarchical_all_gather, supports_hierarchical>(Collective::kAllGather),
    row<"multicast", make_multicast_all_gather, supports_multicast>(Collective::kAllGather),

    row<"direct", make_direct_reduce_scatter>(Collective::kReduceScatter),
    row<"ring", make_ring_reduce_scatter, supports_ring>(Collective::kReduceScatter),
    row<"recursive_halving", make_recursive_halving, supports_recursive_halving>(Collective::kReduceScatter,
                                                                                 kUniformBlocks),
    row<"hierarchical", make_hierarchical_reduce_scatter, supports_hierarchical>(Collective::kReduceScatter),
    row<"multicast", make_multicast_reduce_scatter, supports_multicast>(Collective::kReduceScatter),

    row<"direct", make_direct_all_to_all>(Collective::kAllToAll),
    row<"pairwise", make_pairwise_all_to_all>(Collective::kAllToAll),
    row<"bruck", make_bruck_all_to_all, supports_equal_blocks>(Collective::kAllToAll, kUniformBlocks),

    row<"direct", make_direct_gather>(Collective::kGather),
    row<"binomial", make_binomial_gather, supports_equal_blocks>(Collective::kGather, kUniformBlocks),

    row<"direct", make_direct_scatter>(Collective::kScatter),
    row<"binomial", make_binomial_scatter, supports_equal_blocks>(Collective::kScatter, kUniformBlocks),

    row<"direct", make_direct_one_shot>(Collective::kBarrier),
    row<"dissemination", make_dissemination_barrier>(Collective::kBarrier),
    row<"hierarchical", make_hierarchical_barrier, supports_hierarchical>(Collective::kBarrier),
};

}  // namespace

std::span<const Algorithm> algorithms() {
  return kAlgorithms;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace tutti
