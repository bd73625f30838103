#include "plan/packets.h"

#include <algorithm>
#include <array>

#include "core/types.h"
#include "plan/plan.h"

namespace tutti {
namespace {

// Messages are cut at multiples of 64 bytes, for which a mailbox has room with two from a rank to another.
constexpr uint32_t kMessagesMax = 2;

bool is_link(const End& end) {
  return end.kind == EndKind::kLink && end.channel == 0;
}
bool reads_links(const Step& step) {
  return std::ranges::any_of(step.sources, is_link);
}
bool sends(const Step& step) {
  return std::ranges::any_of(step.sinks, is_link);
}

/// Such a step copies the input, or combines messages and input. It reads nothing that another step has
/// written to memory.
bool suits(const Step& step) {
  if (step.chunk_count != 1 || step.sources.size() + step.sinks.size() > kPacketEndsMax) return false;
  if (!reads_links(step) && step.sources.size() != 1) return false;
  const auto is_known = [](const End& source) { return is_link(source) || source.kind == EndKind::kInput; };
  return std::ranges::all_of(step.sources, is_known) && std::ranges::all_of(step.sinks, [](const End& sink) {
           return sink.kind == EndKind::kOutput || is_link(sink);
         });
}

/// Steps of a lane of the engine, with greetings.
size_t engine_steps(const Plan& plan) {
  size_t count = 2;
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      const auto inputs = std::ranges::count(step.sources, EndKind::kInput, &End::kind);
      count += 1 + (reads_links(step) ? static_cast<size_t>(inputs) : 0);
    }
  }
  return count;
}

uint32_t most_messages_to_a_peer(const Plan& plan) {
  std::array<uint32_t, kPacketRanksMax> messages{};
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      for (const End& sink : step.sinks) messages[sink.peer] += is_link(sink) ? 1 : 0;
    }
  }
  return std::ranges::max(messages);
}

}  // namespace

uint64_t packet_bytes_max(const Request& request, uint64_t full_bytes) {
  const uint64_t data = data_of_packet(reduces(request.collective), type_bytes(request.type));
  return full_bytes * data / kFullPacketDataBytes;
}

bool suits_packets(const Plan& plan) {
  if (plan.rank_count < 2 || plan.rank_count > kPacketRanksMax) return false;
  // At most one step computes with received data.
  uint32_t reductions = 0;
  bool relays = false;
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      if (!suits(step)) return false;
      reductions += step.sources.size() > 1 ? 1 : 0;
      relays = relays || (reads_links(step) && sends(step));
    }
  }
  // A block runs the steps of all lanes one after the other. Only within a lane has a plan an order in which
  // messages may wait for messages.
  return reductions <= 1 && (!relays || plan.lanes.size() == 1) && engine_steps(plan) <= kPacketStepsMax &&
         most_messages_to_a_peer(plan) <= kMessagesMax;
}

}  // namespace tutti
