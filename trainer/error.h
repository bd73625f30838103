// Errors of the trainer: exceptions, so that a loop that people read to learn shows what it does and not how
// it might fail. They end at one place, run_rank in main.cc.
#pragma once

#include <stdexcept>
#include <string>

#include "tutti/tutti.h"

namespace tutti::trainer {

/// Something of the world is wrong: a file, an argument, a peer. The text says what, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with tutti's sentence unless `result` is TUTTI_SUCCESS.
inline void check(tutti_result_t result, const char* what) {
  if (result != TUTTI_SUCCESS) throw Error(std::string(what) + ": " + tutti_last_error());
}

}  // namespace tutti::trainer
