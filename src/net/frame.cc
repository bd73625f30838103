#include "net/frame.h"

#include <algorithm>
#include <utility>

#include "net/wire.h"

namespace tutti {
namespace {

std::span<const std::byte, 4> field(const std::array<std::byte, kFrameHeaderBytes>& bytes, size_t index) {
  return std::span<const std::byte, 4>(bytes.data() + 4 * index, 4);
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> encode(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  const std::array<uint32_t, 6> values = {static_cast<uint32_t>(header.kind),
                                          header.body_bytes,
                                          header.first,
                                          header.count,
                                          header.number,
                                          header.code};
  for (size_t i = 0; i < values.size(); ++i)
    put_u32(std::span<std::byte, 4>(bytes.data() + 4 * i, 4), values[i]);
  return bytes;
}

Status Frame::failure() const {
  const auto code = static_cast<Code>(header.code);
  const bool known = header.code >= static_cast<uint32_t>(Code::kInvalidArgument) &&
                     header.code <= static_cast<uint32_t>(Code::kVersionMismatch);
  return {known ? code : Code::kInternal,
          body.empty() ? "a peer reported a failure without a reason" : text()};
}

Status FrameReader::begin_body() {
  frame_.header = {.kind = static_cast<FrameKind>(get_u32(field(header_, 0))),
                   .body_bytes = get_u32(field(header_, 1)),
                   .first = get_u32(field(header_, 2)),
                   .count = get_u32(field(header_, 3)),
                   .number = get_u32(field(header_, 4)),
                   .code = get_u32(field(header_, 5))};
  const FrameHeader& header = frame_.header;
  if (header.kind < FrameKind::kJoin || header.kind > FrameKind::kRenew) {
    return {Code::kMismatch, format("a frame of unknown kind %u came", static_cast<unsigned>(header.kind))};
  }
  const bool blobs = header.kind == FrameKind::kUp || header.kind == FrameKind::kDown;
  const size_t most = blobs ? body_bytes_max_ : kMaxFrameText;
  if (header.body_bytes > most) {
    return {Code::kMismatch, format("a frame of kind %u announced %u bytes, at most %zu are legal",
                                    static_cast<unsigned>(header.kind), header.body_bytes, most)};
  }
  return Status::ok();
}

Status FrameReader::feed(std::span<const std::byte> bytes, std::vector<Frame>& frames) {
  while (!bytes.empty() || (header_bytes_ == kFrameHeaderBytes && frame_.header.body_bytes == 0)) {
    if (header_bytes_ < kFrameHeaderBytes) {
      const size_t taken = std::min(bytes.size(), kFrameHeaderBytes - header_bytes_);
      std::copy_n(bytes.begin(), taken, header_.begin() + static_cast<std::ptrdiff_t>(header_bytes_));
      header_bytes_ += taken;
      bytes = bytes.subspan(taken);
      if (header_bytes_ < kFrameHeaderBytes) return Status::ok();
      TUTTI_TRY(begin_body());
    }
    // Grows with the bytes received, not with the size announced.
    const size_t taken = std::min(bytes.size(), frame_.header.body_bytes - frame_.body.size());
    frame_.body.insert(frame_.body.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
    if (frame_.body.size() < frame_.header.body_bytes) return Status::ok();
    frames.push_back(std::exchange(frame_, {}));
    header_bytes_ = 0;
  }
  return Status::ok();
}

}  // namespace tutti
