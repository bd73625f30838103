// A topology file of any form: the text form, a description, hwloc's XML or NCCL's. The content decides.
#pragma once

#include <string>
#include <string_view>

#include "topology/assembly.h"

namespace tutti::topology {

/// Errors: kInvalidArgument with "line N: ...".
Result<Imported> parse_topology(std::string_view text);

/// Reads a file of at most 64 MiB. Errors: kSystemError with the path, or those of parse_topology with it.
Result<Imported> read_topology(const std::string& path);

}  // namespace tutti::topology
