// Generators: the make and supports functions that registry.cc lists, one file an algorithm. What each
// does, what it costs and where it comes from stands above its definition.
//
// A make function is only called for two or more ranks (registry.cc serves one rank itself) and when the
// supports function holds.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace tutti::generators {

bool supports_everything(const Request& request, const Facts& facts);

// direct_one_shot.cc
Plan make_direct_one_shot(const Request& request, const Facts& facts, uint32_t rank);
// direct_two_shot.cc
bool supports_direct_two_shot(const Request& request, const Facts& facts);
Plan make_direct_two_shot(const Request& request, const Facts& facts, uint32_t rank);

// direct.cc
Plan make_direct_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_direct_broadcast(const Request& request, const Facts& facts, uint32_t rank);
Plan make_direct_all_gather(const Request& request, const Facts& facts, uint32_t rank);
Plan make_direct_reduce_scatter(const Request& request, const Facts& facts, uint32_t rank);
Plan make_direct_all_to_all(const Request& request, const Facts& facts, uint32_t rank);
Plan make_direct_gather(const Request& request, const Facts& facts, uint32_t rank);
Plan make_direct_scatter(const Request& request, const Facts& facts, uint32_t rank);

// ring.cc
bool supports_ring(const Request& request, const Facts& facts);
Plan make_ring_all_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_ring_reduce_scatter(const Request& request, const Facts& facts, uint32_t rank);
Plan make_ring_all_gather(const Request& request, const Facts& facts, uint32_t rank);

// recursive_multiplying.cc
bool supports_recursive_doubling(const Request& request, const Facts& facts);
bool supports_recursive_multiplying_3(const Request& request, const Facts& facts);
bool supports_recursive_multiplying_4(const Request& request, const Facts& facts);
Plan make_recursive_doubling_all_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_recursive_multiplying_3(const Request& request, const Facts& facts, uint32_t rank);
Plan make_recursive_multiplying_4(const Request& request, const Facts& facts, uint32_t rank);

// recursive_halving_doubling.cc
bool supports_recursive_halving_doubling(const Request& request, const Facts& facts);
Plan make_recursive_halving_doubling(const Request& request, const Facts& facts, uint32_t rank);

// recursive_halving.cc
bool supports_recursive_halving(const Request& request, const Facts& facts);
Plan make_recursive_halving(const Request& request, const Facts& facts, uint32_t rank);

// recursive_doubling.cc
Plan make_recursive_doubling_all_gather(const Request& request, const Facts& facts, uint32_t rank);

// double_binary_tree.cc
bool supports_double_binary_tree(const Request& request, const Facts& facts);
Plan make_double_binary_tree(const Request& request, const Facts& facts, uint32_t rank);

// binomial_tree.cc
bool supports_equal_blocks(const Request& request, const Facts& facts);
Plan make_binomial_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_binomial_broadcast(const Request& request, const Facts& facts, uint32_t rank);
Plan make_binomial_gather(const Request& request, const Facts& facts, uint32_t rank);
Plan make_binomial_scatter(const Request& request, const Facts& facts, uint32_t rank);

// chain.cc
bool supports_chain(const Request& request, const Facts& facts);
Plan make_chain_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_chain_broadcast(const Request& request, const Facts& facts, uint32_t rank);

// scatter_all_gather.cc
bool supports_scatter_all_gather(const Request& request, const Facts& facts);
Plan make_scatter_all_gather(const Request& request, const Facts& facts, uint32_t rank);

// bruck.cc
Plan make_bruck_all_gather(const Request& request, const Facts& facts, uint32_t rank);
Plan make_bruck_all_to_all(const Request& request, const Facts& facts, uint32_t rank);

// pairwise.cc
Plan make_pairwise_all_to_all(const Request& request, const Facts& facts, uint32_t rank);

// dissemination.cc
Plan make_dissemination_barrier(const Request& request, const Facts& facts, uint32_t rank);

// hierarchical.cc
bool supports_hierarchical(const Request& request, const Facts& facts);
bool supports_hierarchical_all_reduce(const Request& request, const Facts& facts);
Plan make_hierarchical_all_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_hierarchical_reduce_scatter(const Request& request, const Facts& facts, uint32_t rank);
Plan make_hierarchical_all_gather(const Request& request, const Facts& facts, uint32_t rank);

// hierarchical_leaders.cc
Plan make_hierarchical_leaders_all_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_hierarchical_barrier(const Request& request, const Facts& facts, uint32_t rank);
Plan make_hierarchical_binomial_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_hierarchical_binomial_broadcast(const Request& request, const Facts& facts, uint32_t rank);

// hierarchical_chain.cc
bool supports_hierarchical_chain_reduce(const Request& request, const Facts& facts);
Plan make_hierarchical_chain_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_hierarchical_chain_broadcast(const Request& request, const Facts& facts, uint32_t rank);

// multicast.cc
bool supports_multicast(const Request& request, const Facts& facts);
Plan make_multicast_all_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_multicast_reduce(const Request& request, const Facts& facts, uint32_t rank);
Plan make_multicast_broadcast(const Request& request, const Facts& facts, uint32_t rank);
Plan make_multicast_all_gather(const Request& request, const Facts& facts, uint32_t rank);
Plan make_multicast_reduce_scatter(const Request& request, const Facts& facts, uint32_t rank);

}  // namespace tutti::generators
