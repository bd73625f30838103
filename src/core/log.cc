#include "core/log.h"

#include <unistd.h>

#include <cstdio>

#include "core/result.h"

namespace tutti {

void log_line(const std::string& text) {
  const std::string line = format("tutti (process %d): ", getpid()) + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace tutti
