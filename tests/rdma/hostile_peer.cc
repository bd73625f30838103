#include "tests/rdma/hostile_peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/raw_links.h"
#include "transports/rdma/control.h"
#include "transports/rdma/rdma_connection.h"

namespace tutti::test {
namespace {

using rdma::Control;
using rdma::ControlKind;

constexpr RingShape kShape{.slots = 4, .slot_bytes = 2048};
constexpr size_t kChannels = 3;
constexpr uint32_t kRails = 2;

void demand(bool holds) {
  if (!holds) std::abort();
}

struct Rings {
  RingMemory outgoing{kShape};
  RingMemory incoming{kShape};
  SendLink send = SendLink::at(outgoing.bytes(), kShape);
  RecvLink recv = RecvLink::at(incoming.bytes(), kShape, 0);
};

/// The reader's part: takes what arrived, whatever it says, and touches all of it.
void take_messages(Rings& rings) {
  for (;;) {
    const uint64_t word = rings.recv.word();
    if ((word & flag::kNumberMask) != ((rings.recv.next + 1) & flag::kNumberMask)) return;
    const std::byte* span = rings.recv.span(word);
    unsigned sum = 0;
    for (uint64_t i = 0; i < flag::bytes(word); ++i) sum += static_cast<unsigned>(span[i]);
    demand(sum != UINT32_MAX);  // so that the loads are made
    rings.recv.release(word);
  }
}

/// A rank with a connection, and the peer's end of the socket.
class Rank {
 public:
  /// Rails beyond `lane_count` stand by.
  explicit Rank(uint32_t lane_count) : lane_count_(lane_count) {
    auto verbs = rdma::Verbs::find();
    demand(verbs.is_ok());
    verbs_ = std::move(*verbs);
    std::string why_none;
    ports_ = rdma::find_ports(*verbs_, {}, why_none);
    demand(ports_.ports.size() == kRails);
    std::vector<rdma::RdmaConnection::Path> paths;
    for (const rdma::Port& port : ports_.ports) {
      auto device = rdma::Device::open(*verbs_, *ports_.contexts[port.device], 1000);
      demand(device.is_ok());
      devices_.push_back(std::move(*device));
      paths.push_back({.device = *devices_.back(), .port = port, .peer = port.address});
    }
    std::vector<ChannelRings> channels;
    for (Rings& ring : rings_)
      channels.push_back({.outgoing = ring.outgoing.bytes(), .incoming = ring.incoming.bytes()});
    int ends[2];
    demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    peer_ = FileDescriptor(ends[1]);
    auto made = rdma::RdmaConnection::make(*verbs_, paths, channels, FileDescriptor(ends[0]), budget_,
                                           [this] { return poll(); },
                                           {.user_memory = user_memory_,
                                            .heap_memory = heap_memory_,
                                            .device_regions = device_regions_,
                                            .rank = 0,
                                            .peer = 7,
                                            .shape = kShape,
                                            .epoch = 0,
                                            .lane_count = lane_count});
    demand(made.is_ok());
    connection_ = std::move(*made);
    // A few messages are out, so that credits and receipts may come.
    for (Rings& ring : rings_) {
      for (int i = 0; i < 3; ++i) ring.send.commit(0, 8);
    }
  }

  rdma::RdmaConnection& connection() { return *connection_; }
  uint32_t lane_count() const { return lane_count_; }
  void feed(const void* bytes, size_t count) {
    // The reader reads all of it, so the socket has room again.
    demand(::send(peer_.get(), bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
    turn();
  }
  void feed(const Control& control, std::span<const std::byte> payload) {
    Control whole = control;
    whole.bytes = static_cast<uint32_t>(payload.size());
    const auto head = rdma::encode(whole);
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    feed(bytes.data(), bytes.size());
  }
  void turn() {
    (void)connection_->greet();
    connection_->advance();
    for (Rings& ring : rings_) take_messages(ring);
    char unread[65536];
    while (::recv(peer_.get(), unread, sizeof(unread), MSG_DONTWAIT) > 0) {
    }
  }
  void hang_up() { peer_.reset(); }

 private:
  bool poll() {
    bool moved = false;
    for (const auto& device : devices_) {
      ibv_wc completion{};
      while (ibv_poll_cq(device->queue(), 1, &completion) > 0) {
        connection_->complete(completion);
        moved = true;
      }
    }
    return moved;
  }

  std::unique_ptr<const rdma::Verbs> verbs_;
  rdma::Ports ports_;
  std::vector<std::unique_ptr<rdma::Device>> devices_;
  rdma::PinBudget budget_{.left_bytes = 1 << 20};
  rdma::UserMemory user_memory_;
  rdma::HeapMemory heap_memory_{nullptr, budget_};
  rdma::DeviceRegions device_regions_;
  uint32_t lane_count_;
  std::vector<Rings> rings_{kChannels};
  FileDescriptor peer_;
  std::unique_ptr<rdma::RdmaConnection> connection_;
};

/// No rail comes up, so that lanes lie on the socket and take its pieces.
void give_up_rails(Rank& rank) {
  for (uint32_t rail = 0; rail < kRails; ++rail)
    rank.feed({.kind = ControlKind::kBroken, .index = rail, .turn = 1}, {});
  for (uint32_t lane = 0; lane < rank.lane_count(); ++lane) {
    rank.feed({.kind = ControlKind::kResume, .index = lane, .turn = 1},
              rdma::encode(rdma::Resume{.has_lost_rail = true}));
  }
}

/// Any bytes, or a message of the right form with any contents.
void feed_some(Rank& rank, std::span<const uint8_t>& input) {
  const uint8_t choice = input[0];
  input = input.subspan(1);
  if (choice < 64) {
    const size_t count = std::min<size_t>(input.size(), choice);
    if (count > 0) rank.feed(input.data(), count);
    input = input.subspan(count);
    return;
  }
  Control control{.kind = static_cast<ControlKind>(1 + choice % 6), .index = choice / 6 % kRails};
  uint8_t words[6] = {};
  const size_t known = std::min(input.size(), sizeof(words));
  std::copy_n(input.begin(), known, words);
  input = input.subspan(known);
  control.turn = words[0] % 4;
  // Kind and lane of a piece, and a small number of receipts.
  control.word = uint32_t{words[1]} << 24 | words[2];
  size_t count = std::min<size_t>(input.size(), words[3]);
  if (control.kind == ControlKind::kResume) count = rdma::kResumeBytes;
  if (control.kind == ControlKind::kHello) count = rdma::kHelloBytes;
  std::vector<std::byte> payload(count);
  const size_t given = std::min(count, input.size());
  if (given > 0) std::memcpy(payload.data(), input.data(), given);
  input = input.subspan(given);
  if (control.kind == ControlKind::kJoined || control.kind == ControlKind::kUp ||
      control.kind == ControlKind::kBroken)
    payload.clear();
  rank.feed(control, payload);
}

}  // namespace

void survive_hostile_peer(std::span<const uint8_t> input) {
  const uint8_t first = input.empty() ? 0 : input[0];
  Rank rank(1 + first / 2 % kRails);
  if (first % 2 == 0) give_up_rails(rank);
  if (!input.empty()) input = input.subspan(1);
  while (!input.empty() && rank.connection().state() == PeerState::kOpen) feed_some(rank, input);
  rank.hang_up();
  for (int turn = 0; rank.connection().state() == PeerState::kOpen; ++turn) {
    demand(turn < 1000);
    rank.turn();
  }
  demand(rank.connection().status().text().find("rank 7") != std::string_view::npos);
}

}  // namespace tutti::test
