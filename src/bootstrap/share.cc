#include "bootstrap/share.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "bootstrap/client.h"
#include "bootstrap/pmi.h"
#include "core/clock.h"
#include "core/file_descriptor.h"
#include "net/connector.h"
#include "net/event_loop.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

/// Sleeps between two looks at a file, or at a socket where nobody listens yet: these have no event.
void pause_briefly() {
  const timespec period{0, 2'000'000};
  nanosleep(&period, nullptr);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += format("%02x", std::to_integer<unsigned>(byte));
  return text;
}

Status from_hex(const std::string& text, IdBytes id) {
  bool legal = text.size() == 2 * id.size();
  for (size_t i = 0; i < id.size() && legal; ++i) {
    unsigned value = 0;
    const char* end = text.data() + 2 * i + 2;
    legal = std::from_chars(end - 2, end, value, 16).ptr == end;
    id[i] = static_cast<std::byte>(value);
  }
  if (legal) return Status::ok();
  return {Code::kMismatch, "the launcher's process manager delivered no unique id"};
}

/// Readers see all of the file or nothing. link() fails if the name exists.
Status publish_file(const std::string& path, std::span<const std::byte> id) {
  const std::string aside = path + "." + std::to_string(getpid());
  FileDescriptor file(open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return system_error("creating " + aside, errno);
  const Status written =
      write_all(file.get(), id) ? Status::ok() : system_error("writing the unique id", errno);
  const int link_error = written && link(aside.c_str(), path.c_str()) != 0 ? errno : 0;
  unlink(aside.c_str());
  TUTTI_TRY(written);
  if (link_error == EEXIST) {
    return {Code::kInvalidUsage,
            "the file " + path + " of the unique id exists already: remove it, it belongs to an earlier run"};
  }
  return link_error == 0 ? Status::ok() : system_error("creating " + path, link_error);
}

/// Looks for the process that serves the id, on this host and at the id's addresses. Errors: kPeerLost, with
/// the reason of each address.
Status check_served(const UniqueId& id, uint64_t deadline_ns) {
  // The time that a slow rank may take to greet.
  constexpr uint64_t kPatienceNs = 10'000'000'000;
  const uint64_t late_ns = std::min(deadline_ns, now_ns() + kPatienceNs);
  if (local_connect(local_name_of(id), late_ns, {}, LocalKind::kStream)) return Status::ok();
  auto address = bootstrap_address_of(id);
  if (!address) return {Code::kPeerLost, "it is for this host only, and no process serves it here"};
  auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  std::optional<Status> end;
  ConnectorOptions dial;
  dial.who = "its maker";
  dial.endpoints = address->endpoints;
  dial.claim = {.purpose = Purpose::kRendezvous, .from = 0, .to = kBootstrapServer, .channel = 0};
  dial.credentials = address->credentials;
  dial.deadline_ns = std::min(deadline_ns, now_ns() + kPatienceNs);
  const auto connector = Connector::start(
      **loop, std::move(dial), [&end](const Result<FileDescriptor>& socket) { end = socket.status(); });
  (*loop)->run_until([&end] { return end.has_value(); });
  return *end;
}

Status check_shared(const std::string& path, IdBytes bytes, uint64_t deadline_ns) {
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), bytes.data(), bytes.size());
  const Status is_one = check_unique_id(id);
  if (is_one.code() == Code::kInvalidArgument) {
    return {Code::kInvalidUsage, "the file " + path + " does not hold a unique id"};
  }
  TUTTI_TRY(is_one);
  const Status served = check_served(id, deadline_ns);
  if (served) return served;
  return {Code::kInvalidUsage, "nobody serves the unique id in the file " + path +
                                   " any more: it belongs to an earlier run, or this run has failed on the "
                                   "rank that made it; remove the file before the ranks start (" +
                                   std::string(served.text()) + ")"};
}

Status await_file(const std::string& path, IdBytes id, uint64_t deadline_ns) {
  for (;;) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.is_open()) {
      const auto done = read_all(file.get(), id);
      if (!done) return system_error("reading the unique id", errno);
      if (*done == id.size()) return check_shared(path, id, deadline_ns);
      return {Code::kInvalidUsage, "the file " + path + " does not hold a unique id"};
    }
    if (errno != ENOENT) return system_error("opening " + path, errno);
    if (now_ns() >= deadline_ns) {
      return {Code::kTimeout,
              "rank 0 did not write the file " + path + " of the unique id before the deadline"};
    }
    pause_briefly();
  }
}

/// What a rank says at rank 0's socket. Both are processes of one host.
struct Asker {
  uint32_t rank;
  uint32_t round;
};

/// Rank 0 of one round at its socket: gives each rank that asks in this round the id. A rank that is already
/// in a later round is hung up on, and asks again.
class RoundServer {
 public:
  RoundServer(const Sharer& self, IdBytes id, uint64_t deadline_ns)
      : self_(self), id_(id), deadline_ns_(deadline_ns) {}

  Status serve(const FileDescriptor& listener) {
    auto loop = EventLoop::create();
    TUTTI_TRY(loop.status());
    bool is_late = false;
    (*loop)->call_at(deadline_ns_, [&is_late] { is_late = true; });
    TUTTI_TRY((*loop)->watch(listener.get(), EPOLLIN, [&](uint32_t) { admit(**loop, listener); }));
    (*loop)->run_until([&] { return is_late || absent() == 0; });
    if (absent() == 0) return Status::ok();
    return {Code::kTimeout,
            format("of %u other ranks of this host, %zu have not asked for the unique id before the "
                   "deadline",
                   self_.rank_count - 1, absent())};
  }

 private:
  size_t absent() const { return self_.rank_count - 1 - served_.size(); }

  void admit(EventLoop& loop, const FileDescriptor& listener) {
    FileDescriptor socket = local_accept(listener);
    if (!socket.is_open()) return pause_briefly();  // no free descriptor, or a stranger
    const int fd = socket.get();
    // Several may be connected: a process that was stopped before it asked keeps nobody waiting.
    if (!loop.watch(fd, EPOLLIN, [this, &loop, fd](uint32_t) { answer(loop, fd); })) return;
    asking_.emplace(fd, std::move(socket));
  }

  void answer(EventLoop& loop, int fd) {
    const auto message = local_receive(fd, 0);
    Asker asker{};
    if (message && message->bytes.size() == sizeof(asker)) {
      std::memcpy(&asker, message->bytes.data(), sizeof(asker));
      const bool is_ours = asker.round == self_.round && asker.rank > 0 && asker.rank < self_.rank_count;
      if (is_ours && local_send(fd, id_, {}, deadline_ns_)) served_.insert(asker.rank);
    }
    loop.forget(fd);
    asking_.erase(fd);
  }

  const Sharer self_;
  const IdBytes id_;
  const uint64_t deadline_ns_;
  std::map<int, FileDescriptor> asking_;
  std::set<uint32_t> served_;
};

Status hand_over(const std::string& name, const Sharer& self, IdBytes id, uint64_t deadline_ns) {
  const auto listener = local_listen(name);
  if (listener.status().code() == Code::kInvalidUsage) {
    return {Code::kInvalidUsage, "another job of this host uses the Unix socket @" + name +
                                     " now: set TUTTI_ID_FILE to a file that only this job uses"};
  }
  TUTTI_TRY(listener.status());
  return RoundServer(self, id, deadline_ns).serve(*listener);
}

Status fetch(const std::string& name, const Sharer& self, IdBytes id, uint64_t deadline_ns) {
  const Asker asker{.rank = self.rank, .round = self.round};
  for (;;) {
    const auto socket = local_connect(name, deadline_ns);
    const Code code = socket.status().code();
    if (code == Code::kInvalidUsage) {
      return {code,
              std::string(socket.status().text()) + ": set TUTTI_ID_FILE to a file that only this job uses"};
    }
    if (code != Code::kPeerLost && code != Code::kTimeout) TUTTI_TRY(socket.status());
    if (socket && local_send(socket->get(), std::as_bytes(std::span(&asker, 1)), {}, deadline_ns)) {
      const auto message = local_receive(socket->get(), deadline_ns);
      if (message && message->bytes.size() == id.size()) {
        std::copy(message->bytes.begin(), message->bytes.end(), id.begin());
        return Status::ok();
      }
    }
    if (now_ns() >= deadline_ns) {
      return {Code::kTimeout,
              "rank 0 did not offer the unique id at the Unix socket @" + name + " before the deadline"};
    }
    pause_briefly();
  }
}

/// Rank 0 needs no text. For others, it is an id or an error.
Status take_text(const Result<std::string>& text, uint32_t rank, IdBytes id) {
  TUTTI_TRY(text.status());
  return rank == 0 ? Status::ok() : from_hex(*text, id);
}

}  // namespace

Status share_by_store(const KeyValueStore& store, const std::string& key, uint32_t rank, IdBytes id,
                      uint64_t deadline_ns) {
  if (rank == 0) return store.set(key, id);
  auto value = store.get(key, deadline_ns);
  TUTTI_TRY(value.status());
  if (value->size() != id.size()) {
    return {Code::kMismatch, format("the key %s of the store holds %zu bytes; a unique id has %zu",
                                    key.c_str(), value->size(), id.size())};
  }
  std::copy(value->begin(), value->end(), id.begin());
  return Status::ok();
}

Status share_by_url(const std::string& url, uint32_t rank, uint32_t rank_count, const Config& config,
                    IdBytes id, uint64_t deadline_ns) {
  auto address = bootstrap_address_of_url(url, config.key, rank == 0);
  TUTTI_TRY(address.status());
  BootstrapClientOptions options;
  options.rank_count = rank_count;
  options.rank = rank;
  options.deadline_ns = deadline_ns;
  options.listen = {config.socket_ifname, config.port_first, config.port_last};
  auto client = BootstrapClient::join(std::move(*address), options);
  TUTTI_TRY(client.status());
  const auto all = client->all_gather(id, true);
  TUTTI_TRY(all.status());
  const auto& given = (*all)[0];
  if (given.size() != id.size()) {
    return {Code::kMismatch,
            format("rank 0 sent %zu bytes to %s; a unique id has %zu", given.size(), url.c_str(), id.size())};
  }
  std::copy(given.begin(), given.end(), id.begin());
  return Status::ok();
}

Status share_by_file(const std::string& path, uint32_t rank, IdBytes id, uint64_t deadline_ns) {
  return rank == 0 ? publish_file(path, id) : await_file(path, id, deadline_ns);
}

void forget_file(const std::string& path) {
  unlink(path.c_str());
}

std::string id_file_of_round(const std::string& path, uint32_t round) {
  return round == 0 ? path : path + "-" + std::to_string(uint64_t{round} + 1);
}

Status share_on_host(const std::string& name, const Sharer& sharer, IdBytes id, uint64_t deadline_ns) {
  return sharer.rank == 0 ? hand_over(name, sharer, id, deadline_ns) : fetch(name, sharer, id, deadline_ns);
}

Status share_by_launcher(const LaunchContext& context, uint32_t round, const Environment& environment,
                         const Config& config, IdBytes id, uint64_t deadline_ns) {
  if (context.rank_count == 1) return Status::ok();
  if (const char* path = environment("TUTTI_ID_FILE"); path != nullptr && *path != '\0') {
    return share_by_file(id_file_of_round(path, round), context.rank, id, deadline_ns);
  }
  const std::string value = context.rank == 0 ? hex(id) : "";
  if (context.channel == LaunchChannel::kPmix) {
    const auto text = share_by_pmix(context.rank, round, value, deadline_ns);
    // All ranks of a job find the same library, or none.
    if (text.status().code() != Code::kUnsupported) return take_text(text, context.rank, id);
  }
  const bool is_used_up = context.channel == LaunchChannel::kPmi1 && round > 0;
  if (const char* text = environment("PMI_FD");
      context.channel == LaunchChannel::kPmi1 && !is_used_up && text != nullptr) {
    const std::string_view digits = text;
    int fd = -1;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), fd);
    if (error != std::errc() || stop != digits.data() + digits.size() || fd < 0) {
      return {Code::kInvalidUsage,
              format("environment variable PMI_FD is \"%s\"; it must be a descriptor", text)};
    }
    return take_text(share_by_pmi1(fd, context.rank, value, deadline_ns), context.rank, id);
  }
  if (context.is_one_host() && !context.job.empty()) {
    // A digest: these names are short, and every user of the host can list them.
    const Credentials name = credentials_from_text(context.job, context.launcher);
    const Sharer sharer{.rank = context.rank, .rank_count = context.rank_count, .round = round};
    return share_on_host("tutti-job-" + hex(name.tag), sharer, id, deadline_ns);
  }
  if (context.rendezvous && !config.key.empty()) {
    return share_by_url("tutti://" + context.rendezvous->text(), context.rank, context.rank_count, config, id,
                        deadline_ns);
  }
  // If the key is missing because the settings were refused, that refusal is the error.
  if (config.key.empty()) TUTTI_TRY(read_config(environment).status());
  return {Code::kInvalidUsage,
          format("%s started this process as rank %u of %u, but gives the ranks no way to find each other%s: "
                 "set %s, or "
                 "TUTTI_ID_FILE to a file that all ranks can reach",
                 context.launcher.c_str(), context.rank, context.rank_count,
                 is_used_up ? " again (make further communicators with tutti_comm_split)" : "",
                 context.rendezvous
                     ? "TUTTI_KEY to a secret that all ranks have"
                     : "MASTER_ADDR to rank 0's host and TUTTI_KEY to a secret that all ranks have")};
}

}  // namespace tutti
