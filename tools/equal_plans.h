// Equal plans: which algorithms do the same work for a request. Of two ranks, five algorithms of all_gather
// make one plan. Their times differ by chance only, so they are times of one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"

namespace tutti::tool {

/// For each of these algorithms the first one of them that makes the same plan. Of more than two ranks each
/// stands for itself: some algorithms run on shorter rings (comm/host_executor.cc).
std::map<std::string, std::string> equal_algorithms(const std::vector<std::string>& names,
                                                    const Request& request, const Facts& facts);

}  // namespace tutti::tool
