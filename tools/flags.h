// What the tools' command lines share.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>

namespace tutti::tool {

/// Puts the program's name before each mistake of the command line.
inline void name_mistakes(CLI::App& app, const std::string& program) {
  app.failure_message([program](const CLI::App* of, const CLI::Error& error) {
    return program + ": " + CLI::FailureMessage::simple(of, error);
  });
}

/// Not CLI11's PositiveNumber: it accepts NaN, and its message prints an upper bound of 309 digits.
inline CLI::Validator number(bool may_be_zero) {
  const std::string rule = may_be_zero ? "a number from 0 on" : "a number above 0";
  const auto check = [=](std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool is_number = end != text.c_str() && *end == '\0' && std::isfinite(value);
    return is_number && (may_be_zero ? value >= 0 : value > 0) ? std::string() : text + " is not " + rule;
  };
  return CLI::Validator(check, may_be_zero ? "NONNEGATIVE" : "POSITIVE");
}

/// Writes what is still buffered. Returns the exit status: 2 if standard output took not all of it.
inline int end_output(const std::string& program, int status) {
  if (std::cout << std::flush) return status;
  std::cerr << program << ": cannot write the output\n";
  return status == 0 ? 2 : status;
}

}  // namespace tutti::tool
