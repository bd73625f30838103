// The list of algorithms: one row declares the two functions of an algorithm and registers it.
//
// A row has a collective, a name, make, supports, and the sizes of blocks: equal (kEqual) or any (kAny). The
// comment above an algorithm's definition gives its idea, cost and source. algorithm.h has the rules for all
// algorithms. The first row of a collective serves every request that no other row serves, so it supports
// everything.
//
// A make function is called only for two or more ranks (registry.cc serves one rank itself), and only if the
// supports function returns true.
#pragma once

#include <cstdint>

#include "plan/plan.h"

#define TUTTI_ALGORITHMS(ROW)                                                                                \
  ROW(kAllReduce, "direct_one_shot", make_direct_one_shot, supports_everything, kAny)                        \
  ROW(kAllReduce, "direct_two_shot", make_direct_two_shot, supports_direct_two_shot, kAny)                   \
  ROW(kAllReduce, "ring", make_ring_all_reduce, supports_ring, kAny)                                         \
  ROW(kAllReduce, "recursive_doubling", make_recursive_doubling_all_reduce, supports_recursive_doubling,     \
      kAny)                                                                                                  \
  ROW(kAllReduce, "recursive_halving_doubling", make_recursive_halving_doubling,                             \
      supports_recursive_halving_doubling, kAny)                                                             \
  ROW(kAllReduce, "recursive_multiplying_3", make_recursive_multiplying_3, supports_recursive_multiplying_3, \
      kAny)                                                                                                  \
  ROW(kAllReduce, "recursive_multiplying_4", make_recursive_multiplying_4, supports_recursive_multiplying_4, \
      kAny)                                                                                                  \
  ROW(kAllReduce, "double_binary_tree", make_double_binary_tree, supports_double_binary_tree, kAny)          \
  ROW(kAllReduce, "hierarchical", make_hierarchical_all_reduce, supports_hierarchical_all_reduce, kAny)      \
  ROW(kAllReduce, "hierarchical_levels", make_hierarchical_levels_all_reduce,                                \
      supports_hierarchical_levels_all_reduce, kAny)                                                         \
  ROW(kAllReduce, "hierarchical_leaders", make_hierarchical_leaders_all_reduce, supports_hierarchical, kAny) \
  ROW(kAllReduce, "multicast", make_multicast_all_reduce, supports_multicast, kAny)                          \
  ROW(kReduce, "direct", make_direct_reduce, supports_everything, kAny)                                      \
  ROW(kReduce, "binomial", make_binomial_reduce, supports_everything, kAny)                                  \
  ROW(kReduce, "chain", make_chain_reduce, supports_chain, kAny)                                             \
  ROW(kReduce, "hierarchical_binomial", make_hierarchical_binomial_reduce, supports_hierarchical, kAny)      \
  ROW(kReduce, "hierarchical_chain", make_hierarchical_chain_reduce, supports_hierarchical_chain_reduce,     \
      kAny)                                                                                                  \
  ROW(kReduce, "multicast", make_multicast_reduce, supports_multicast, kAny)                                 \
  ROW(kBroadcast, "direct", make_direct_broadcast, supports_everything, kAny)                                \
  ROW(kBroadcast, "binomial", make_binomial_broadcast, supports_everything, kAny)                            \
  ROW(kBroadcast, "chain", make_chain_broadcast, supports_everything, kAny)                                  \
  ROW(kBroadcast, "scatter_all_gather", make_scatter_all_gather, supports_scatter_all_gather, kAny)          \
  ROW(kBroadcast, "hierarchical_binomial", make_hierarchical_binomial_broadcast, supports_hierarchical,      \
      kAny)                                                                                                  \
  ROW(kBroadcast, "hierarchical_chain", make_hierarchical_chain_broadcast, supports_hierarchical, kAny)      \
  ROW(kBroadcast, "multicast", make_multicast_broadcast, supports_multicast, kAny)                           \
  ROW(kAllGather, "direct", make_direct_all_gather, supports_everything, kAny)                               \
  ROW(kAllGather, "ring", make_ring_all_gather, supports_ring, kAny)                                         \
  ROW(kAllGather, "recursive_doubling", make_recursive_doubling_all_gather, supports_everything, kAny)       \
  ROW(kAllGather, "bruck", make_bruck_all_gather, supports_everything, kAny)                                 \
  ROW(kAllGather, "hierarchical", make_hierarchical_all_gather, supports_hierarchical, kAny)                 \
  ROW(kAllGather, "hierarchical_levels", make_hierarchical_levels_all_gather, supports_hierarchical_levels,  \
      kAny)                                                                                                  \
  ROW(kAllGather, "multicast", make_multicast_all_gather, supports_multicast, kAny)                          \
  ROW(kReduceScatter, "direct", make_direct_reduce_scatter, supports_everything, kAny)                       \
  ROW(kReduceScatter, "ring", make_ring_reduce_scatter, supports_ring, kAny)                                 \
  ROW(kReduceScatter, "recursive_halving", make_recursive_halving, supports_recursive_halving, kEqual)       \
  ROW(kReduceScatter, "hierarchical", make_hierarchical_reduce_scatter, supports_hierarchical, kAny)         \
  ROW(kReduceScatter, "hierarchical_levels", make_hierarchical_levels_reduce_scatter,                        \
      supports_hierarchical_levels, kAny)                                                                    \
  ROW(kReduceScatter, "multicast", make_multicast_reduce_scatter, supports_multicast, kAny)                  \
  ROW(kAllToAll, "direct", make_direct_all_to_all, supports_everything, kAny)                                \
  ROW(kAllToAll, "pairwise", make_pairwise_all_to_all, supports_everything, kAny)                            \
  ROW(kAllToAll, "bruck", make_bruck_all_to_all, supports_equal_blocks, kEqual)                              \
  ROW(kAllToAll, "hierarchical", make_hierarchical_all_to_all, supports_hierarchical_all_to_all, kAny)       \
  ROW(kGather, "direct", make_direct_gather, supports_everything, kAny)                                      \
  ROW(kGather, "binomial", make_binomial_gather, supports_equal_blocks, kEqual)                              \
  ROW(kScatter, "direct", make_direct_scatter, supports_everything, kAny)                                    \
  ROW(kScatter, "binomial", make_binomial_scatter, supports_equal_blocks, kEqual)                            \
  ROW(kBarrier, "direct", make_direct_one_shot, supports_everything, kAny)                                   \
  ROW(kBarrier, "dissemination", make_dissemination_barrier, supports_everything, kAny)                      \
  ROW(kBarrier, "hierarchical", make_hierarchical_barrier, supports_hierarchical, kAny)

namespace tutti::generators {

#define TUTTI_DECLARE(collective, name, make, supports, blocks)         \
  Plan make(const Request& request, const Facts& facts, uint32_t rank); \
  bool supports(const Request& request, const Facts& facts);
TUTTI_ALGORITHMS(TUTTI_DECLARE)
#undef TUTTI_DECLARE

}  // namespace tutti::generators
