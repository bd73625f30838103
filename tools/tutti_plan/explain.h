// tutti-plan explain: the candidates for a request on a machine, the winner, and why the others lose.
#pragma once

#include <span>
#include <string>

#include "tools/machine.h"

namespace tutti::tool {

/// In words: predicted times, where the winner's time goes, why each other candidate is slower. `candidates`:
/// traced, the fastest first.
std::string explain(const Request& request, std::span<const Candidate> candidates);

/// What the library takes for the request, by its table and by price, and what that costs.
std::string explain_library(Machine& machine, const Request& request, std::span<const Candidate> candidates);

/// The commands "explain" and "table": argv from that word on. They return the exit status.
int run_explain(int argc, char** argv);
int run_table(int argc, char** argv);

}  // namespace tutti::tool
