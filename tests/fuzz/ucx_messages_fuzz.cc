// Fuzz target: what a peer may send over UCX. Any active messages, eager and by rendezvous, and any bytes on
// the socket of the pair, are messages of the links or an error that names the peer; nothing outside the
// rings and the offered place is written. Addresses and hellos are read or refused.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "tests/ucx/lone_connection.h"

namespace {

using tutti::test::LoneConnection;

/// The reader's part: takes what arrived, whatever it says, and touches all of it.
void take_messages(LoneConnection::Rings& rings) {
  while (rings.recv.has_arrived()) {
    const uint64_t word = rings.recv.word();
    const std::byte* span = rings.recv.span(word);
    unsigned sum = 0;
    for (uint64_t i = 0; i < tutti::flag::bytes(word); ++i) sum += static_cast<unsigned>(span[i]);
    if (sum == UINT32_MAX) std::abort();  // so that the loads are made
    rings.recv.release(word);
  }
}

void read_set_up(std::span<const std::byte> bytes) {
  (void)tutti::ucx::decode_address(bytes);
  (void)tutti::ucx::decode_message(bytes);
  if (bytes.size() >= tutti::ucx::kHelloBytes)
    (void)tutti::ucx::decode_hello(bytes.first<tutti::ucx::kHelloBytes>(), {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  read_set_up(std::as_bytes(std::span(data, data_bytes)));
  LoneConnection connection;
  std::vector<std::byte> target(300);
  connection.rings[0].offer = {
      .first = 1, .address = target.data(), .bytes = target.size(), .slice_bytes = 100};
  // A few messages are out, so that credits and receipts may come.
  for (LoneConnection::Rings& ring : connection.rings) {
    for (int i = 0; i < 3; ++i) ring.send.commit(0, 8);
  }
  connection->turn();
  // The input: a byte that says what comes and how many bytes, those, and so on.
  while (data_bytes > 0 && connection->state() == tutti::PeerState::kOpen) {
    const uint8_t choice = *data++;
    --data_bytes;
    const size_t part = std::min<size_t>(data_bytes, choice >> 2);
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    if ((choice & 3) == 3) {
      connection.write({bytes, part});
      connection->look_at_socket();
    } else if (part >= tutti::ucx::kMessageHeadBytes) {
      const auto head = tutti::ucx::decode_message({bytes, tutti::ucx::kMessageHeadBytes});
      std::vector<std::byte> payload(bytes + tutti::ucx::kMessageHeadBytes, bytes + part);
      // The payload's size, as UCX would say it: what the frame says, or what is there.
      const auto frame = tutti::tcp::decode(bytes + 16, {.channels = LoneConnection::kChannels,
                                                         .slots = LoneConnection::kShape.slots,
                                                         .slot_bytes = LoneConnection::kShape.slot_bytes});
      if (frame && (choice & 1) != 0) payload.resize(size_t{frame->count} * frame->bytes);
      if (head) {
        connection->receive(*head, bytes + 16, payload.data(), payload.size(), (choice & 2) != 0);
      }
    } else if (!connection.ucp.fillings.empty()) {
      connection.ucp.end_filling(part % 2 == 0 ? UCS_OK : UCS_ERR_CANCELED, std::byte{7});
    }
    data += part;
    data_bytes -= part;
    connection->turn();
    for (LoneConnection::Rings& ring : connection.rings) take_messages(ring);
  }
  connection.peer = {};
  connection->look_at_socket();
  // Frames that the peer has announced, and that do not come, are waited for.
  if (connection->state() != tutti::PeerState::kOpen &&
      connection->status().text().find("rank 7") == std::string_view::npos)
    std::abort();
  return 0;
}
