// A rank whose peer sends any bytes over the socket of their RDMA connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::test {

/// Feeds the bytes to a connection over the fake devices. In the end the connection is torn, with a text that
/// names the peer, or the peer has ended in good order. Nothing outside the rings is written. Ends the
/// process if anything else happens.
void survive_hostile_peer(std::span<const uint8_t> input);

}  // namespace tutti::test
