#include "health/status_copy.h"

#include <algorithm>
#include <type_traits>

#include "core/result.h"
#include "engine/call.h"
#include "net/wire.h"

namespace tutti {

namespace {

std::string describe_wait(const StatusCopy& status) {
  if (status.waits_for == 0) return "";
  const uint32_t peer = status.waits_for - 1;
  if (peer == kAnyRank) return ", waiting for a message of any rank";
  return format(", step %u, waiting for rank %u", status.step, peer);
}

}  // namespace

std::string describe_status(uint32_t rank, const StatusCopy& status) {
  if (status.presence == StatusPage::kDied || status.presence == StatusPage::kSilent)
    return format("rank %u is lost", rank);
  if (status.presence != StatusPage::kHere) return format("rank %u has left the communicator", rank);
  const std::string waits = describe_wait(status);
  if (status.in_messages != 0) return format("rank %u is in send/recv", rank) + waits;
  if (status.sequence == 0) return format("rank %u has made no collective call", rank);
  const std::string call = describe_call(status.call().call, status.call().count);
  if (status.completed >= status.sequence) {
    return format("rank %u has finished collective %llu, %s, and made no further one", rank,
                  static_cast<unsigned long long>(status.sequence), call.c_str());
  }
  return format("rank %u is in collective %llu, %s", rank, static_cast<unsigned long long>(status.sequence),
                call.c_str()) +
         waits;
}

const CallRunCopy* StatusCopy::call_at(uint64_t number) const {
  const auto run = std::find_if(runs.begin(), runs.end(), [number](const CallRunCopy& each) {
    return each.first != 0 && each.first <= number;
  });
  return run == runs.end() || number > sequence ? nullptr : &*run;
}

void StatusCopy::copy_runs(const StatusPage& page, StatusCopy& copy) {
  const uint32_t made = page.run_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < std::min(made, kCallRuns); ++i) {
    const CallRun& run = page.runs[(made - 1 - i) % kCallRuns];
    copy.runs[i] = {.first = run.first.load(std::memory_order_relaxed),
                    .call = run.call.load(std::memory_order_relaxed),
                    .count = run.count.load(std::memory_order_relaxed),
                    .counts = run.counts.load(std::memory_order_relaxed)};
  }
}

namespace {

/// Calls `visit` for each number of the copy, in the order of the encoding.
template <class Copy, class Visit>
void visit_numbers(Copy& copy, Visit&& visit) {
  for (auto* value : {&copy.sequence, &copy.completed, &copy.history, &copy.shrink, &copy.unconfirmed_bytes})
    visit(*value);
  for (auto* value :
       {&copy.waits_for, &copy.step, &copy.waited_ms, &copy.beat, &copy.in_messages, &copy.presence})
    visit(*value);
  for (auto& run : copy.runs) {
    for (auto* value : {&run.first, &run.call, &run.count, &run.counts}) visit(*value);
  }
}

}  // namespace

std::array<std::byte, kStatusCopyBytes> encode(const StatusCopy& copy) {
  std::array<std::byte, kStatusCopyBytes> bytes{};
  size_t at = 0;
  visit_numbers(copy, [&](auto value) {
    for (size_t shift = 0; shift < 8 * sizeof(value); shift += 32, at += 4)
      put_u32(std::span<std::byte, 4>(bytes.data() + at, 4), static_cast<uint32_t>(uint64_t{value} >> shift));
  });
  return bytes;
}

StatusCopy decode_status(std::span<const std::byte, kStatusCopyBytes> bytes) {
  StatusCopy copy;
  size_t at = 0;
  visit_numbers(copy, [&](auto& value) {
    uint64_t number = 0;
    for (size_t shift = 0; shift < 8 * sizeof(value); shift += 32, at += 4)
      number |= uint64_t{get_u32(std::span<const std::byte, 4>(bytes.data() + at, 4))} << shift;
    value = static_cast<std::remove_reference_t<decltype(value)>>(number);
  });
  return copy;
}

}  // namespace tutti
