#include "tests/cards/moves.h"

#include <numeric>
#include <string>

namespace tutti::test {
namespace {

constexpr int kRoot = 1;
/// A byte from a cache line's beginning, so that nothing is aligned by chance.
constexpr uint64_t kShift = 1;

std::byte* take(HostRank& rank, uint64_t bytes) {
  return rank.allocate(bytes + kShift, 0xEE) + kShift;
}

uint64_t place(int rank, uint64_t bytes) {
  return static_cast<uint64_t>(rank) * bytes;
}

/// All ranks' blocks of `bytes`; the own one of the sender lies in its place.
Move::Buffers gathered(HostRank& rank, uint64_t bytes, int call, bool in_place, bool receives) {
  Move::Buffers buffers;
  const auto count = static_cast<uint64_t>(rank.count());
  buffers.recv = receives ? take(rank, count * bytes) : nullptr;
  buffers.send = in_place ? buffers.recv + place(rank.rank(), bytes) : take(rank, bytes);
  rank.write(buffers.send, bytes_of(call, rank.rank(), 0, bytes));
  for (int from = 0; receives && from < rank.count(); ++from)
    buffers.expected.push_back({place(from, bytes), bytes_of(call, from, 0, bytes)});
  return buffers;
}

Move::Buffers exchanged(HostRank& rank, uint64_t bytes, int call, bool in_place) {
  Move::Buffers buffers;
  const auto count = static_cast<uint64_t>(rank.count());
  buffers.recv = take(rank, count * bytes);
  buffers.send = in_place ? buffers.recv : take(rank, count * bytes);
  for (int peer = 0; peer < rank.count(); ++peer) {
    rank.write(buffers.send + place(peer, bytes), bytes_of(call, rank.rank(), peer, bytes));
    buffers.expected.push_back({place(peer, bytes), bytes_of(call, peer, rank.rank(), bytes)});
  }
  return buffers;
}

Move::Buffers from_root(HostRank& rank, uint64_t bytes, int call, bool scatters) {
  Move::Buffers buffers;
  const auto count = static_cast<uint64_t>(rank.count());
  if (rank.rank() == kRoot) {
    buffers.send = take(rank, scatters ? count * bytes : bytes);
    for (int to = 0; to < (scatters ? rank.count() : 1); ++to)
      rank.write(buffers.send + place(to, bytes), bytes_of(call, kRoot, to, bytes));
  }
  buffers.recv = take(rank, bytes);
  buffers.expected.push_back({0, bytes_of(call, kRoot, scatters ? rank.rank() : 0, bytes)});
  return buffers;
}

tutti_result_t ring(HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
  const int next = (rank.rank() + 1) % rank.count();
  const int before = (rank.rank() + rank.count() - 1) % rank.count();
  tutti_result_t result = rank.api.group_start();
  if (result == TUTTI_SUCCESS)
    result = rank.api.send(buffers.send, bytes, TUTTI_UINT8, next, 7, rank.comm, stream);
  if (result == TUTTI_SUCCESS)
    result = rank.api.recv(buffers.recv, bytes, TUTTI_UINT8, before, 7, rank.comm, stream);
  const tutti_result_t ended = rank.api.group_end();
  return result == TUTTI_SUCCESS ? ended : result;
}

/// Counts and displacements of equal blocks.
struct Table {
  explicit Table(const HostRank& rank, uint64_t bytes)
      : counts(static_cast<size_t>(rank.count()), bytes), displacements(counts.size()) {
    std::exclusive_scan(counts.begin(), counts.end(), displacements.begin(), size_t{0});
  }
  std::vector<size_t> counts;
  std::vector<size_t> displacements;
};

}  // namespace

const std::vector<Move>& moves() {
  static const std::vector<Move> kMoves = {
      {"send and recv",
       [](HostRank& rank, uint64_t bytes, int call) {
         const int before = (rank.rank() + rank.count() - 1) % rank.count();
         Move::Buffers buffers{.send = take(rank, bytes), .recv = take(rank, bytes)};
         rank.write(buffers.send, bytes_of(call, rank.rank(), 0, bytes));
         buffers.expected.push_back({0, bytes_of(call, before, 0, bytes)});
         return buffers;
       },
       ring},
      {"broadcast",
       [](HostRank& rank, uint64_t bytes, int call) { return from_root(rank, bytes, call, false); },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         return rank.api.broadcast(buffers.send, buffers.recv, bytes, TUTTI_UINT8, kRoot, rank.comm, stream);
       }},
      {"scatter", [](HostRank& rank, uint64_t bytes, int call) { return from_root(rank, bytes, call, true); },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         return rank.api.scatter(buffers.send, buffers.recv, bytes, TUTTI_UINT8, kRoot, rank.comm, stream);
       }},
      {"gather",
       [](HostRank& rank, uint64_t bytes, int call) {
         return gathered(rank, bytes, call, false, rank.rank() == kRoot);
       },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         return rank.api.gather(buffers.send, buffers.recv, bytes, TUTTI_UINT8, kRoot, rank.comm, stream);
       }},
      {"all_gather",
       [](HostRank& rank, uint64_t bytes, int call) { return gathered(rank, bytes, call, false, true); },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         return rank.api.all_gather(buffers.send, buffers.recv, bytes, TUTTI_UINT8, rank.comm, stream);
       }},
      {"all_gather in place",
       [](HostRank& rank, uint64_t bytes, int call) { return gathered(rank, bytes, call, true, true); },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         return rank.api.all_gather(buffers.send, buffers.recv, bytes, TUTTI_UINT8, rank.comm, stream);
       }},
      {"all_gather_v",
       [](HostRank& rank, uint64_t bytes, int call) { return gathered(rank, bytes, call, false, true); },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         const Table table(rank, bytes);
         return rank.api.all_gather_v(buffers.send, buffers.recv, table.counts.data(),
                                      table.displacements.data(), TUTTI_UINT8, rank.comm, stream);
       }},
      {"all_to_all",
       [](HostRank& rank, uint64_t bytes, int call) { return exchanged(rank, bytes, call, false); },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         return rank.api.all_to_all(buffers.send, buffers.recv, bytes, TUTTI_UINT8, rank.comm, stream);
       }},
      {"all_to_all_v",
       [](HostRank& rank, uint64_t bytes, int call) { return exchanged(rank, bytes, call, false); },
       [](HostRank& rank, const Move::Buffers& buffers, uint64_t bytes, tutti_stream_t stream) {
         const Table table(rank, bytes);
         return rank.api.all_to_all_v(buffers.send, table.counts.data(), table.displacements.data(),
                                      buffers.recv, table.counts.data(), table.displacements.data(),
                                      TUTTI_UINT8, rank.comm, stream);
       }},
  };
  return kMoves;
}

void check_move(HostRank& rank, const Move& move, uint64_t bytes, int call, bool on_stream) {
  const Move::Buffers buffers = move.prepare(rank, bytes, call);
  const bool uses_stream = on_stream && rank.is_on_device();
  const std::string what = std::string(move.name) + " of " + std::to_string(bytes) + " bytes, call " +
                           std::to_string(call) + (uses_stream ? " on a stream" : "");
  if (!rank.expect_ok(move.make(rank, buffers, bytes, uses_stream ? rank.stream() : TUTTI_BLOCKING), what))
    return;
  if (uses_stream) rank.synchronize();
  for (const Move::Part& part : buffers.expected) {
    const auto came = rank.read(buffers.recv + part.offset, part.bytes.size());
    size_t wrong = 0;
    while (wrong < came.size() && came[wrong] == part.bytes[wrong]) ++wrong;
    rank.expect(wrong == came.size(), what + ": wrong byte " + std::to_string(wrong) + " of the part at " +
                                          std::to_string(part.offset));
  }
}

}  // namespace tutti::test
