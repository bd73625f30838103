// Goal: pieces are the call: every element in exactly one piece, cut alike on all ranks.
// Method: counts around the least length, long and odd ones, types of all sizes.
#include "engine/pieces.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr uint64_t kLong = 4u << 20;  // bytes

Call make_call(Collective collective, DataType type, uint64_t count) {
  Call call;
  call.shape = {.collective = collective, .type = type, .op = ReduceOp::kSum, .count = count};
  return call;
}

TEST(PiecesTest, OnlyLongCallsWhosePartsAreCallsThemselvesAreCut) {
  const auto cuts = [](Collective collective, uint64_t count) {
    return has_pieces(make_call(collective, DataType::kFloat32, count).shape);
  };
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce}) {
    EXPECT_TRUE(cuts(collective, kLong / 4));
    EXPECT_FALSE(cuts(collective, kLong / 4 - 1));
  }
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter,
                                      Collective::kAllToAll, Collective::kGather, Collective::kScatter})
    EXPECT_FALSE(cuts(collective, kLong));
  CallShape own = make_call(Collective::kAllReduce, DataType::kUint8, kLong).shape;
  own.purpose = CallPurpose::kSplit;
  EXPECT_FALSE(has_pieces(own)) << "the library's own call";
}

TEST(PiecesTest, PiecesFollowEachOtherAndCoverTheCall) {
  for (const DataType type : {DataType::kUint8, DataType::kFloat16, DataType::kFloat32, DataType::kFloat64}) {
    const uint64_t element = type_bytes(type);
    for (const uint64_t bytes : {kLong, kLong + 8, 3 * kLong - 8, 20 * kLong + 40, 1000 * kLong}) {
      Call call = make_call(Collective::kAllReduce, type, bytes / element);
      std::byte memory[2]{};
      call.send = memory;
      call.recv = memory + 1;
      uint64_t covered = 0;
      const std::vector<Call> pieces = cut_into_pieces(call);
      EXPECT_GE(pieces.size(), 2u);
      EXPECT_LE(pieces.size(), 16u);
      for (const Call& piece : pieces) {
        EXPECT_EQ(piece.first_element, covered);
        EXPECT_EQ(covered % 64, 0u);
        EXPECT_EQ(piece.send, memory + covered * element);
        EXPECT_EQ(piece.recv, memory + 1 + covered * element);
        EXPECT_EQ(piece.shape.count, call.shape.count);
        EXPECT_EQ(piece.is_last_piece(), &piece == &pieces.back());
        covered += piece.shape.elements();
      }
      EXPECT_EQ(covered, call.shape.count);
    }
  }
}

// The root of a reduce has a receive buffer, and the other ranks may have none.
TEST(PiecesTest, ABufferThatIsMissingStaysMissing) {
  for (const Call& piece : cut_into_pieces(make_call(Collective::kReduce, DataType::kInt8, kLong))) {
    EXPECT_EQ(piece.send, nullptr);
    EXPECT_EQ(piece.recv, nullptr);
  }
}

}  // namespace
}  // namespace tutti
