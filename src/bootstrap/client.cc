// A rank's side of the bootstrap.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "bootstrap/bootstrap_messages.h"
#include "bootstrap/server.h"
#include "core/clock.h"
#include "core/version.h"

namespace tutti {
namespace {

using bootstrap::Header;
using bootstrap::Join;
using bootstrap::Kind;

std::span<const std::byte> as_bytes(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::string body_text(const LocalMessage& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()) + sizeof(Header),
          message.bytes.size() - sizeof(Header)};
}

/// What a message of kind kFail says.
Status failure_in(const LocalMessage& message) {
  Header header;
  std::memcpy(&header, message.bytes.data(), sizeof(header));
  return {static_cast<Code>(header.code), body_text(message)};
}

/// The server has closed its side of the connection without a word.
Status maker_lost(int connection) {
  return {Code::kPeerLost,
          format("process %d, which made the unique id, has ended during set-up: its ranks are lost",
                 local_peer(connection))};
}

}  // namespace

Result<BootstrapClient> BootstrapClient::join(const BootstrapOptions& self, uint64_t connect_deadline_ns) {
  const auto check = [&self] {
    return self.stop != nullptr && self.stop->is_stopped() ? stopped_status() : Status::ok();
  };
  auto connection = local_connect(local_name_of(self.id), connect_deadline_ns, check);
  TUTTI_TRY(connection.status());
  Join hello;
  hello.version = kVersionCode;
  hello.rank_count = self.rank_count;
  hello.rank = self.rank;
  hello.key = self.id.key;
  if (const Status sent = local_send(connection->get(), as_bytes(hello), {}, self.deadline_ns); !sent) {
    // A server that has closed has often said why first.
    const auto message = local_receive(connection->get(), self.deadline_ns);
    if (message && message->bytes.size() > sizeof(Header)) return failure_in(*message);
    return sent.code() == Code::kPeerLost ? maker_lost(connection->get()) : sent;
  }
  if (self.stop != nullptr && !self.stop->arm(connection->get())) {
    return stopped_status();
  }
  return BootstrapClient(std::move(*connection), self.rank_count, self.deadline_ns, self.stop);
}

/// The next message of the server that is no failure. Errors: as all_gather; kTimeout: none came.
Result<LocalMessage> BootstrapClient::receive(uint64_t deadline_ns) {
  if (!failure_.is_ok()) return failure_;
  auto message = local_receive(connection_.get(), deadline_ns);
  if (!message) {
    const Code code = message.status().code();
    if (code == Code::kTimeout) return message.status();
    failure_ = code == Code::kPeerLost ? maker_lost(connection_.get()) : message.status();
    return failure_;
  }
  if (message->bytes.size() < sizeof(Header)) return failure_ = maker_lost(connection_.get());
  Header header;
  std::memcpy(&header, message->bytes.data(), sizeof(header));
  if (header.kind == Kind::kFail) return failure_ = failure_in(*message);
  if (header.kind == Kind::kElsewhere) {
    elsewhere_ = true;
    return Status(Code::kInvalidUsage, "the ranks are on several hosts");
  }
  return message;
}

Status BootstrapClient::check() {
  const Status received = receive(0).status();
  return received.code() == Code::kTimeout ? Status::ok() : received;
}

Result<Blobs> BootstrapClient::all_gather(std::span<const std::byte> blob, bool last) {
  std::vector<std::byte> bytes(sizeof(Header) + blob.size());
  Header header;
  header.kind = Kind::kGather;
  header.last = last ? 1 : 0;
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::copy(blob.begin(), blob.end(), bytes.begin() + sizeof(header));
  // A server that has closed has often said why first: what it says is believed, not the send.
  (void)local_send(connection_.get(), bytes, {}, deadline_ns_);
  Blobs all(rank_count_);
  for (uint32_t received = 0; received < rank_count_;) {
    const auto message = receive(deadline_ns_);
    if (!message) {
      if (message.status().code() == Code::kTimeout && failure_.is_ok()) {
        // The others get the same verdict, not that this rank has gone.
        failure_ = absent_ranks();
        fail(failure_);
        return failure_;
      }
      return message.status();
    }
    Header reply;
    std::memcpy(&reply, message->bytes.data(), sizeof(reply));
    const bool fits = reply.kind == Kind::kGather && reply.first_rank == received && reply.count > 0 &&
                      reply.count <= rank_count_ - received &&
                      message->bytes.size() == sizeof(reply) + size_t{reply.count} * reply.blob_bytes;
    if (!fits) return Status(Code::kInternal, "the server of the unique id sent an unexpected message");
    for (uint32_t i = 0; i < reply.count; ++i) {
      const auto start = message->bytes.begin() + sizeof(reply) + static_cast<long>(i) * reply.blob_bytes;
      all[received + i].assign(start, start + reply.blob_bytes);
    }
    received += reply.count;
  }
  return all;
}

/// The error of a set-up whose deadline has passed: asks the server who is missing. What has come in the
/// meantime is read first, as a failure, which is the error then.
Status BootstrapClient::absent_ranks() {
  const Header question{.kind = Kind::kAbsent};
  const uint64_t patience_ns = deadline_after_ms(1000);
  (void)local_send(connection_.get(), as_bytes(question), {}, patience_ns);
  const std::string late = "set-up was not finished before its deadline";
  for (;;) {
    const auto answer = receive(patience_ns);
    if (!failure_.is_ok()) return failure_;
    if (!answer) return {Code::kTimeout, late};
    Header header;
    std::memcpy(&header, answer->bytes.data(), sizeof(header));
    if (header.kind != Kind::kAbsent) continue;
    const std::string who = body_text(*answer);
    return {Code::kTimeout, who.empty() ? late + ", though all ranks have come"
                                        : format("%s: %s", late.c_str(), who.c_str())};
  }
}

void BootstrapClient::fail(const Status& why) {
  const std::string_view text = why.text();
  std::vector<std::byte> bytes(sizeof(Header) + text.size());
  const Header header{.kind = Kind::kFail, .code = static_cast<int32_t>(why.code())};
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), text.data(), text.size());
  // Nobody is left to tell if this fails.
  (void)local_send(connection_.get(), bytes, {}, deadline_after_ms(1000));
}

}  // namespace tutti
