// Variables: the names of the environment variables that tutti reads, and a warning for misspelt ones.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// All names, sorted: those that read_config asks for, and those that the bootstrap and the tools read.
const std::vector<std::string>& known_variables();

/// The name among `known` (not empty) that takes the fewest changed, added or missing letters.
std::string_view nearest_name(std::string_view name, std::span<const std::string> known);

/// One line about variables of `environment` ("NAME=value") that begin with TUTTI_ and that nothing reads; ""
/// if there are none. Names that begin with TUTTI_TEST_ belong to tests.
std::string unknown_variables(std::span<const std::string> environment);

/// The variables of this process, as "NAME=value". (config.cc holds the function: it alone reads the
/// environment.)
std::vector<std::string> process_variables();

}  // namespace tutti
