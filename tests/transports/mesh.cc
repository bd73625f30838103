#include "tests/transports/mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "tests/transports/example/example_transport.h"
#include "transports/sim/sim_transport.h"

namespace tutti::test {
std::array<FileDescriptor, 2> connect_ends(bool over_loopback) {
  int fds[2] = {-1, -1};
  if (!over_loopback) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    return {FileDescriptor(fds[0]), FileDescriptor(fds[1])};
  }
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  FileDescriptor end(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(listener.get(), generic, bytes), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), generic, &bytes), 0);
  EXPECT_EQ(::connect(end.get(), generic, bytes), 0);
  return {std::move(end), FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

std::array<std::byte, 32> key_of_label(const std::string& label) {
  std::array<std::byte, 32> key{};
  for (size_t i = 0; i < label.size(); ++i) key[i % key.size()] ^= static_cast<std::byte>(label[i] + i);
  return key;
}

namespace {

/// A mapping of the same memory for each of two ranks.
std::array<Mapping, 2> share_memory(size_t bytes) {
  auto file = create_memory("tutti-mesh", bytes);
  EXPECT_TRUE(file.is_ok()) << file.status().text();
  std::array<Mapping, 2> mappings;
  for (Mapping& mapping : mappings) mapping = std::move(*map_memory(*file, bytes));
  return mappings;
}

/// Whether this machine has what the transport needs. Where the build has libibverbs' headers, the tests'
/// fake devices are found.
bool is_usable(const TransportCase& under_test) {
  if (!under_test.entry->traits->has_address) return true;
  const auto transport = under_test.entry->open({.rank_count = 1, .config = under_test.config});
  return transport && !(*transport)->address().empty();
}

}  // namespace

const std::vector<TransportCase>& transport_cases() {
  static const std::vector<TransportCase> kCases = [] {
    std::vector<TransportCase> cases;
    for (const TransportEntry& entry : transports()) {
      TransportCase one{.name = entry.name, .entry = &entry};
      // Some serve only if they are asked for by name.
      if (entry.traits->has_address) one.config.transport = entry.name;
      if (is_usable(one)) cases.push_back(one);
    }
    cases.push_back({.name = kSimTransport.name, .entry = &kSimTransport});
    cases.push_back({.name = kExampleTransport.name, .entry = &kExampleTransport});
    for (const TransportEntry& entry : transports()) {
      if (entry.name != std::string("tcp")) continue;
      TransportCase two{.name = "tcpTwoConnectionsLoopback", .entry = &entry, .over_loopback = true};
      two.config.connections = 2;
      cases.push_back(two);
      TransportCase secure{.name = "tcpTls", .entry = &entry};
      secure.config.tls = true;
      cases.push_back(secure);
    }
    return cases;
  }();
  return kCases;
}

/// Rings, either of this rank alone or shared with the peer.
class Mesh::Side final : public TrafficSide {
 public:
  Side(uint32_t peer, const MeshOptions& options, const TransportTraits& traits) {
    auto rings = PeerRings::make(peer, options.shape, options.channels, traits);
    EXPECT_TRUE(rings.is_ok()) << rings.status().text();
    rings_ = std::move(*rings);
    channels_ = rings_.channels();
  }
  void share(Mapping outgoing, Mapping incoming, const RingShape& shape) {
    for (size_t i = 0; i < channels_.size(); ++i) {
      const auto channel = static_cast<uint32_t>(i);
      channels_[i].outgoing = outgoing.base() + i * shape.ring_bytes();
      channels_[i].incoming = incoming.base() + i * shape.ring_bytes();
      const uint32_t peer = send(channel).peer;
      send(channel) = SendLink::at(channels_[i].outgoing, shape);
      recv(channel) = RecvLink::at(channels_[i].incoming, shape, 0);
      send(channel).peer = recv(channel).peer = peer;
    }
    outgoing_ = std::move(outgoing);
    incoming_ = std::move(incoming);
  }

  uint32_t channel_count() const override { return static_cast<uint32_t>(channels_.size()); }
  SendLink& send(uint32_t channel) override { return rings_.send(channel); }
  RecvLink& recv(uint32_t channel) override { return rings_.recv(channel); }
  PostedReceive& offer(uint32_t channel) override { return rings_.posted_receive(channel); }
  Connection& connection() override { return *connection_; }
  Transport* transport() override { return owner_->get(); }

  PeerRings rings_;
  Mapping outgoing_;
  Mapping incoming_;
  std::vector<ChannelRings> channels_;
  MemoryHandle memory_;
  const std::unique_ptr<Transport>* owner_ = nullptr;
  Connection* connection_ = nullptr;
};

struct Mesh::Rank final : public LinkTable {
  SendLink* send_link(uint32_t peer, uint32_t channel) override { return &sides.at(peer)->send(channel); }
  RecvLink* recv_link(uint32_t peer, uint32_t channel) override { return &sides.at(peer)->recv(channel); }
  SendLink* publish_link() override { return nullptr; }
  RecvLink* published_by(uint32_t) override { return nullptr; }

  std::map<uint32_t, std::unique_ptr<Side>> sides;
  std::vector<std::byte> address;
  std::unique_ptr<Transport> transport;  ///< destroyed before the rings
};

Mesh::Mesh(const TransportCase& under_test, const MeshOptions& options)
    : case_(under_test), options_(options) {
  static std::atomic<uint16_t> meshes = 0;
  const uint16_t epoch = ++meshes;
  for (uint32_t rank = 0; rank < options.rank_count; ++rank) {
    auto transport = case_.entry->open({.rank = rank,
                                        .rank_count = options.rank_count,
                                        .shape = options.shape,
                                        .channels = options.channels,
                                        .epoch = epoch,
                                        .config = case_.config,
                                        .derive_key = key_of_label,
                                        .heap = options.heap,
                                        .order_cards = options.order_cards});
    EXPECT_TRUE(transport.is_ok()) << transport.status().text();
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->transport = std::move(*transport);
    ranks_.back()->address = ranks_.back()->transport->address();
  }
  for (uint32_t low = 0; low < options.rank_count; ++low) {
    for (uint32_t high = low + 1; high < options.rank_count; ++high) join(low, high);
  }
  // Each rank waits for its peers.
  std::vector<std::thread> threads;
  for (const auto& rank : ranks_) {
    threads.emplace_back([&rank] {
      const Status done = rank->transport->complete({.deadline_ns = deadline_after_ms(60'000)});
      EXPECT_TRUE(done.is_ok()) << done.text();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Mesh::~Mesh() {
  for (const auto& rank : ranks_) {
    if (rank->transport == nullptr) continue;
    for (const auto& [peer, side] : rank->sides) rank->transport->deregister_memory(side->memory_);
  }
}

void Mesh::join(uint32_t low, uint32_t high) {
  const uint32_t numbers[2] = {low, high};
  std::unique_ptr<Side> sides[2];
  for (int end = 0; end < 2; ++end)
    sides[end] = std::make_unique<Side>(numbers[1 - end], options_, *case_.entry->traits);
  if (case_.entry->traits->needs_shared_rings) {
    const size_t bytes = options_.channels * options_.shape.ring_bytes();
    auto forth = share_memory(bytes);
    auto back = share_memory(bytes);
    sides[0]->share(std::move(forth[0]), std::move(back[0]), options_.shape);
    sides[1]->share(std::move(back[1]), std::move(forth[1]), options_.shape);
  }
  std::vector<FileDescriptor> sockets[2];
  for (uint32_t i = 0; i < ranks_[low]->transport->socket_count(); ++i) {
    auto ends = connect_ends(case_.over_loopback);
    wires_.emplace_back(fcntl(ends[0].get(), F_DUPFD_CLOEXEC, 0));
    for (int end = 0; end < 2; ++end) sockets[end].push_back(std::move(ends[end]));
  }
  for (int end = 0; end < 2; ++end) {
    Rank& rank = *ranks_[numbers[end]];
    Side& side = *sides[end];
    auto memory = rank.transport->register_memory(side.rings_.base(), side.rings_.bytes(), MemoryUse::kRings);
    ASSERT_TRUE(memory.is_ok()) << memory.status().text();
    side.memory_ = *memory;
    auto connection = rank.transport->connect({.rank = numbers[1 - end],
                                               .is_near = case_.over_loopback,
                                               .rings = side.channels_,
                                               .memory = side.memory_,
                                               .sockets = std::move(sockets[end]),
                                               .address = ranks_[numbers[1 - end]]->address});
    ASSERT_TRUE(connection.is_ok()) << connection.status().text();
    side.connection_ = *connection;
    side.owner_ = &rank.transport;
    rank.sides[numbers[1 - end]] = std::move(sides[end]);
  }
}

TrafficSide& Mesh::side(uint32_t rank, uint32_t peer) {
  return *ranks_[rank]->sides.at(peer);
}

LinkTable& Mesh::links(uint32_t rank) {
  return *ranks_[rank];
}

Transport& Mesh::transport(uint32_t rank) {
  return *ranks_[rank]->transport;
}

void Mesh::destroy(uint32_t rank) {
  wires_.clear();  // they would keep the rank's sockets open
  ranks_[rank]->transport.reset();
}

bool Mesh::cut() {
  for (const FileDescriptor& wire : wires_) EXPECT_EQ(::shutdown(wire.get(), SHUT_RDWR), 0);
  return !wires_.empty();
}

std::string run_traffic(Mesh& mesh, Traffic& traffic, uint64_t seed) {
  SimRandom random(seed + 1);
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  for (uint64_t idle = 0; !traffic.complete() && traffic.failure().empty();) {
    const bool moved = traffic.turn(static_cast<uint32_t>(random.below(2)));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const Status& status = mesh.side(rank, 1 - rank).connection().status();
      if (!status.is_ok()) return std::string(status.text());
    }
    idle = moved ? 0 : idle + 1;
    if (idle > 1000 && now_ns() > deadline_ns) return "nothing happens any more";
  }
  return traffic.failure();
}

}  // namespace tutti::test
