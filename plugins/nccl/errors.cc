#include "plugins/nccl/errors.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/file_descriptor.h"
#include "core/kept_by_thread.h"

namespace tutti::nccl {
namespace {

struct LastError {
  std::mutex mutex;
  ErrorText error;
};

/// Never destroyed: a thread may call during exit.
LastError& last_error_of_process() {
  static auto* kept = new LastError;
  return *kept;
}

ErrorText& thread_error() {
  return KeptByThread<ErrorText>::get();
}

/// Names in tutti's texts, and the names that an NCCL program knows. If one name contains another, the longer
/// comes first.
constexpr std::array<std::pair<std::string_view, std::string_view>, 26> kWords{{
    {"called tutti_comm_abort", "called ncclCommAbort or ncclCommRevoke"},
    {"tutti_comm_async_error", "ncclCommGetAsyncError"},
    {"tutti_comm_shrink", "ncclCommShrink"},
    {"tutti_comm_abort", "ncclCommAbort"},
    {"tutti_comm_split", "ncclCommSplit"},
    {"comm_split()", "ncclCommSplit or ncclCommGrow"},
    {"tutti_comm_grow", "ncclCommGrow"},
    {"tutti_get_unique_id", "ncclGetUniqueId"},
    {"tutti_group_start", "ncclGroupStart"},
    {"tutti_group_end", "ncclGroupEnd"},
    {"tutti_mem_alloc", "ncclMemAlloc"},
    {"tutti_mem_free", "ncclMemFree"},
    {"tutti_memory_register", "ncclCommWindowRegister"},
    {"tutti_memory_deregister", "ncclCommWindowDeregister"},
    {"tutti_send", "ncclSend"},
    {"tutti_recv", "ncclRecv"},
    {"argument send is", "argument sendbuff is"},
    {"argument recv is", "argument recvbuff is"},
    {"argument rank_count", "argument nranks"},
    {"argument exclude_count", "argument excludeRanksCount"},
    {"argument exclude", "argument excludeRanksList"},
    {"argument memory", "argument win"},
    {"argument pointer", "argument ptr"},
    {"count, type and tag", "count and type"},
    {" with tag 0", ""},
    {"count or tag", "count"},
}};

/// Replaces tutti's names by NCCL's.
std::string in_words_of_nccl(std::string text) {
  for (const auto& [ours, theirs] : kWords) {
    for (size_t at = text.find(ours); at != std::string::npos; at = text.find(ours, at + theirs.size()))
      text.replace(at, ours.size(), theirs);
  }
  return text;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  const std::string text = name.data();
  return text.substr(0, text.find('.'));
}

/// Replaces %h and %p.
std::string log_path(const std::string& pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h' || next == 'p') {
      path += next == 'h' ? host_name() : std::to_string(getpid());
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

/// Standard output, or the file of NCCL_DEBUG_FILE if it can be opened. Never closed.
std::FILE* log_stream() {
  static std::FILE* stream = [] {
    const std::string& pattern = settings().log_file;
    constexpr int kHow = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    const int fd = pattern.empty() ? -1 : above_standard_streams(open(log_path(pattern).c_str(), kHow, 0666));
    std::FILE* file = fd < 0 ? nullptr : fdopen(fd, "w");
    return file != nullptr ? file : stdout;
  }();
  return stream;
}

}  // namespace

ncclResult_t result_of(Code code) {
  switch (code) {
    case Code::kOk: return ncclSuccess;
    case Code::kInvalidArgument: return ncclInvalidArgument;
    case Code::kInvalidUsage:
    case Code::kUnsupported:
    case Code::kMismatch:
    case Code::kVersionMismatch: return ncclInvalidUsage;
    case Code::kSystemError:
    case Code::kOutOfMemory: return ncclSystemError;
    case Code::kPeerLost:
    case Code::kTimeout:
    case Code::kAborted: return ncclRemoteError;
    case Code::kInProgress: return ncclInProgress;
    case Code::kInternal: break;
  }
  return ncclInternalError;
}

Status status_of(tutti_result_t result) {
  if (result == TUTTI_SUCCESS) [[likely]]
    return Status::ok();
  return {static_cast<Code>(result), tutti_last_error()};
}

Status not_implemented(const char* what) {
  return {Code::kUnsupported, format("%s in this version of tutti", what)};
}

ncclResult_t report(const char* call, const Status& why) noexcept {
  if (why.code() == Code::kInProgress) return ncclInProgress;
  try {
    thread_error() = numbered(std::string(call) + ": " + std::string(why.text()));
    {
      LastError& last = last_error_of_process();
      const std::scoped_lock lock(last.mutex);
      last.error = thread_error();
    }
    log(LogLevel::kWarn, "NCCL WARN " + thread_error().text);
  } catch (...) {
    // Without memory for the text, the code still tells the error.
    return result_of(why.code());
  }
  return result_of(why.code());
}

ErrorText numbered(std::string text) {
  static std::atomic<uint64_t> errors{0};
  return {errors.fetch_add(1, std::memory_order_relaxed) + 1, in_words_of_nccl(std::move(text))};
}

ErrorText last_error() {
  LastError& last = last_error_of_process();
  const std::scoped_lock lock(last.mutex);
  return last.error;
}

const ErrorText& last_error_of_thread() {
  return thread_error();
}

void log(LogLevel level, const std::string& text) noexcept {
  if (level > settings().log_level) return;
  try {
    log_always(text);
  } catch (...) {
    // A log line that cannot be written is no error.
    return;
  }
}

void log_always(const std::string& text) {
  const std::string line =
      format("%s:%d:%ld %s\n", host_name().c_str(), getpid(), syscall(SYS_gettid), text.c_str());
  std::fputs(line.c_str(), log_stream());
  std::fflush(log_stream());
}

}  // namespace tutti::nccl
