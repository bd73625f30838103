#include "bootstrap/pmi.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/clock.h"

namespace tutti {
namespace {

constexpr const char* kValueKey = "tutti.bootstrap";
constexpr size_t kLineBytesMax = 4096;

/// A conversation of lines "cmd=NAME key=value ...".
class PmiLines {
 public:
  PmiLines(int fd, uint64_t deadline_ns) : fd_(fd), deadline_ns_(deadline_ns) {}

  /// The answer's command must be `answer`.
  Result<std::string> ask(const std::string& command, const std::string& answer) {
    TUTTI_TRY(write_all(command + "\n"));
    auto line = read_line();
    TUTTI_TRY(line.status());
    const std::string code = field(*line, "rc");
    if (field(*line, "cmd") != answer || (!code.empty() && code != "0")) {
      return Status(Code::kMismatch, format("the process manager at PMI_FD answered \"%s\" to \"%s\"",
                                            line->c_str(), command.c_str()));
    }
    return line;
  }

  /// The value of "key=" in a line; empty if missing.
  static std::string field(const std::string& line, const std::string& key) {
    const std::string mark = key + "=";
    size_t at = 0;
    while (at < line.size()) {
      const size_t end = std::min(line.find(' ', at), line.size());
      if (line.compare(at, mark.size(), mark) == 0)
        return line.substr(at + mark.size(), end - at - mark.size());
      at = end + 1;
    }
    return "";
  }

 private:
  Status wait(short events) {
    for (;;) {
      const uint64_t now = now_ns();
      if (now >= deadline_ns_) {
        return {Code::kTimeout,
                "the other ranks did not come to the process manager (PMI_FD) before the deadline"};
      }
      pollfd entry{fd_, events, 0};
      const uint64_t left_ms = std::min<uint64_t>((deadline_ns_ - now) / 1'000'000 + 1, 60'000);
      if (poll(&entry, 1, static_cast<int>(left_ms)) > 0) return Status::ok();
    }
  }

  Status write_all(std::string_view text) {
    while (!text.empty()) {
      TUTTI_TRY(wait(POLLOUT));
      const ssize_t done = write_some(text);
      if (done < 0 && errno == EPIPE) return gone();
      if (done < 0 && errno != EINTR && errno != EAGAIN) return system_error("writing to PMI_FD", errno);
      if (done > 0) text.remove_prefix(static_cast<size_t>(done));
    }
    return Status::ok();
  }

  /// Raises no SIGPIPE where it can be avoided.
  ssize_t write_some(std::string_view text) const {
    const ssize_t done = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
    return done < 0 && errno == ENOTSOCK ? write(fd_, text.data(), text.size()) : done;
  }

  static Status gone() { return {Code::kPeerLost, "the process manager at PMI_FD has gone"}; }

  Result<std::string> read_line() {
    std::string line;
    for (;;) {
      TUTTI_TRY(wait(POLLIN));
      char letter = 0;
      const ssize_t got = read(fd_, &letter, 1);
      if (got == 0) return gone();
      if (got < 0 && errno != EINTR && errno != EAGAIN) return system_error("reading from PMI_FD", errno);
      if (got < 0) continue;
      if (letter == '\n') return line;
      if (line.size() == kLineBytesMax)
        return Status(Code::kMismatch, "PMI_FD sends lines that are too long");
      line += letter;
    }
  }

  int fd_;
  uint64_t deadline_ns_;
};

// The part of PMIx's C interface used here, from its standard (version 2 and later):
// https://pmix.github.io/standard. Declared, not included: one build runs with and without the library.
struct PmixProcess {
  std::array<char, 256> name_space;
  uint32_t rank;
};
struct PmixValue {
  uint16_t type;
  union {
    char* string;
    int integer;
    std::array<uint64_t, 3> room;  // the largest member of the standard's union
  } data;
};
struct PmixInfo {
  std::array<char, 512> key;
  uint32_t directives;
  PmixValue value;
};
constexpr uint16_t kPmixString = 3;
constexpr uint16_t kPmixInt = 6;
constexpr uint8_t kPmixGlobal = 3;
constexpr int kPmixTimeout = -24;

struct Pmix {
  int (*init)(PmixProcess*, void*, size_t) = nullptr;
  int (*finalize)(const void*, size_t) = nullptr;
  int (*put)(uint8_t, const char*, PmixValue*) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const PmixProcess*, size_t, const PmixInfo*, size_t) = nullptr;
  int (*get)(const PmixProcess*, const char*, const PmixInfo*, size_t, PmixValue**) = nullptr;
  const char* (*error_string)(int) = nullptr;

  Status check(int code, const char* what) const {
    if (code == 0) return Status::ok();
    if (code == kPmixTimeout) {
      return {Code::kTimeout,
              format("PMIx: %s: the deadline has passed: a rank has not called, or its host's "
                     "server does not answer",
                     what)};
    }
    return {Code::kSystemError, format("PMIx: %s: %s (%d)", what, error_string(code), code)};
  }
};

template <class Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// Never unloaded, because the library leaves thread-local storage behind.
Result<Pmix> load_pmix() {
  void* library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  Pmix pmix;
  const bool complete = library != nullptr && load(library, "PMIx_Init", pmix.init) &&
                        load(library, "PMIx_Finalize", pmix.finalize) &&
                        load(library, "PMIx_Put", pmix.put) && load(library, "PMIx_Commit", pmix.commit) &&
                        load(library, "PMIx_Fence", pmix.fence) && load(library, "PMIx_Get", pmix.get) &&
                        load(library, "PMIx_Error_string", pmix.error_string);
  if (complete) return pmix;
  const char* why = dlerror();
  return Status(Code::kUnsupported, format("the launcher offers PMIx, but its library cannot be loaded: %s",
                                           why != nullptr ? why : "it lacks a function"));
}

/// PMIx counts whole seconds, and takes 0 for no deadline.
PmixInfo time_left(uint64_t deadline_ns) {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  const uint64_t now = now_ns();
  const uint64_t left_s = deadline_ns > now ? (deadline_ns - now + kSecondNs - 1) / kSecondNs : 1;
  PmixInfo info{};
  constexpr std::string_view kName = "pmix.timeout";
  kName.copy(info.key.data(), kName.size());
  info.value.type = kPmixInt;
  info.value.data.integer = static_cast<int>(std::min<uint64_t>(left_s, INT_MAX));
  return info;
}

Result<std::string> exchange(const Pmix& pmix, const PmixProcess& self, uint32_t rank, const std::string& key,
                             const std::string& value, uint64_t deadline_ns) {
  if (rank == 0) {
    std::string copy = value;
    PmixValue entry{};
    entry.type = kPmixString;
    entry.data.string = copy.data();
    TUTTI_TRY(pmix.check(pmix.put(kPmixGlobal, key.c_str(), &entry), "publishing the rendezvous"));
    TUTTI_TRY(pmix.check(pmix.commit(), "publishing the rendezvous"));
  }
  const PmixInfo for_fence = time_left(deadline_ns);
  TUTTI_TRY(pmix.check(pmix.fence(nullptr, 0, &for_fence, 1), "waiting for the other ranks"));
  if (rank == 0) return value;
  PmixProcess root = self;
  root.rank = 0;
  PmixValue* entry = nullptr;
  const PmixInfo for_get = time_left(deadline_ns);
  TUTTI_TRY(pmix.check(pmix.get(&root, key.c_str(), &for_get, 1, &entry), "reading the rendezvous"));
  Result<std::string> got = Status(Code::kMismatch, "PMIx: the rendezvous is no text");
  if (entry->type == kPmixString) {
    got = std::string(entry->data.string);
    std::free(entry->data.string);
  }
  std::free(entry);
  return got;
}

}  // namespace

Result<std::string> share_by_pmi1(int fd, uint32_t rank, const std::string& value, uint64_t deadline_ns) {
  PmiLines manager(fd, deadline_ns);
  TUTTI_TRY(manager.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init").status());
  const auto space = manager.ask("cmd=get_my_kvsname", "my_kvsname");
  TUTTI_TRY(space.status());
  const std::string where = " kvsname=" + PmiLines::field(*space, "kvsname") + " key=" + kValueKey;
  if (rank == 0) TUTTI_TRY(manager.ask("cmd=put" + where + " value=" + value, "put_result").status());
  TUTTI_TRY(manager.ask("cmd=barrier_in", "barrier_out").status());
  std::string got = value;
  if (rank != 0) {
    const auto answer = manager.ask("cmd=get" + where, "get_result");
    TUTTI_TRY(answer.status());
    got = PmiLines::field(*answer, "value");
  }
  // Otherwise the process manager takes the end of this process for a crash.
  TUTTI_TRY(manager.ask("cmd=finalize", "finalize_ack").status());
  return got;
}

Result<std::string> share_by_pmix(uint32_t rank, uint32_t round, const std::string& value,
                                  uint64_t deadline_ns) {
  auto pmix = load_pmix();
  TUTTI_TRY(pmix.status());
  PmixProcess self{};
  TUTTI_TRY(pmix->check(pmix->init(&self, nullptr, 0), "reaching the launcher's server"));
  // A rank may be slow to read while rank 0 is already in the next round.
  const std::string key = kValueKey + (round == 0 ? "" : "-" + std::to_string(round));
  auto result = exchange(*pmix, self, rank, key, value, deadline_ns);
  (void)pmix->finalize(nullptr, 0);
  return result;
}

}  // namespace tutti
