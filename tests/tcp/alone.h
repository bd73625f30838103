// Alone: one rank with its connection, whose streams are scripts: the test plays the network and the peer,
// rank 7.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/tcp/connection_pair.h"
#include "tests/tcp/scripted_stream.h"

namespace tutti::test {

struct Alone {
  explicit Alone(uint32_t connections = 1, PairOptions options = {})
      : side(7, options.shape, options.channels, options.first_number) {
    Streams owners;
    for (uint32_t i = 0; i < connections; ++i) {
      auto stream = std::make_unique<ScriptedStream>();
      stream->in_place = options.in_place_bytes != UINT64_MAX;
      streams.push_back(stream.get());
      owners.push_back(std::move(stream));
    }
    tcp::TcpOptions connection;
    connection.epoch = options.epoch;
    connection.in_place_bytes = options.in_place_bytes;
    connection.arrivals = &arrivals;
    side.connect(std::move(owners), connection);
  }

  void commit(uint32_t channel, size_t bytes, uint64_t seed = 0) {
    SendLink& link = side.send(channel);
    const Bytes payload = message_bytes(seed, 0, channel, link.next, bytes);
    std::copy(payload.begin(), payload.end(), link.span(bytes));
    link.commit(5, bytes);
  }
  bool arrived(uint32_t channel) {
    RecvLink& link = side.recv(channel);
    return (link.word() & flag::kNumberMask) == ((link.next + 1) & flag::kNumberMask);
  }
  void release(uint32_t channel) {
    RecvLink& link = side.recv(channel);
    link.release(link.word());
  }
  /// What a stream was made to send, which it then forgets.
  Bytes take_written(size_t index = 0) { return std::exchange(streams[index]->written, {}); }

  uint32_t arrivals = 0;  ///< data frames that have come, of all peers
  Side side;
  std::vector<ScriptedStream*> streams;
};

}  // namespace tutti::test
