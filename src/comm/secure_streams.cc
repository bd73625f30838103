#include "comm/secure_streams.h"

#include <poll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/clock.h"

namespace tutti {

Result<std::unique_ptr<SecureStreams>> SecureStreams::create(const SecureOptions& options) {
  std::unique_ptr<SecureStreams> streams(new SecureStreams(options));
  auto context = tcp::TlsContext::create();
  TUTTI_TRY(context.status());
  streams->context_ = std::move(*context);
  return streams;
}

Result<std::unique_ptr<tcp::Stream>> SecureStreams::wrap(uint32_t peer, uint32_t channel,
                                                         std::unique_ptr<tcp::Stream> inner) {
  const uint32_t lower = std::min(options_.rank, peer);
  const uint32_t upper = std::max(options_.rank, peer);
  const std::string label = format("tutti tls %u %u %u", lower, upper, channel);
  auto stream = tcp::TlsStream::open(context_, std::move(inner),
                                     {.key = authenticate(options_.key, std::as_bytes(std::span(label))),
                                      .is_client = options_.rank == lower});
  TUTTI_TRY(stream.status());
  pending_.push_back({peer, stream->get()});
  return std::unique_ptr<tcp::Stream>(std::move(*stream));
}

Status SecureStreams::shake_hands() {
  while (!pending_.empty()) {
    TUTTI_TRY(advance());
    if (pending_.empty()) break;
    const uint64_t now = now_ns();
    if (now >= options_.deadline_ns) return late();
    std::vector<pollfd> polls = {{.fd = options_.bootstrap_fd, .events = POLLIN, .revents = 0}};
    for (const Pending& one : pending_) {
      polls.push_back({.fd = one.stream->descriptor(), .events = one.stream->awaited_events(), .revents = 0});
    }
    const uint64_t left_ms = std::min<uint64_t>((options_.deadline_ns - now) / 1'000'000 + 1, 60'000);
    poll(polls.data(), polls.size(), static_cast<int>(left_ms));  // an early return only means an early look
    TUTTI_TRY(options_.check());
  }
  return Status::ok();
}

/// All handshakes, as far as they go now.
Status SecureStreams::advance() {
  Status failure;
  std::erase_if(pending_, [&](const Pending& one) {
    const auto done = one.stream->shake_hands();
    if (!done && failure) {
      failure = Status(done.status().code(), format("rank %u cannot talk to rank %u: %s", options_.rank,
                                                    one.peer, std::string(done.status().text()).c_str()));
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
                                 options_.rank, who.c_str())};
}

}  // namespace tutti
