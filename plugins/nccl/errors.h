// Errors and log: the only way from an exported call into the plugin and back.
//
// Inside, failures are Status; here they become ncclResult_t. The process keeps the text of the last error
// for ncclGetLastError(NULL), which programs call from any thread. Each communicator keeps its own text.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "plugins/nccl/nccl.h"
#include "plugins/nccl/settings.h"
#include "tutti/tutti.h"

namespace tutti::nccl {

/// NCCL's code for a tutti code.
ncclResult_t result_of(Code code);

/// kInProgress is no failure.
inline bool has_failed(const Status& status) {
  return !status.is_ok() && status.code() != Code::kInProgress;
}

/// The result of a call of the C interface, with its text.
Status status_of(tutti_result_t result);

/// The error of a call that is not implemented. `what` is a clause: "windows are not implemented".
Status not_implemented(const char* what);

/// Keeps `why` as the last error, prefixed by the call's name, writes it to the log and returns NCCL's code.
/// kInProgress is no failure: only its code is returned.
ncclResult_t report(const char* call, const Status& why) noexcept;

/// An error's text, in NCCL's words. A later error has a larger number. 0: no error.
struct ErrorText {
  uint64_t number = 0;
  std::string text;
};
ErrorText numbered(std::string text);

/// The last error of any thread, and the last error of the calling thread.
ErrorText last_error();
const ErrorText& last_error_of_thread();

/// Writes a line if NCCL_DEBUG asks for `level`.
void log(LogLevel level, const std::string& text) noexcept;
/// Writes a line, whatever NCCL_DEBUG says.
void log_always(const std::string& text);

/// Runs the body of one exported call: catches every exception, maps the status to a code, keeps the text.
template <class Body>
ncclResult_t guarded(const char* call, Body&& body) noexcept {
  const Status status = contained(body);
  if (status.is_ok()) [[likely]]
    return ncclSuccess;
  return report(call, status);
}

}  // namespace tutti::nccl

/// Opens the definition of an exported call. `pNAME` is the function; `NAME` is a weak alias of it. So a tool
/// may define NAME itself and call pNAME.
#define TUTTI_NCCL_CALL(type, name, ...)                                     \
  extern "C" type name(__VA_ARGS__) __attribute__((weak, alias("p" #name))); \
  extern "C" type p##name(__VA_ARGS__)
