// Binding for short calls: assigns packets of mailboxes to the messages of a plan. Both ends count packets in
// the order in which they run the plan's steps, stripe by stripe, so they agree on positions.
#include <algorithm>
#include <array>
#include <cassert>

#include "engine/cuda/bind.h"
#include "engine/cut.h"
#include "plan/packets.h"

namespace tutti::cuda {
namespace {

// A call of few packets still has a table of some 60 packets, which its block loads at once (32 threads
// took 6.5 us for 350 packets on an H200).
constexpr uint32_t kLeastThreads = 4 * kWarpThreads;

bool is_link(const tutti::End& end) {
  return end.kind == tutti::EndKind::kLink && end.channel == 0;
}
bool reads_links(const tutti::Step& step) {
  return std::any_of(step.sources.begin(), step.sources.end(), is_link);
}

class ShortBinder {
 public:
  ShortBinder(const Plan& plan, const BindOptions& options, std::span<const MailLink> mail, Image& image)
      : plan_(plan), options_(options), mail_(mail), image_(image) {}

  void add_stripe(const Geometry& geometry) {
    geometry_ = &geometry;
    lane_ = {};
    lane_.data_bytes = data_bytes_;
    sent_ = received_ = {};
    pulls_.clear();
    for (const tutti::Lane& lane : plan_.lanes) {
      for (const tutti::Step& step : lane.steps) add_step(step);
    }
    greet();
    lane_.push_count = lane_.step_count;
    for (const ShortStep& pull : pulls_) add(pull);
    image_.short_lanes.push_back(lane_);
    // A launch needs one lane entry.
    image_.lanes.push_back(begin_lane(image_));
    image_.threads = std::max(image_.threads, threads_for(lane_));
  }

  /// Call after the last stripe. The first lane knows the packets that no lane uses.
  void find_unused() {
    ShortLane& first = image_.short_lanes.front();
    for (uint32_t peer = 0; peer < plan_.rank_count; ++peer) {
      assert(out_[peer] <= kMailPackets);
      first.unused[first.unused_count++] = {.location = mail_[peer].out, .used = out_[peer]};
    }
  }

 private:
  void add_step(const tutti::Step& step) {
    const uint64_t bytes = geometry_->agreed_chunk(step.first_chunk).bytes;
    if (bytes == 0) return;
    const StepUse use = StepUse::of(plan_, step, options_.op);
    ShortStep bound = make_step(bytes);
    bound.computes = use.copies ? 0 : 1;
    if (!reads_links(step)) {
      if (!use.copies) lane_.pushing_scaled = use.scaled_sources;
      bound.ends[bound.source_count++] = memory(step.sources[0]);
      for (const tutti::End& sink : step.sinks)
        add_sink(bound, is_link(sink) ? out(sink.peer, bound) : memory(sink));
      return add(bound);
    }
    if (!use.copies) {
      lane_.pulling_sources = static_cast<uint32_t>(step.sources.size());
      lane_.pulling_scaled = use.scaled_sources;
      lane_.pulling_finishes = use.finish ? 1 : 0;
    }
    for (const tutti::End& source : step.sources) {
      if (!is_link(source)) send_to_self(source, bytes);
      bound.ends[bound.source_count++] = in(is_link(source) ? source.peer : plan_.rank, bound);
    }
    for (const tutti::End& sink : step.sinks)
      add_sink(bound, is_link(sink) ? out(sink.peer, bound) : memory(sink));
    pulls_.push_back(bound);
  }

  void send_to_self(const tutti::End& input, uint64_t bytes) {
    ShortStep step = make_step(bytes);
    step.ends[step.source_count++] = memory(input);
    add_sink(step, out(plan_.rank, step));
    add(step);
  }

  /// Sends an empty packet to each rank that gets no other packet from this lane.
  void greet() {
    ShortStep push = make_step(0);
    ShortStep pull = make_step(0);
    for (uint32_t peer = 0; peer < plan_.rank_count; ++peer) {
      if (peer == plan_.rank) continue;
      if (!sent_[peer]) add_sink(push, out(peer, push));
      if (!received_[peer]) pull.ends[pull.source_count++] = in(peer, pull);
    }
    if (push.sink_count > 0) add(push);
    if (pull.source_count > 0) pulls_.push_back(pull);
  }

  ShortStep make_step(uint64_t bytes) const {
    ShortStep step{};
    step.bytes = static_cast<uint32_t>(bytes);
    step.packets = std::max(1u, (step.bytes + data_bytes_ - 1) / data_bytes_);
    return step;
  }

  void add(const ShortStep& step) {
    assert(lane_.step_count < kPacketStepsMax);
    lane_.steps[lane_.step_count++] = step;
  }
  static void add_sink(ShortStep& step, const ShortEnd& end) {
    step.ends[step.source_count + step.sink_count++] = end;
  }

  ShortEnd memory(const tutti::End& end) const {
    const bool is_input = end.kind == tutti::EndKind::kInput;
    return {.kind = is_input ? EndKind::kInput : EndKind::kOutput,
            .peer = 0,
            .location = (is_input ? geometry_->input_chunk(end.first_chunk)
                                  : geometry_->output_chunk(end.first_chunk))
                            .offset};
  }

  /// Takes the next packets to `peer`.
  ShortEnd out(uint32_t peer, const ShortStep& step) {
    sent_[peer] = true;
    const uint64_t first = out_[peer];
    out_[peer] += step.packets;
    return {.kind = EndKind::kSend, .peer = peer, .location = mail_[peer].out + first * kWholePacketBytes};
  }
  ShortEnd in(uint32_t peer, const ShortStep& step) {
    received_[peer] = true;
    const uint64_t first = in_[peer];
    in_[peer] += step.packets;
    return {.kind = EndKind::kReceive, .peer = peer, .location = mail_[peer].in + first * kWholePacketBytes};
  }

  /// One thread per packet of the longer part, at most kBlockThreads.
  static uint32_t threads_for(const ShortLane& lane) {
    std::array<uint32_t, 2> packets{};
    for (uint32_t i = 0; i < lane.step_count; ++i)
      packets[i < lane.push_count ? 0 : 1] += lane.steps[i].packets;
    const uint32_t most = std::max(packets[0], packets[1]);
    return std::min(kBlockThreads, (most + kWarpThreads - 1) / kWarpThreads * kWarpThreads);
  }

  const Plan& plan_;
  const BindOptions& options_;
  const std::span<const MailLink> mail_;
  Image& image_;
  const uint32_t data_bytes_ = data_of_packet(reduces(plan_.collective), type_bytes(options_.type));
  const Geometry* geometry_ = nullptr;
  ShortLane lane_{};
  std::vector<ShortStep> pulls_;  ///< run after all pushes of the lane
  std::array<bool, kPacketRanksMax> sent_{};
  std::array<bool, kPacketRanksMax> received_{};
  std::array<uint32_t, kPacketRanksMax> out_{};  ///< packets of each mailbox in use by the call
  std::array<uint32_t, kPacketRanksMax> in_{};
};

}  // namespace

Image bind_short(const Plan& plan, std::span<const Geometry> stripes, const BindOptions& options,
                 std::span<const MailLink> mail) {
  assert(suits_packets(plan) && stripes.size() <= kMaxShortLanes);
  Image image;
  image.threads = kLeastThreads;
  image.arithmetic = arithmetic_of(plan, options);
  ShortBinder binder(plan, options, mail, image);
  for (const Geometry& stripe : stripes) binder.add_stripe(stripe);
  binder.find_unused();
  return image;
}

}  // namespace tutti::cuda
