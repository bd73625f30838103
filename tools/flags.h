// What the tools' command lines share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tutti::tool {

/// Puts the program's name before each mistake of the command line.
inline void name_mistakes(CLI::App& app, const std::string& program) {
  app.failure_message([program](const CLI::App* of, const CLI::Error& error) {
    return program + ": " + CLI::FailureMessage::simple(of, error);
  });
}

}  // namespace tutti::tool
