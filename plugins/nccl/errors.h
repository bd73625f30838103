// Errors and log: the one way from an exported call into the plugin and back.
//
// Inside, failures are Status, as everywhere in tutti; here they become ncclResult_t. The text of the last
// one is kept for the process (ncclGetLastError(NULL), which programs ask from any thread) and by each
// communicator.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "plugins/nccl/nccl.h"
#include "plugins/nccl/settings.h"
#include "tutti/tutti.h"

namespace tutti::nccl {

/// NCCL's code for ours.
ncclResult_t result_of(Code code);

/// kInProgress is no failure.
inline bool has_failed(const Status& status) {
  return !status.is_ok() && status.code() != Code::kInProgress;
}

/// What a call of the C interface returned, with its text.
Status status_of(tutti_result_t result);

/// A call that exists by name only. `what` is a clause: "windows are not implemented".
Status not_implemented(const char* what);

/// Keeps `why` as the last error, prefixed by the call's name, writes it to the log and gives its
/// code. kInProgress is no failure: only its code is given.
ncclResult_t report(const char* call, const Status& why) noexcept;

/// An error's text, in NCCL's words; a larger number is a later error. 0: there was none.
struct ErrorText {
  uint64_t number = 0;
  std::string text;
};
ErrorText numbered(std::string text);

/// The last error of all threads, and that of the calling one.
ErrorText last_error();
const ErrorText& last_error_of_thread();

/// Writes a line where NCCL_DEBUG asks for `level`.
void log(LogLevel level, const std::string& text) noexcept;
/// Writes a line, whatever NCCL_DEBUG says.
void log_always(const std::string& text);

/// Runs the body of one exported call: catches everything, maps to a code, keeps the text.
template <class Body>
ncclResult_t guarded(const char* call, Body&& body) noexcept {
  const Status status = contained(body);
  if (status.is_ok()) [[likely]]
    return ncclSuccess;
  return report(call, status);
}

}  // namespace tutti::nccl

/// Opens the definition of an exported call: `pNAME` is the function, `NAME` a weak second name of it, so
/// that a tool may define NAME itself and call pNAME.
#define TUTTI_NCCL_CALL(type, name, ...)                                     \
  extern "C" type name(__VA_ARGS__) __attribute__((weak, alias("p" #name))); \
  extern "C" type p##name(__VA_ARGS__)
