// Log: the few lines that the library writes of its own accord: what concerns no call, so that no call can
// return it.
#pragma once

#include <string>

namespace tutti {

/// Writes "tutti (process 4711): TEXT" to standard error, in one piece. Callers bound how often.
void log_line(const std::string& text);

}  // namespace tutti
