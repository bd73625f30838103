// Errors of the trainer: exceptions, so that a loop that people read to learn shows what it does and not how
// it might fail. They end at one place, run_rank in main.cc.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "tutti/tutti.h"

namespace tutti::trainer {

/// Something of the world is wrong: a file, an argument, a peer. The text says what, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What people read of an exception.
inline std::string text_of(const std::exception& error) {
  // The standard library's own texts name a type or a function of its.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return "there is not enough memory: a smaller model or batch needs less";
  return error.what();
}

/// Throws Error with tutti's sentence unless `result` is TUTTI_SUCCESS.
inline void check(tutti_result_t result, const char* what) {
  if (result != TUTTI_SUCCESS) throw Error(std::string(what) + ": " + tutti_last_error());
}

}  // namespace tutti::trainer
