// Kept measurements: one file for each kind of machine, in the user's cache folder. To ship measurements to
// other machines of the same kind, copy the file.
#pragma once

#include <string>

#include "core/config.h"
#include "topology/measurements.h"

namespace tutti::topology {

/// $XDG_CACHE_HOME/tutti/FINGERPRINT.measured, or below $HOME/.cache. Empty if neither is set.
std::string kept_path(const Environment& environment, uint64_t machine);

/// Errors: kSystemError if there is no such file; kInvalidArgument with the path and the line; kMismatch if
/// the file is of another kind of machine.
Result<Measurements> read_kept(const std::string& path, uint64_t machine);

/// Replaces the file at once, so that no reader sees half of it. Makes its folder. Errors: kSystemError.
Status keep(const std::string& path, const Measurements& measurements);

}  // namespace tutti::topology
