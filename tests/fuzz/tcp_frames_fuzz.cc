// Fuzz target: what a peer's connection may send. Any bytes, in any pieces, over two connections, are
// messages of the links or an error that names the peer; nothing outside the rings and the offered place is
// written.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/engine/raw_links.h"
#include "tests/tcp/scripted_stream.h"
#include "transports/tcp/tcp_connection.h"

namespace {

constexpr tutti::RingShape kShape{.slots = 4, .slot_bytes = 256};
constexpr size_t kChannels = 2;

struct Rings {
  tutti::test::RingMemory outgoing{kShape};
  tutti::test::RingMemory incoming{kShape};
  tutti::SendLink send = tutti::SendLink::at(outgoing.bytes(), kShape);
  tutti::RecvLink recv = tutti::RecvLink::at(incoming.bytes(), kShape, 0);
  tutti::PostedReceive offer;
};

/// The reader's part: takes what arrived, whatever it says, and touches all of it.
void take_messages(Rings& rings) {
  for (;;) {
    const uint64_t word = rings.recv.word();
    if ((word & tutti::flag::kNumberMask) != rings.recv.next + 1) return;
    const std::byte* span = rings.recv.span(word);
    unsigned sum = 0;
    for (uint64_t i = 0; i < tutti::flag::bytes(word); ++i) sum += static_cast<unsigned>(span[i]);
    if (sum == UINT32_MAX) std::abort();  // so that the loads are made
    rings.recv.release(word);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  std::vector<Rings> rings(kChannels);
  std::vector<tutti::ChannelRings> channels;
  std::vector<std::byte> target(300);
  for (Rings& ring : rings) {
    channels.push_back(
        {.outgoing = ring.outgoing.bytes(), .incoming = ring.incoming.bytes(), .offer = &ring.offer});
  }
  rings[0].offer = {.first = 1, .address = target.data(), .bytes = target.size(), .slice_bytes = 200};
  std::vector<std::unique_ptr<tutti::tcp::Stream>> owners;
  tutti::test::ScriptedStream* streams[2];
  for (auto& stream : streams) {
    auto owner = std::make_unique<tutti::test::ScriptedStream>();
    stream = owner.get();
    owners.push_back(std::move(owner));
  }
  tutti::tcp::TcpOptions options;
  options.peer = 7;
  options.shape = kShape;
  tutti::tcp::TcpConnection connection(channels, std::move(owners), options);
  // A few messages are out, so that credits may come.
  for (Rings& ring : rings) {
    for (int i = 0; i < 3; ++i) ring.send.commit(0, 8);
  }
  connection.advance();
  // The input: a byte that says for which stream how many follow, those, and so on.
  while (data_bytes > 0 && connection.state() == tutti::PeerState::kOpen) {
    const uint8_t choice = *data++;
    --data_bytes;
    const size_t part = std::min<size_t>(data_bytes, choice >> 1);
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    streams[choice & 1]->feed({bytes, bytes + part});
    data += part;
    data_bytes -= part;
    connection.advance();
    if (choice == 0xff) connection.withdraw();
    for (Rings& ring : rings) take_messages(ring);
  }
  for (auto* stream : streams) stream->at_end = 0;
  for (int turn = 0; connection.state() == tutti::PeerState::kOpen; ++turn) {
    if (turn > 1000) std::abort();
    connection.advance();
  }
  if (connection.status().text().find("rank 7") == std::string_view::npos) std::abort();
  return 0;
}
