#include "transports/tcp/secure_streams.h"

#include <poll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/clock.h"

namespace tutti::tcp {

Result<std::unique_ptr<SecureStreams>> SecureStreams::create(uint32_t rank, DeriveKey derive_key) {
  std::unique_ptr<SecureStreams> streams(new SecureStreams(rank, std::move(derive_key)));
  auto context = TlsContext::create();
  TUTTI_TRY(context.status());
  streams->context_ = std::move(*context);
  return streams;
}

Result<std::unique_ptr<Stream>> SecureStreams::wrap(uint32_t peer, uint32_t channel,
                                                    std::unique_ptr<Stream> inner) {
  const uint32_t lower = std::min(rank_, peer);
  const uint32_t upper = std::max(rank_, peer);
  const std::string label = format("tutti tls %u %u %u", lower, upper, channel);
  auto stream =
      TlsStream::open(context_, std::move(inner), {.key = derive_key_(label), .is_client = rank_ == lower});
  TUTTI_TRY(stream.status());
  return std::unique_ptr<Stream>(std::move(*stream));
}

Status SecureStreams::shake_hands(const SetUpWatch& watch) {
  while (!pending_.empty()) {
    TUTTI_TRY(advance());
    if (pending_.empty()) break;
    const uint64_t now = now_ns();
    if (now >= watch.deadline_ns) return late();
    std::vector<pollfd> polls = {{.fd = watch.descriptor, .events = POLLIN, .revents = 0}};
    for (const Pending& one : pending_) {
      polls.push_back({.fd = one.stream->descriptor(), .events = one.stream->awaited_events(), .revents = 0});
    }
    const uint64_t left_ms = std::min<uint64_t>((watch.deadline_ns - now) / 1'000'000 + 1, 60'000);
    poll(polls.data(), polls.size(), static_cast<int>(left_ms));  // returning early does no harm
    TUTTI_TRY(watch.check());
  }
  return Status::ok();
}

Status SecureStreams::advance() {
  Status failure;
  std::erase_if(pending_, [&](const Pending& one) {
    const auto done = one.stream->shake_hands();
    if (!done && failure) {
      failure = Status(done.status().code(), format("rank %u cannot talk to rank %u: %s", rank_, one.peer,
                                                    std::string(done.status().text()).c_str()));
    }
    return done && *done;
  });
  return failure;
}

Status SecureStreams::late() const {
  std::string who;
  for (const Pending& one : pending_) add_to_list(who, std::to_string(one.peer));
  return {Code::kTimeout, format("rank %u: the TLS handshakes with these ranks were not finished before the "
                                 "deadline: %s",
                                 rank_, who.c_str())};
}

}  // namespace tutti::tcp
