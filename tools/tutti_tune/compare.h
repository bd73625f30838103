// Compare: predicted times beside measured ones, and what a choice by price would cost.
#pragma once

#include <string>

#include "algorithms/choice.h"
#include "core/result.h"
#include "tools/machine.h"
#include "tools/samples.h"

namespace tutti::tool {

struct CompareOptions {
  bool emulates_hosts = false;  ///< samples of several hosts are of hosts that this machine emulates
  bool details = false;         ///< a line for each point, too
  ChoiceTable kept = {};        ///< what the library would choose by
};

/// A table in Markdown: for each collective, number of ranks and host the share of points whose predicted
/// time is within 25 % of the measured median, and how much longer than the fastest algorithm the choices by
/// price, by the built-in table, by the kept one and of the library itself took in the same turns
/// (PairedTimes::lead_over_fastest). In brackets the shares that are surely good and surely not. The last
/// columns compare the library's choice with the same algorithm under its name: what chance leaves to any
/// choice. A point is one algorithm at one size. Of two ranks, algorithms that make the same plan are one
/// choice. Errors: kInvalidArgument (predict).
Result<std::string> compare(const Samples& samples, Machine& machine, const CompareOptions& options);

}  // namespace tutti::tool
