// RawLinks: links between ranks of one process as rings that both ends share, for tests that give every rank
// its turns by hand.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/links.h"
#include "transports/link.h"

namespace tutti::test {

/// Zeroed memory for one ring.
class RingMemory {
 public:
  explicit RingMemory(const RingShape& shape) : memory_(shape.ring_bytes() / sizeof(Cell)) {}
  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.data()); }

 private:
  std::vector<Cell> memory_;
};

/// Moves both ends of a ring to a message number, as if `number` messages had gone through it. For tests of
/// the 24-bit number's wrap-around.
inline void begin_at(RingMemory& memory, const RingShape& shape, uint64_t number, SendLink& send,
                     RecvLink& recv) {
  send.next = recv.next = number;
  send.limit = number + shape.slots;
  for (uint32_t i = 0; i < shape.readers; ++i) store_shared(send.credits[i].released, number);
  auto* cells = reinterpret_cast<Cell*>(memory.bytes());
  for (uint64_t past = number - shape.slots; past < number; ++past) {
    store_shared(cells[past & (shape.slots - 1)].word, flag::make(past, 0, 0));
  }
}

/// All ranks' links, unpublished ones, made when asked for.
class RawNetwork {
 public:
  explicit RawNetwork(const RingShape& shape) : shape_(shape) {}

  SendLink& send(uint32_t writer, uint32_t reader, uint32_t channel) {
    return ends(writer, reader, channel).send;
  }
  RecvLink& recv(uint32_t writer, uint32_t reader, uint32_t channel) {
    return ends(writer, reader, channel).recv;
  }
  ExposedBuffer& exposed_buffer(uint32_t rank) { return exposed_[rank]; }

 private:
  struct Ends {
    std::unique_ptr<RingMemory> memory;
    SendLink send;
    RecvLink recv;
  };
  Ends& ends(uint32_t writer, uint32_t reader, uint32_t channel) {
    Ends& made = links_[{writer, reader, channel}];
    if (made.memory == nullptr) {
      made.memory = std::make_unique<RingMemory>(shape_);
      made.send = SendLink::at(made.memory->bytes(), shape_);
      made.send.peer = reader;
      made.send.same_process = true;
      made.recv = RecvLink::at(made.memory->bytes(), shape_, 0);
      made.recv.peer = writer;
    }
    return made;
  }

  RingShape shape_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Ends> links_;
  std::map<uint32_t, ExposedBuffer> exposed_;
};

class RawLinks final : public LinkTable {
 public:
  RawLinks(RawNetwork& network, uint32_t rank) : network_(network), rank_(rank) {}
  SendLink* send_link(uint32_t peer, uint32_t channel) override {
    return &network_.send(rank_, peer, channel);
  }
  RecvLink* recv_link(uint32_t peer, uint32_t channel) override {
    return &network_.recv(peer, rank_, channel);
  }
  SendLink* publish_link() override { return nullptr; }
  RecvLink* published_by(uint32_t) override { return nullptr; }
  PeerExposedBuffer exposed_buffer(uint32_t peer) override {
    return {.buffer = &network_.exposed_buffer(peer), .reference_offset = 0, .same_process = true};
  }

 private:
  RawNetwork& network_;
  uint32_t rank_;
};

}  // namespace tutti::test
