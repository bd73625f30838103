// LoneConnection: a usable UCX connection of rank 0, whose peer, rank 7, is the test.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/engine/raw_links.h"
#include "tests/ucx/scripted_ucx.h"
#include "transports/ucx/ucx_connection.h"

namespace tutti::test {

class LoneConnection {
 public:
  static constexpr RingShape kShape{.slots = 4, .slot_bytes = 2048};
  static constexpr uint32_t kChannels = 2;
  struct Rings {
    RingMemory outgoing{kShape};
    RingMemory incoming{kShape};
    SendLink send = SendLink::at(outgoing.bytes(), kShape);
    RecvLink recv = RecvLink::at(incoming.bytes(), kShape, 0);
    PostedReceive offer = {};
  };

  /// `is_usable`: the peer has said that it can use the connection.
  explicit LoneConnection(bool is_usable = true) : rings(kChannels) {
    std::vector<ChannelRings> channels;
    for (Rings& ring : rings) {
      channels.push_back(
          {.outgoing = ring.outgoing.bytes(), .incoming = ring.incoming.bytes(), .offer = &ring.offer});
    }
    int ends[2] = {-1, -1};
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    peer = FileDescriptor(ends[1]);
    worker_ = std::move(*ucx::Worker::open(ucp.table()));
    connection_ = std::move(*ucx::UcxConnection::make(*worker_, worker_->address(), channels,
                                                      FileDescriptor(ends[0]), {.peer = 7, .shape = kShape}));
    std::array<std::byte, ucx::kHelloBytes> hello{};
    must(::recv(peer.get(), hello.data(), hello.size(), 0) == static_cast<ssize_t>(hello.size()));
    token_ = ucx::decode_hello(hello, {})->token;
    write(ucx::encode(ucx::Hello{.rank = 7, .connection = 1, .token = 2}));
    must(connection_->greet().is_ok());
    message({.kind = ucx::MessageHead::Kind::kReady}, {}, {});
    must(connection_->greet().is_ok());
    if (!is_usable) return;
    note({.kind = ucx::Note::Kind::kUsable});
    must(connection_->greet().is_ok() && connection_->is_usable());
    std::array<std::byte, ucx::kNoteBytes> usable{};
    must(::recv(peer.get(), usable.data(), usable.size(), 0) == static_cast<ssize_t>(usable.size()));
    ucp.sent.clear();
  }

  ucx::UcxConnection& operator*() { return *connection_; }
  ucx::UcxConnection* operator->() { return connection_.get(); }

  /// What the peer's UCX brings.
  ucs_status_t message(ucx::MessageHead head, const std::optional<tcp::Frame>& frame,
                       std::vector<std::byte> data, bool is_rendezvous = false) {
    std::array<std::byte, tcp::kHeaderBytes> header{};
    if (frame) tcp::encode(*frame, header.data());
    return connection_->receive(head, header.data(), data.data(), data.size(), is_rendezvous);
  }
  void note(const ucx::Note& note) { write(ucx::encode(note)); }
  void write(std::span<const std::byte> bytes) {
    must(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  uint64_t token() const { return token_; }

  ScriptedUcx ucp;
  std::vector<Rings> rings;
  FileDescriptor peer;

 private:
  static void must(bool is_so) {
    if (!is_so) std::abort();
  }

  std::unique_ptr<ucx::UcxConnection> connection_;
  std::unique_ptr<ucx::Worker> worker_;  ///< destroyed before the connection
  uint64_t token_ = 0;
};

}  // namespace tutti::test
