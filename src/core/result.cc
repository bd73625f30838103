// Status texts: names of codes, formatted messages, system errors. See result.h.
#include "core/result.h"

#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

namespace tutti {
namespace {

// Made when the library is loaded, and never destroyed. A copy needs no memory, so copies work when memory is
// short.
const auto* const kOutOfMemory = new Status(Code::kOutOfMemory, "out of memory");
const auto* const kUnknown = new Status(Code::kInternal, "unknown exception");

/// What to do about an error that a limit causes; "" for all others.
std::string remedy(int error_number) {
  rlimit limit{};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    return format(
        ": this process may have %llu open descriptors (RLIMIT_NOFILE): raise the limit (ulimit -n)",
        static_cast<unsigned long long>(limit.rlim_cur));
  }
  if (error_number == ENFILE) return ": this host has no free descriptors: raise fs.file-max (sysctl)";
  if (error_number == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return format(
        ": this process may have %llu bytes of address space (RLIMIT_AS): raise the limit (ulimit -v)",
        static_cast<unsigned long long>(limit.rlim_cur));
  }
  return {};
}

}  // namespace

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk: return "success";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kInvalidUsage: return "invalid usage";
    case Code::kSystemError: return "system error";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kInternal: return "internal error";
    case Code::kUnsupported: return "unsupported";
    case Code::kPeerLost: return "peer lost";
    case Code::kTimeout: return "timeout";
    case Code::kMismatch: return "ranks made different calls";
    case Code::kAborted: return "aborted";
    case Code::kVersionMismatch: return "version mismatch";
    case Code::kInProgress: return "in progress";
  }
  return "unknown result code";
}

Status::Status(Code code, std::string text) {
  if (code != Code::kOk) failure_ = std::make_shared<const Failure>(Failure{code, std::move(text)});
}

std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

void add_to_list(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

Status caught() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return *kOutOfMemory;
  } catch (const std::exception& error) {
    try {
      return {Code::kInternal, error.what()};
    } catch (...) {
      return *kOutOfMemory;
    }
  } catch (...) {
    return *kUnknown;
  }
}

Status system_error(std::string_view what, int error_number) {
  std::array<char, 128> buffer{};
  const char* name = strerror_r(error_number, buffer.data(), buffer.size());
  const Code code = error_number == ENOMEM ? Code::kOutOfMemory : Code::kSystemError;
  return {code, format("%.*s: %s (errno %d)%s", static_cast<int>(what.size()), what.data(), name,
                       error_number, remedy(error_number).c_str())};
}

}  // namespace tutti
