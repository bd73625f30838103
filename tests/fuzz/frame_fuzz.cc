// Fuzz target: what ranks say to each other after the handshake: frames, and the endpoints inside them. Any
// bytes are refused or become frames, within the bound that the reader was given, and cut in any way they
// become the same ones.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "net/endpoint.h"
#include "net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  using namespace tutti;
  constexpr size_t kBodyMax = 512;
  if (data_bytes == 0) return 0;
  const size_t piece = data[0] % 50 + size_t{1};
  const auto bytes = std::as_bytes(std::span(data, data_bytes)).subspan(1);
  FrameReader whole(kBodyMax);
  FrameReader cut(kBodyMax);
  std::vector<Frame> frames;
  std::vector<Frame> cut_frames;
  const bool good = whole.feed(bytes, frames).is_ok();
  bool cut_good = true;
  for (size_t at = 0; at < bytes.size() && cut_good; at += piece) {
    cut_good = cut.feed(bytes.subspan(at, std::min(piece, bytes.size() - at)), cut_frames).is_ok();
  }
  if (good != cut_good || frames.size() != cut_frames.size()) std::abort();
  for (const Frame& frame : frames) {
    if (frame.body.size() > std::max(kBodyMax, kMaxFrameText) || frame.failure().is_ok()) std::abort();
    if (frame.body.size() < kPackedEndpointsBytes) continue;
    const auto endpoints = unpack_endpoints(
        std::span<const std::byte, kPackedEndpointsBytes>(frame.body.data(), kPackedEndpointsBytes));
    if (!endpoints) continue;
    // What was read can be written; read again it is at most what it was.
    const auto again = unpack_endpoints(pack_endpoints(*endpoints));
    if (!again || again->size() > endpoints->size()) std::abort();
    for (const Endpoint& endpoint : *endpoints) {
      if (endpoint.text().empty()) std::abort();
    }
  }
  return 0;
}
