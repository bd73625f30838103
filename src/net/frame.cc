#include "net/frame.h"

#include <algorithm>
#include <utility>

#include "net/wire.h"

namespace tutti {
namespace {

// By how much a body grows at once.
constexpr size_t kStepBytes = 65536;

// Made when the library is loaded, and never destroyed.
const auto* const kInvalid = new Status(Code::kMismatch, "an invalid frame came");

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

std::span<std::byte> FrameReader::room() {
  if (header_bytes_ < kFrameHeaderBytes) return std::span(header_).subspan(header_bytes_);
  // Grows with the bytes received, not with the size announced.
  frame_.body.resize(std::min<size_t>(frame_.header.body_bytes, body_bytes_ + kStepBytes));
  return std::span(frame_.body).subspan(body_bytes_);
}

Status FrameReader::fill(size_t bytes) noexcept {
  if (header_bytes_ == kFrameHeaderBytes) {
    body_bytes_ += bytes;
    return Status::ok();
  }
  header_bytes_ += bytes;
  return header_bytes_ == kFrameHeaderBytes ? begin_body() : Status::ok();
}

Status FrameReader::begin_body() noexcept {
  frame_.header = {.kind = static_cast<FrameKind>(get_u32(field(header_, 0))),
                   .body_bytes = get_u32(field(header_, 1)),
                   .first = get_u32(field(header_, 2)),
                   .count = get_u32(field(header_, 3)),
                   .number = get_u32(field(header_, 4)),
                   .code = get_u32(field(header_, 5))};
  return made_or(*kInvalid, [this]() -> Status {
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
  });
}

Frame FrameReader::take() noexcept {
  header_bytes_ = 0;
  body_bytes_ = 0;
  return std::exchange(frame_, {});
}

void FrameReader::put_back(Frame&& frame) noexcept {
  frame_ = std::move(frame);
  header_bytes_ = kFrameHeaderBytes;
  body_bytes_ = frame_.header.body_bytes;
}

Status FrameReader::feed(std::span<const std::byte> bytes, std::vector<Frame>& frames) {
  while (!bytes.empty()) {
    const std::span<std::byte> place = room();
    const size_t taken = std::min(bytes.size(), place.size());
    std::copy_n(bytes.begin(), taken, place.begin());
    TUTTI_TRY(fill(taken));
    bytes = bytes.subspan(taken);
    if (is_whole()) frames.push_back(take());
  }
  return Status::ok();
}

}  // namespace tutti
