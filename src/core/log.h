// Log: lines for events that belong to no call, so no call can return them.
#pragma once

#include <string>

namespace tutti {

/// Writes "tutti (process 4711): TEXT" to standard error, in one piece. Callers limit the number of lines.
void log_line(const std::string& text);

}  // namespace tutti
