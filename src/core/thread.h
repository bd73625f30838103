// The library's own threads. They take no signals of the application. A failed start is an ordinary error.
#pragma once

#include <pthread.h>

#include <csignal>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "core/result.h"

namespace tutti {

/// While this object lives, the calling thread, and threads that it starts, take no signals.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

/// Starts `body` in `thread`, which must not run yet. `what` names the thread in an error. Errors:
/// kSystemError: the system has no more threads, and nothing has started.
template <class Body>
Status start_thread(std::thread& thread, std::string_view what, Body&& body) {
  const SignalsBlocked blocked;
  try {
    thread = std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    return system_error(format("starting %.*s", static_cast<int>(what.size()), what.data()),
                        error.code().value());
  }
  return Status::ok();
}

}  // namespace tutti
