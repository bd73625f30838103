// Status and Result<T>: how functions inside tutti report failure.
//
// A Status is a code. A failure has one sentence: what happened, where (rank, peer, operation), the value,
// what to do. Success costs one pointer compare and no allocation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// The codes of tutti_result_t, with equal values (src/api checks this by static_assert).
enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kInvalidUsage = 2,
  kSystemError = 3,
  kOutOfMemory = 4,
  kInternal = 5,
  kUnsupported = 6,
  kPeerLost = 7,
  kTimeout = 8,
  kMismatch = 9,
  kAborted = 10,
  kVersionMismatch = 11,
  kInProgress = 12,
};

/// Fixed English name of a code, e.g. "peer lost".
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text);

  static Status ok() { return {}; }
  bool is_ok() const { return !failure_; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return failure_ ? failure_->code : Code::kOk; }
  /// Empty when ok.
  std::string_view text() const { return failure_ ? std::string_view(failure_->text) : std::string_view(); }

 private:
  struct Failure {
    Code code;
    std::string text;
  };
  // shared_ptr: each operation that a failed communicator refuses gets a copy of the Status.
  std::shared_ptr<const Failure> failure_;
};

/// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}            // NOLINT: implicit by design
  Result(Status failure) : status_(std::move(failure)) {}  // NOLINT: implicit by design

  bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

/// printf-style text, for messages only.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

/// Makes "1, 2" of "1" and "2".
void add_to_list(std::string& list, std::string_view item);

/// The current exception as a failure. Errors: kOutOfMemory, or kInternal with the exception's text.
Status caught() noexcept;

/// Returns what `body` returns. If `body` throws, returns the exception as a failure. Use where no exception
/// may leave.
template <class Body>
Status contained(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return caught();
  }
}

/// The status that `make` returns; `ready` if memory for its text is short.
template <class Make>
Status made_or(const Status& ready, Make&& make) noexcept {
  try {
    return make();
  } catch (...) {
    return ready;
  }
}

/// A failure that names errno: "what: strerror (errno N)". Where a limit of the process or the host is the
/// cause, the text names the limit and how to raise it.
Status system_error(std::string_view what, int error_number);

/// For a call of the C interface.
inline Status null_argument(const char* name) {
  return {Code::kInvalidArgument, format("argument %s is NULL", name)};
}

}  // namespace tutti

/// The tree's only control-flow macro: returns the Status from the function if the Status is a failure.
#define TUTTI_TRY(expression)                                          \
  do {                                                                 \
    if (auto status_ = (expression); !status_.is_ok()) return status_; \
  } while (false)
