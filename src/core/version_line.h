// What a program prints for --version.
#pragma once

#include <string>
#include <string_view>

#include "core/version.h"

namespace tutti {

/// "PROGRAM (tutti 0.1.0)".
inline std::string version_line(std::string_view program) {
  std::string line(program);
  line += " (tutti " + std::to_string(kVersionCode / 10000) + "." + std::to_string(kVersionCode / 100 % 100) +
          "." + std::to_string(kVersionCode % 100) + ")";
  return line;
}

}  // namespace tutti
