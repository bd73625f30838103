// Errors of the trainer are exceptions, so that the training loop, which people read to learn, shows no error
// handling. All end in run_rank in main.cc.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "tutti/tutti.h"

namespace tutti::trainer {

/// An error of the world: a file, an argument, a peer. The text says what is wrong and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline std::string text_of(const std::exception& error) {
  // The standard library's own texts only name a type or a function.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return "there is not enough memory: try a smaller model or batch";
  return error.what();
}

/// Throws Error with tutti's text unless `result` is TUTTI_SUCCESS.
inline void check(tutti_result_t result, const char* what) {
  if (result != TUTTI_SUCCESS) throw Error(std::string(what) + ": " + tutti_last_error());
}

}  // namespace tutti::trainer
