// Packed blobs: whole and by their differences.
#include "bootstrap/blobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "net/wire.h"

namespace tutti::test {
namespace {

std::vector<std::byte> pack(const Blobs& blobs) {
  std::vector<std::byte> packed;
  for (const auto& blob : blobs) append_blob(packed, blob);
  return packed;
}

void append_number(std::vector<std::byte>& packed, uint32_t number) {
  std::array<std::byte, 4> bytes{};
  put_u32(bytes, number);
  packed.insert(packed.end(), bytes.begin(), bytes.end());
}

/// `count` blobs of like length, of which each differs from the one before in some runs.
Blobs like_blobs(std::mt19937& random, size_t count, size_t bytes) {
  Blobs blobs(count, std::vector<std::byte>(bytes));
  for (size_t i = 1; i < count; ++i) {
    blobs[i] = blobs[i - 1];
    for (auto run = random() % 5; run > 0 && bytes > 0; --run) {
      const size_t first = random() % bytes;
      for (size_t at = first; at < std::min(bytes, first + random() % 40); ++at)
        blobs[i][at] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) blobs[i].resize(random() % (bytes + 1));
    bytes = blobs[i].size();
  }
  return blobs;
}

// Goal: differences say the same as the whole blobs, whatever the blobs are.
TEST(BlobsTest, DifferencesAreTheSameBlobs) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const Blobs blobs = like_blobs(random, 1 + random() % 20, random() % 700);
    const auto packed = pack(blobs);
    const auto compact = compact_blobs(packed, blobs.size());
    EXPECT_LE(compact.size(), packed.size());
    EXPECT_TRUE(holds_blobs(compact, blobs.size()));
    EXPECT_FALSE(holds_blobs(compact, blobs.size() + 1));
    const auto read = unpack_blobs(compact, blobs.size());
    ASSERT_TRUE(read.is_ok());
    EXPECT_TRUE(*read == blobs) << "trial " << trial;
  }
}

// Goal: runs longer than a pair can count, with and without a difference at the end.
TEST(BlobsTest, LongRunsAreCutIntoPairs) {
  std::vector<std::byte> zeros(200'000);
  std::vector<std::byte> ones(200'000, std::byte{1});
  std::vector<std::byte> last = zeros;
  last.back() = std::byte{1};
  for (const Blobs& blobs :
       {Blobs{zeros, zeros}, Blobs{zeros, last}, Blobs{last, ones}, Blobs{zeros, ones}}) {
    const auto read = unpack_blobs(compact_blobs(pack(blobs), 2), 2);
    ASSERT_TRUE(read.is_ok());
    EXPECT_TRUE(*read == blobs);
  }
  EXPECT_LT(compact_blobs(pack({zeros, last}), 2).size(), 200'100u);
}

TEST(BlobsTest, LikeBlobsBecomeShort) {
  Blobs blobs(1000, std::vector<std::byte>(400));
  for (size_t i = 0; i < blobs.size(); ++i)
    put_u32(std::span(blobs[i]).subspan<100, 4>(), static_cast<uint32_t>(i));
  EXPECT_LT(compact_blobs(pack(blobs), blobs.size()).size(), 18'000u);
}

// Goal: bytes that a broken peer may send are refused, and do not grow without bound.
TEST(BlobsTest, DamagedBytesAreRefused) {
  std::mt19937 random(2);
  const Blobs blobs = like_blobs(random, 12, 300);
  const auto compact = compact_blobs(pack(blobs), blobs.size());
  for (size_t length = 0; length < compact.size(); ++length)
    EXPECT_FALSE(holds_blobs(std::span(compact).first(length), blobs.size()));
  for (int trial = 0; trial < 2000; ++trial) {
    auto damaged = compact;
    damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    static_cast<void>(unpack_blobs(damaged, blobs.size()));
  }
  // A megabyte that is repeated a thousand times, in a few bytes each.
  std::vector<std::byte> bomb;
  append_blob(bomb, std::vector<std::byte>(1 << 20));
  for (int i = 0; i < 1000; ++i) {
    append_number(bomb, 1u << 20 | 1u << 31);
    for (uint32_t left = 1 << 20; left > 0; left -= std::min(left, 65'535u))
      append_number(bomb, std::min(left, 65'535u));
  }
  EXPECT_FALSE(holds_blobs(bomb, 1001));
}

}  // namespace
}  // namespace tutti::test
