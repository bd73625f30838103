// Compare: predicted times beside measured ones, and what a choice by price would cost.
#pragma once

#include <string>

#include "core/result.h"
#include "tools/machine.h"
#include "tools/tutti_tune/samples.h"

namespace tutti::tool {

struct CompareOptions {
  bool emulates_hosts = false;  ///< samples of several hosts are of hosts that this machine emulates
  bool details = false;         ///< a line for each point, too
};

/// A table in Markdown: for each collective, number of ranks and host the share of points whose predicted
/// time is within 25 % of the measured median, and how much longer than the fastest algorithm the choice by
/// price and the library's own choice took. A point is one algorithm at one size. Errors: kInvalidArgument
/// (predict).
Result<std::string> compare(const Samples& samples, Machine& machine, const CompareOptions& options);

}  // namespace tutti::tool
