// What server and ranks say to each other during set-up. Plain structs: both sides run the same version on
// one host, which is checked before anything else is read.
#pragma once

#include <array>
#include <cstdint>

namespace tutti::bootstrap {

inline constexpr uint32_t kMagic = 0x54555454;  // "TUTT"
inline constexpr uint32_t kMaxBlobBytes = 512;

enum class Kind : uint32_t {
  kJoin = 1,       ///< rank -> server: Join
  kGather = 2,     ///< rank -> server: Header, blob; server -> rank: Header, then per rank its blob
  kFail = 3,       ///< both ways: Header (code), text
  kAbsent = 4,     ///< rank -> server: who is missing? server -> rank: Header, text; none: nobody
  kElsewhere = 5,  ///< server -> rank: Header: go to the network addresses of the id
};

struct Header {
  Kind kind = Kind::kJoin;
  uint32_t first_rank = 0;  ///< kGather from the server: blobs of ranks [first_rank, first_rank + count)
  uint32_t count = 0;
  uint32_t blob_bytes = 0;
  int32_t code = 0;   ///< kFail
  uint32_t last = 0;  ///< kGather to the server: 1 = this rank leaves when it is done
};

struct Join {
  Header header;
  uint32_t magic = kMagic;
  uint32_t version = 0;
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  std::array<std::byte, 32> key{};
};

}  // namespace tutti::bootstrap
