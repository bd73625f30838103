#include "engine/cuda/bind.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/types.h"
#include "engine/cuda/slice.h"
#include "engine/cut.h"
#include "engine/links.h"
#include "reduce/reduce.h"

namespace tutti::cuda {
namespace {

constexpr uint64_t kStripeScratchAlign = 64;
// A part of a message costs a few flags; a block copies about as many bytes meanwhile (an estimate).
constexpr uint64_t kMessagePartBytes = 65536;
constexpr uint64_t kMessagePartAlign = 128;

End send_end(uint32_t index) {
  return {.kind = EndKind::kSend, .lane_link = 0, .index = index};
}
End receive_end(uint32_t index) {
  return {.kind = EndKind::kReceive, .lane_link = 0, .index = index};
}
End memory_end(EndKind kind, uint32_t first_offset) {
  return {.kind = kind, .lane_link = 0, .index = first_offset};
}

/// Lists the links that the lane's ends name, and numbers them: ends of one link share its state.
void number_links(Image& image, Lane& lane) {
  std::vector<uint32_t> sends;
  std::vector<uint32_t> receives;
  for (size_t e = lane.first_end; e < image.ends.size(); ++e) {
    End& end = image.ends[e];
    if (end.kind != EndKind::kSend && end.kind != EndKind::kReceive) continue;
    std::vector<uint32_t>& links = end.kind == EndKind::kSend ? sends : receives;
    const auto known = std::find(links.begin(), links.end(), end.index);
    end.lane_link = static_cast<uint16_t>(known - links.begin());
    if (known == links.end()) links.push_back(end.index);
  }
  lane.kept_sends = static_cast<uint32_t>(sends.size());
  lane.kept_receives = static_cast<uint32_t>(receives.size());
  image.links.insert(image.links.end(), sends.begin(), sends.end());
  image.links.insert(image.links.end(), receives.begin(), receives.end());
}

/// Says what of the lane's tables the block keeps. First what every slice needs most.
void furnish_room(const Image& image, Lane& lane) {
  size_t left = kRoomBytes - 2 * lane.most_ends * sizeof(ReadyEnd);
  const auto keep = [&left](size_t count, size_t entry_bytes) {
    const bool fits = count * entry_bytes <= left;
    if (fits) left -= count * entry_bytes;
    return fits ? static_cast<uint32_t>(count) : 0;
  };
  const size_t link_bytes = lane.kept_sends * sizeof(SendLink) + lane.kept_receives * sizeof(RecvLink);
  if (keep(1, link_bytes) == 0) lane.kept_sends = lane.kept_receives = 0;
  lane.kept_ends = keep(image.ends.size() - lane.first_end, sizeof(End));
  lane.kept_chunks = keep(image.chunk_bytes.size() - lane.first_chunk, sizeof(uint64_t));
  lane.kept_offsets = keep(image.offsets.size() - lane.first_offset, sizeof(uint64_t));
  lane.kept_steps = keep(lane.step_count, sizeof(Step));
}

/// All steps have been added since begin_lane.
void add_lane(Image& image, Lane lane) {
  lane.step_count = static_cast<uint32_t>(image.steps.size()) - lane.first_step;
  for (size_t s = lane.first_step; s < image.steps.size(); ++s) {
    const Step& step = image.steps[s];
    const uint32_t ends = step.source_count + step.sink_count + step.companion_count;
    lane.most_ends = std::max(lane.most_ends, ends);
  }
  assert(lane.most_ends <= kMaxEnds);
  number_links(image, lane);
  furnish_room(image, lane);
  image.lanes.push_back(lane);
}

/// Makes the tables of one plan, stripe by stripe.
class Binder {
 public:
  Binder(const Plan& plan, const BindOptions& options, LinkIndex& links, Image& image)
      : plan_(plan), options_(options), links_(links), image_(image) {}

  void add_stripe(const Geometry& geometry, uint32_t index) {
    geometry_ = &geometry;
    stripe_ = index;
    cut_ = Cut::of(plan_, geometry, options_.slots, options_.slices());
    scratch_start_ = image_.scratch_bytes;
    for (const tutti::Lane& lane : plan_.lanes) {
      if (lane.steps.empty()) continue;
      Lane bound = begin_lane(image_);
      bound.round_count = cut_.round_count;
      if (cut_.round_count != 1) bound.round_bytes = cut_.round_bytes;
      for (const tutti::Step& step : lane.steps) add_step(step);
      add_lane(image_, bound);
    }
    const uint64_t scratch = plan_.scratch_chunks * cut_.scratch_stride;
    image_.scratch_bytes += (scratch + kStripeScratchAlign - 1) / kStripeScratchAlign * kStripeScratchAlign;
  }

 private:
  void add_step(const tutti::Step& step) {
    const StepUse use = StepUse::of(plan_, step, options_.op);
    Step bound{};
    bound.first_end = static_cast<uint32_t>(image_.ends.size());
    bound.source_count = static_cast<uint8_t>(step.sources.size());
    bound.sink_count = static_cast<uint8_t>(step.sinks.size());
    bound.slice_bytes = cut_.slice_bytes;
    bound.refer_end = use.refer_end;
    bound.copies = use.copies ? 1 : 0;
    bound.refers = use.refers ? 1 : 0;
    bound.finish = use.finish ? 1 : 0;
    bound.scaled_sources = use.scaled_sources;
    bound.chunk_count = cut_.merges ? 1 : step.chunk_count;
    bound.first_chunk = static_cast<uint32_t>(image_.chunk_bytes.size());
    if (cut_.merges) {
      image_.chunk_bytes.push_back(merged_bytes(step, *geometry_));
    } else {
      for (uint32_t k = 0; k < step.chunk_count; ++k)
        image_.chunk_bytes.push_back(geometry_->agreed_chunk(step.first_chunk + k).bytes);
    }
    for (const tutti::End& end : step.sources) add_end(end, bound.chunk_count, false);
    for (const tutti::End& end : step.sinks) add_end(end, bound.chunk_count, true);
    add_companions(step, bound);
    bound.contributes = contributes(step) ? 1 : 0;
    if (options_.direct_writes && bound.published == 0)
      find_exposed_buffers(direct_write_peers(plan_, step, use), bound);
    image_.steps.push_back(bound);
  }

  void add_end(const tutti::End& end, uint32_t chunk_count, bool is_sink) {
    if (end.kind == tutti::EndKind::kCollect) return add_contribution(0);
    if (end.kind == tutti::EndKind::kPublish) return add_reader(plan_.rank == 0 ? 1 : 0);
    if (end.kind == tutti::EndKind::kLink && end.channel >= kCollectChannel) {
      image_.ends.push_back(
          is_sink ? send_end(links_.send_multicast(end.peer, stripe_, Multicast::kCollect))
                  : receive_end(links_.receive_multicast(end.peer, stripe_, Multicast::kPublish)));
      return;
    }
    if (end.kind == tutti::EndKind::kLink) {
      const LinkName name{.stripe = stripe_, .channel = end.channel};
      image_.ends.push_back(is_sink ? send_end(links_.send(end.peer, name))
                                    : receive_end(links_.receive(end.peer, name)));
      return;
    }
    const auto first = static_cast<uint32_t>(image_.offsets.size());
    for (uint32_t k = 0; k < chunk_count; ++k) image_.offsets.push_back(offset(end, end.first_chunk + k));
    image_.ends.push_back(memory_end(kind(end.kind), first));
  }

  static bool contributes(const tutti::Step& step) {
    return std::any_of(step.sinks.begin(), step.sinks.end(), [](const tutti::End& sink) {
      return sink.kind == tutti::EndKind::kLink && sink.channel == kCollectChannel;
    });
  }
  void add_contribution(uint32_t peer) {
    image_.ends.push_back(receive_end(links_.receive_multicast(peer, stripe_, Multicast::kCollect)));
  }
  void add_reader(uint32_t peer) {
    image_.ends.push_back(send_end(links_.send_multicast(peer, stripe_, Multicast::kPublish)));
  }

  /// A collect or publish end stands for many links. The end itself is the first link, its companions are the
  /// others.
  void add_companions(const tutti::Step& step, Step& bound) {
    const size_t before = image_.ends.size();
    if (step.sources[0].kind == tutti::EndKind::kCollect) {
      bound.collects = 1;
      for (uint32_t peer = 1; peer < plan_.rank_count; ++peer) add_contribution(peer);
    }
    for (size_t m = 0; m < step.sinks.size(); ++m) {
      if (step.sinks[m].kind != tutti::EndKind::kPublish) continue;
      bound.published = static_cast<uint8_t>(1u << m);
      assert(bound.copies != 0 || bound.collects != 0);
      for (uint32_t peer = plan_.rank == 0 ? 2 : 1; peer < plan_.rank_count; ++peer) {
        if (peer != plan_.rank) add_reader(peer);
      }
    }
    bound.companion_count = static_cast<uint8_t>(image_.ends.size() - before);
    assert(bound.companion_count == 0 || plan_.rank_count <= kMaxMulticastRanks);
  }

  static EndKind kind(tutti::EndKind of) {
    if (of == tutti::EndKind::kInput) return EndKind::kInput;
    return of == tutti::EndKind::kOutput ? EndKind::kOutput : EndKind::kScratch;
  }

  uint64_t offset(const tutti::End& end, uint32_t chunk) const {
    if (end.kind == tutti::EndKind::kInput) return geometry_->input_chunk(chunk).offset;
    if (end.kind == tutti::EndKind::kOutput) return geometry_->output_chunk(chunk).offset;
    return scratch_start_ + chunk * cut_.scratch_stride;
  }

  void find_exposed_buffers(const std::vector<uint32_t>& peers, Step& bound) {
    std::vector<PeerExposedBuffer> exposed;
    exposed.reserve(peers.size());
    for (const uint32_t peer : peers) exposed.push_back(links_.exposed_buffer(peer));
    if (std::any_of(exposed.begin(), exposed.end(),
                    [](const PeerExposedBuffer& e) { return e.buffer == nullptr; }))
      return;
    bound.first_exposed = static_cast<uint32_t>(image_.exposed.size());
    bound.exposed_count = static_cast<uint8_t>(exposed.size());
    image_.exposed.insert(image_.exposed.end(), exposed.begin(), exposed.end());
  }

  const Plan& plan_;
  const BindOptions& options_;
  LinkIndex& links_;
  Image& image_;
  const Geometry* geometry_ = nullptr;
  uint32_t stripe_ = 0;
  Cut cut_;
  uint64_t scratch_start_ = 0;
};

/// The bytes of a message that part `index` of `count` holds.
Message message_part(const Message& message, uint32_t index, uint32_t count) {
  const uint64_t even = (message.bytes + count - 1) / count;
  const uint64_t stride = (even + kMessagePartAlign - 1) / kMessagePartAlign * kMessagePartAlign;
  const uint64_t start = index * stride;
  Message part = message;
  part.buffer = static_cast<std::byte*>(message.buffer) + start;
  part.bytes = std::min(stride, message.bytes - start);
  return part;
}

/// `message`: the part `index` of a message.
void add_message(const Message& message, uint32_t index, const BindOptions& options, LinkIndex& links,
                 Image& image) {
  const LinkName name{.stripe = index, .channel = kMessageChannel};
  Step step{};
  step.first_end = static_cast<uint32_t>(image.ends.size());
  step.first_chunk = static_cast<uint32_t>(image.chunk_bytes.size());
  step.chunk_count = 1;
  step.slice_bytes = slice_bytes_for(message.bytes, options.slices());
  step.source_count = 1;
  step.sink_count = 1;
  step.copies = 1;
  step.refers = message.sending ? 1 : 0;
  step.sends_empty = 1;
  step.signature = history_signature(next_history(0, message.seed));
  step.location = message.sending ? links.find_location(message.buffer, message.bytes) : 0;
  const End memory = memory_end(EndKind::kAbsolute, static_cast<uint32_t>(image.offsets.size()));
  image.offsets.push_back(reinterpret_cast<uint64_t>(message.buffer));
  image.chunk_bytes.push_back(message.bytes);
  if (message.sending) {
    image.ends.push_back(memory);
    image.ends.push_back(send_end(links.send(message.peer, name)));
  } else {
    image.ends.push_back(receive_end(links.receive(message.peer, name)));
    image.ends.push_back(memory);
  }
  image.steps.push_back(step);
}

/// Adds the lane of all messages' parts `part.index` that have the peer and the direction of `first`.
void add_message_lane(std::span<const Message> messages, const Message& first, Stripe part,
                      const BindOptions& options, LinkIndex& links, Image& image) {
  const Lane lane = begin_lane(image);
  for (const Message& message : messages) {
    if (message.peer != first.peer || message.sending != first.sending) continue;
    const uint32_t parts = message_parts(message.bytes, part.count);
    if (part.index >= parts) continue;
    add_message(message_part(message, part.index, parts), part.index, options, links, image);
  }
  if (image.steps.size() > lane.first_step) add_lane(image, lane);
}

/// A Program has at least one lane, whose block counts the operation.
void add_lane_if_none(Image& image) {
  if (image.lanes.empty()) add_lane(image, begin_lane(image));
}

constexpr size_t kTableAlign = 16;

size_t aligned(size_t bytes) {
  return (bytes + kTableAlign - 1) / kTableAlign * kTableAlign;
}

template <class T>
size_t table_bytes(const std::vector<T>& table) {
  return aligned(table.size() * sizeof(T));
}

/// The bytes of the longest table, whose unused steps are its end.
uint64_t used_bytes(const std::vector<ShortLane>& lanes) {
  uint32_t steps = 0;
  for (const ShortLane& lane : lanes) steps = std::max(steps, lane.step_count);
  return aligned(offsetof(ShortLane, steps) + steps * sizeof(ShortStep));
}

/// Writes tables one after another and returns the address of each.
class Packer {
 public:
  Packer(uint64_t address, std::byte* out, size_t start) : address_(address), out_(out), used_(start) {}

  template <class T>
  T* add(const std::vector<T>& table) {
    if (!table.empty()) std::memcpy(out_ + used_, table.data(), table.size() * sizeof(T));
    auto* object = reinterpret_cast<T*>(address_ + used_);
    used_ += table_bytes(table);
    return object;
  }

 private:
  uint64_t address_;
  std::byte* out_;
  size_t used_;
};

}  // namespace

Arithmetic arithmetic_of(const Plan& plan, const BindOptions& options) {
  const auto association = options.reproducible ? reduce::Association::kTree : reduce::Association::kLeft;
  return {.type = static_cast<uint32_t>(options.type),
          .op = static_cast<uint32_t>(options.op),
          .association = static_cast<uint32_t>(association),
          .element_bytes = static_cast<uint32_t>(type_bytes(options.type)),
          .divisor = plan.rank_count,
          .scale_bits = options.premul_scalar_bits};
}

Lane begin_lane(const Image& image) {
  Lane lane{};
  lane.first_step = static_cast<uint32_t>(image.steps.size());
  lane.round_count = 1;
  lane.round_bytes = UINT64_MAX;
  lane.first_end = static_cast<uint32_t>(image.ends.size());
  lane.first_chunk = static_cast<uint32_t>(image.chunk_bytes.size());
  lane.first_offset = static_cast<uint32_t>(image.offsets.size());
  lane.first_link = static_cast<uint32_t>(image.links.size());
  return lane;
}

Image bind(const Plan& plan, std::span<const Geometry> stripes, const BindOptions& options,
           LinkIndex& links) {
  Image image;
  image.reference_bytes = options.reference_bytes;
  image.arithmetic = arithmetic_of(plan, options);
  Binder binder(plan, options, links, image);
  for (uint32_t i = 0; i < stripes.size(); ++i) binder.add_stripe(stripes[i], i);
  add_lane_if_none(image);
  return image;
}

uint32_t message_parts(uint64_t bytes, uint32_t most) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / kMessagePartBytes, 1, most));
}

/// First the lanes of all first parts: if blocks take the lanes in turn, no peer waits for another's parts.
Image bind_messages(std::span<const Message> messages, const BindOptions& options, LinkIndex& links,
                    uint32_t most_parts) {
  Image image;
  image.reference_bytes = options.reference_bytes;
  image.is_collective = false;
  image.arithmetic.element_bytes = 1;
  std::vector<const Message*> firsts;
  for (const Message& message : messages) {
    const bool known = std::any_of(firsts.begin(), firsts.end(), [&](const Message* first) {
      return first->peer == message.peer && first->sending == message.sending;
    });
    if (!known) firsts.push_back(&message);
  }
  for (uint32_t index = 0; index < most_parts; ++index) {
    for (const Message* first : firsts)
      add_message_lane(messages, *first, {index, most_parts}, options, links, image);
  }
  add_lane_if_none(image);
  return image;
}

size_t packed_bytes(const Image& image) {
  return aligned(sizeof(Program)) + table_bytes(image.steps) + table_bytes(image.ends) +
         table_bytes(image.offsets) + table_bytes(image.chunk_bytes) + table_bytes(image.links) +
         table_bytes(image.lanes) + table_bytes(image.exposed) + table_bytes(image.short_lanes) +
         aligned(image.lanes.size() * sizeof(Position));
}

void pack(const Image& image, const Surroundings& around, uint64_t address, std::byte* out) {
  Packer packer(address, out, aligned(sizeof(Program)));
  Program program{};
  program.steps = packer.add(image.steps);
  program.ends = packer.add(image.ends);
  program.offsets = packer.add(image.offsets);
  program.chunk_bytes = packer.add(image.chunk_bytes);
  program.links = packer.add(image.links);
  program.lanes = packer.add(image.lanes);
  program.exposed = packer.add(image.exposed);
  program.short_lanes = image.short_lanes.empty() ? nullptr : packer.add(image.short_lanes);
  program.short_bytes = used_bytes(image.short_lanes);
  program.positions = packer.add(std::vector<Position>(image.lanes.size()));
  program.sends = around.sends;
  program.receives = around.receives;
  program.state = around.state;
  program.signals = around.signals;
  program.scratch = around.scratch;
  program.lane_count = static_cast<uint32_t>(image.lanes.size());
  program.reference_bytes = image.reference_bytes;
  program.signature_seed = image.signature_seed;
  program.is_collective = image.is_collective ? 1 : 0;
  program.arithmetic = image.arithmetic;
  std::memcpy(out, &program, sizeof(program));
}

}  // namespace tutti::cuda
