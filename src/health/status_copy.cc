#include "health/status_copy.h"

#include "core/result.h"
#include "engine/call.h"
#include "net/wire.h"

namespace tutti {

std::string describe_status(uint32_t rank, const StatusCopy& status) {
  if (status.has_left == StatusPage::kDied || status.has_left == StatusPage::kSilent)
    return format("rank %u is lost", rank);
  if (status.has_left != StatusPage::kHere) return format("rank %u has left the communicator", rank);
  const std::string waits = status.waits_for != 0
                                ? format(", step %u, waiting for rank %u", status.step, status.waits_for - 1)
                                : "";
  if (status.in_messages != 0) {
    return format("rank %u is in send/recv", rank) + waits;
  }
  if (status.sequence == 0) return format("rank %u has made no collective call", rank);
  const std::string call = describe_call(status.call, status.count);
  if (status.completed >= status.sequence) {
    return format("rank %u has finished collective %llu, %s, and made no further one", rank,
                  static_cast<unsigned long long>(status.sequence), call.c_str());
  }
  return format("rank %u is in collective %llu, %s", rank, static_cast<unsigned long long>(status.sequence),
                call.c_str()) +
         waits;
}

std::array<std::byte, kStatusCopyBytes> encode(const StatusCopy& copy) {
  const std::array<uint64_t, 6> wide = {copy.sequence, copy.completed, copy.call,
                                        copy.count,    copy.shrink,    copy.unsent_bytes};
  const std::array<uint32_t, 5> narrow = {copy.waits_for, copy.step, copy.beat, copy.in_messages,
                                          copy.has_left};
  std::array<std::byte, kStatusCopyBytes> bytes{};
  size_t at = 0;
  const auto put = [&](uint64_t value) {
    put_u32(std::span<std::byte, 4>(bytes.data() + at, 4), static_cast<uint32_t>(value));
    at += 4;
  };
  for (const uint64_t value : wide) {
    put(value);
    put(value >> 32);
  }
  for (const uint32_t value : narrow) put(value);
  return bytes;
}

StatusCopy decode_status(std::span<const std::byte, kStatusCopyBytes> bytes) {
  StatusCopy copy;
  size_t at = 0;
  const auto get = [&] {
    const uint32_t value = get_u32(std::span<const std::byte, 4>(bytes.data() + at, 4));
    at += 4;
    return value;
  };
  for (uint64_t* value :
       {&copy.sequence, &copy.completed, &copy.call, &copy.count, &copy.shrink, &copy.unsent_bytes}) {
    const uint64_t low = get();
    *value = low | uint64_t{get()} << 32;
  }
  for (uint32_t* value : {&copy.waits_for, &copy.step, &copy.beat, &copy.in_messages, &copy.has_left}) {
    *value = get();
  }
  return copy;
}

}  // namespace tutti
