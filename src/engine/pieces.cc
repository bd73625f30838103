#include "engine/pieces.h"

#include <algorithm>

namespace tutti {
namespace {

// A piece costs about 50 us (two copies, a host function, two threads that wake up; an estimate), and a call
// waits for the copies of one piece, at about 25 GB/s each. So calls of 16 MiB are shortest in 5 pieces, of
// 256 MiB in 20 (docs/measurements/gpu.md).
constexpr uint64_t kLeastPieceBytes = 2u << 20;
constexpr uint64_t kMostPieces = 16;
// Pieces begin at cache lines.
constexpr uint64_t kAlignElements = 64;

bool can_be_cut(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kBroadcast ||
         collective == Collective::kReduce;
}

}  // namespace

bool has_pieces(const CallShape& shape) {
  return can_be_cut(shape.collective) && shape.purpose == CallPurpose::kUsers &&
         shape.count * type_bytes(shape.type) >= 2 * kLeastPieceBytes;
}

std::vector<Call> cut_into_pieces(const Call& call) {
  const uint64_t element = type_bytes(call.shape.type);
  const uint64_t count = call.shape.count;
  const uint64_t pieces = std::min(count * element / kLeastPieceBytes, kMostPieces);
  const uint64_t most =
      ((count + pieces - 1) / pieces + kAlignElements - 1) / kAlignElements * kAlignElements;
  std::vector<Call> cut;
  for (uint64_t first = 0; first < count; first += most) {
    Call piece = call;
    piece.first_element = first;
    piece.shape.piece = std::min(most, count - first);
    if (call.send != nullptr) piece.send = static_cast<const std::byte*>(call.send) + first * element;
    if (call.recv != nullptr) piece.recv = static_cast<std::byte*>(call.recv) + first * element;
    cut.push_back(std::move(piece));
  }
  return cut;
}

}  // namespace tutti
