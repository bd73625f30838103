// Goal: a Program sends and expects exactly the messages that the host's Operation does for the same plan, so
// that a GPU rank and a CPU rank can share a link. Method: every algorithm is run by Operations over links
// that write down each message's bytes; the tables of the Program are walked by the rules of program.h.
#include "engine/cuda/bind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/call.h"
#include "engine/cuda/slice.h"
#include "engine/links.h"
#include "tests/engine/raw_links.h"

namespace tutti::test {
namespace {

/// Bytes of the messages of every (peer, channel) that a rank sends.
using Traffic = std::map<std::pair<uint32_t, uint32_t>, std::vector<uint64_t>>;

/// Numbers links as they are asked for.
class CountingIndex final : public cuda::LinkIndex {
 public:
  uint32_t send(uint32_t peer, cuda::LinkName name) override { return find(sends, peer, channel_of(name)); }
  uint32_t receive(uint32_t peer, cuda::LinkName name) override {
    return find(receives, peer, channel_of(name));
  }
  uint32_t send_multicast(uint32_t peer, uint32_t stripe, cuda::Multicast use) override {
    return find(sends, peer, channel_of(stripe, use));
  }
  uint32_t receive_multicast(uint32_t peer, uint32_t stripe, cuda::Multicast use) override {
    return find(receives, peer, channel_of(stripe, use));
  }
  static uint32_t channel_of(cuda::LinkName name) {
    const bool is_part = name.channel == kMessageChannel && name.stripe > 0;
    return is_part ? 2000 + name.stripe : channel_of_stripe(name.stripe, name.channel);
  }
  static uint32_t channel_of(uint32_t stripe, cuda::Multicast use) {
    return 1000 + 2 * stripe + static_cast<uint32_t>(use);
  }
  cuda::PeerExposedBuffer exposed_buffer(uint32_t peer) override {
    return {.buffer = &exposed[peer], .registered = nullptr};
  }

  std::vector<std::pair<uint32_t, uint32_t>> sends;
  std::vector<std::pair<uint32_t, uint32_t>> receives;
  std::map<uint32_t, ExposedBuffer> exposed;

 private:
  static uint32_t find(std::vector<std::pair<uint32_t, uint32_t>>& links, uint32_t peer, uint32_t channel) {
    const auto found = std::find(links.begin(), links.end(), std::pair(peer, channel));
    if (found != links.end()) return static_cast<uint32_t>(found - links.begin());
    links.emplace_back(peer, channel);
    return static_cast<uint32_t>(links.size() - 1);
  }
};

/// The slices of one step in one round, to all its links.
void walk_step(const cuda::Image& image, const cuda::Step& step, uint64_t start, uint64_t round_bytes,
               const CountingIndex& index, Traffic& traffic) {
  for (uint32_t k = 0; k < step.chunk_count; ++k) {
    const uint64_t chunk = image.chunk_bytes[step.first_chunk + k];
    uint64_t left = std::min(chunk - std::min(chunk, start), round_bytes);
    for (bool empty = left == 0 && step.sends_empty != 0; left > 0 || empty; empty = false) {
      const uint64_t bytes = std::min(left, step.slice_bytes);
      for (uint32_t e = step.source_count; e < uint32_t{step.source_count} + step.sink_count; ++e) {
        const cuda::End& end = image.ends[step.first_end + e];
        if (end.kind == cuda::EndKind::kSend) traffic[index.sends[end.index]].push_back(bytes);
      }
      left -= bytes;
    }
  }
}

Traffic walk(const cuda::Image& image, const CountingIndex& index) {
  Traffic traffic;
  for (const cuda::Lane& lane : image.lanes) {
    for (uint32_t round = 0; round < lane.round_count; ++round) {
      const uint64_t start = round == 0 ? 0 : round * lane.round_bytes;
      for (uint32_t s = 0; s < lane.step_count; ++s)
        walk_step(image, image.steps[lane.first_step + s], start, lane.round_bytes, index, traffic);
    }
  }
  return traffic;
}

/// Each lane's tables lie where it says, its links are its own, and what its block keeps fits.
void expect_sound_lanes(const cuda::Image& image, const std::string& what) {
  std::set<std::pair<cuda::EndKind, uint32_t>> taken;
  for (const cuda::Lane& lane : image.lanes) {
    std::set<std::pair<cuda::EndKind, uint32_t>> links;
    for (uint32_t s = 0; s < lane.step_count; ++s) {
      const cuda::Step& step = image.steps[lane.first_step + s];
      const uint32_t ends = uint32_t{step.source_count} + step.sink_count + step.companion_count;
      EXPECT_LE(ends, lane.most_ends) << what;
      EXPECT_GE(step.first_end, lane.first_end) << what;
      EXPECT_GE(step.first_chunk, lane.first_chunk) << what;
      EXPECT_TRUE(lane.kept_ends == 0 || step.first_end + ends <= lane.first_end + lane.kept_ends) << what;
      EXPECT_TRUE(lane.kept_chunks == 0 ||
                  step.first_chunk + step.chunk_count <= lane.first_chunk + lane.kept_chunks)
          << what;
      for (uint32_t e = 0; e < ends; ++e) {
        const cuda::End& end = image.ends[step.first_end + e];
        const bool sends = end.kind == cuda::EndKind::kSend;
        if (sends || end.kind == cuda::EndKind::kReceive) {
          links.emplace(end.kind, end.index);
          if (lane.kept_sends + lane.kept_receives == 0) continue;
          ASSERT_LT(end.lane_link, sends ? lane.kept_sends : lane.kept_receives) << what;
          EXPECT_EQ(image.links[lane.first_link + (sends ? 0 : lane.kept_sends) + end.lane_link], end.index);
        } else {
          EXPECT_GE(end.index, lane.first_offset) << what;
          EXPECT_TRUE(lane.kept_offsets == 0 ||
                      end.index + step.chunk_count <= lane.first_offset + lane.kept_offsets)
              << what;
        }
      }
    }
    for (const auto& link : links)
      EXPECT_TRUE(taken.insert(link).second) << what << ": two lanes name a link";
    EXPECT_LE(2 * lane.most_ends * sizeof(cuda::ReadyEnd) + lane.kept_sends * sizeof(cuda::SendLink) +
                  lane.kept_receives * sizeof(cuda::RecvLink) + lane.kept_ends * sizeof(cuda::End) +
                  (lane.kept_chunks + lane.kept_offsets) * sizeof(uint64_t) +
                  lane.kept_steps * sizeof(cuda::Step),
              cuda::kRoomBytes)
        << what;
  }
}

/// The links of one stripe of a rank. Notes what it has sent since the last look; at most a ring of messages
/// lies between two looks.
class StripeLinks final : public LinkTable {
 public:
  StripeLinks(RawNetwork& network, uint32_t rank, uint32_t stripe)
      : network_(network), rank_(rank), stripe_(stripe) {}
  SendLink* send_link(uint32_t peer, uint32_t channel) override {
    const uint32_t own = channel_of_stripe(stripe_, channel);
    return sends_[{peer, own}] = &network_.send(rank_, peer, own);
  }
  RecvLink* recv_link(uint32_t peer, uint32_t channel) override {
    return &network_.recv(peer, rank_, channel_of_stripe(stripe_, channel));
  }
  SendLink* publish_link() override { return nullptr; }
  RecvLink* published_by(uint32_t) override { return nullptr; }

  void look(Traffic& traffic) {
    for (const auto& [name, link] : sends_) {
      for (uint64_t& seen = seen_[name]; seen < link->next; ++seen)
        traffic[name].push_back(flag::bytes(load_shared(link->cells[seen & link->slot_mask].word)));
    }
  }

 private:
  RawNetwork& network_;
  uint32_t rank_;
  uint32_t stripe_;
  std::map<std::pair<uint32_t, uint32_t>, SendLink*> sends_;  ///< by peer and channel
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> seen_;
};

/// One call of all ranks, and what it takes to bind it.
struct CutCase {
  const Algorithm* algorithm;
  Request request;
  Facts facts;
  BindOptions options;
  uint32_t stripes;
};

Geometry geometry_of(const CutCase& cut, const Plan& plan, uint32_t stripe) {
  return Geometry::uniform(plan, cut.request.block_bytes, {stripe, cut.stripes});
}

/// What the host's operations send, rank by rank.
std::vector<Traffic> host_traffic(const CutCase& cut) {
  const uint32_t ranks = cut.request.rank_count;
  RawNetwork network({.slots = cut.options.slots, .slot_bytes = cut.options.slot_bytes});
  struct Run {
    uint32_t rank;
    std::unique_ptr<StripeLinks> links;
    std::unique_ptr<Operation> operation;
  };
  std::vector<Run> runs;
  std::vector<std::vector<std::byte>> memory(2 * size_t{ranks});
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const Plan plan = cut.algorithm->make(cut.request, cut.facts, rank);
    auto& input = memory[2 * size_t{rank}];
    auto& output = memory[2 * size_t{rank} + 1];
    input.resize(ranks * cut.request.block_bytes + 1);
    output.resize(ranks * cut.request.block_bytes + 1);
    for (uint32_t stripe = 0; stripe < cut.stripes; ++stripe) {
      auto links = std::make_unique<StripeLinks>(network, rank, stripe);
      auto operation = Operation::bind(plan, geometry_of(cut, plan, stripe), cut.options, *links);
      operation->start({.input = input.data(), .output = output.data()}, 7);
      runs.push_back({rank, std::move(links), std::move(operation)});
    }
  }
  std::vector<Traffic> traffic(ranks);
  for (bool left = true; left;) {
    left = false;
    for (Run& run : runs) {
      if (run.operation == nullptr) continue;
      const Progress progress = run.operation->advance(1);
      EXPECT_NE(progress, Progress::kMismatch);
      run.links->look(traffic[run.rank]);
      if (progress == Progress::kDone) run.operation.reset();
      left = left || run.operation != nullptr;
    }
  }
  return traffic;
}

void expect_equal_cut(const CutCase& cut) {
  const std::vector<Traffic> expected = host_traffic(cut);
  for (uint32_t rank = 0; rank < cut.request.rank_count; ++rank) {
    const Plan plan = cut.algorithm->make(cut.request, cut.facts, rank);
    std::vector<Geometry> stripes;
    for (uint32_t stripe = 0; stripe < cut.stripes; ++stripe)
      stripes.push_back(geometry_of(cut, plan, stripe));
    CountingIndex index;
    const cuda::Image image = cuda::bind(plan, stripes, cut.options, index);
    expect_sound_lanes(image, std::string(cut.algorithm->name));
    EXPECT_EQ(walk(image, index), expected[rank])
        << cut.algorithm->name << " of " << collective_name(cut.request.collective) << ", rank " << rank
        << " of " << cut.request.rank_count << ", " << cut.request.block_bytes << " bytes, " << cut.stripes
        << " stripes, " << cut.options.slots << " slots of " << cut.options.slot_bytes;
  }
}

TEST(CudaBindTest, EveryAlgorithmIsCutAsOnTheHost) {
  int cases = 0;
  for (const Algorithm& algorithm : algorithms()) {
    for (const uint32_t ranks : {2u, 3u, 8u}) {
      for (const uint64_t bytes : {uint64_t{4}, uint64_t{1000}, uint64_t{40'000}}) {
        for (const auto& [slots, slot_bytes] : {std::pair(16u, 2048u), std::pair(4u, 64u)}) {
          if (bytes / slot_bytes > 1000) continue;
          for (const uint32_t stripes : {1u, 3u}) {
            CutCase cut{.algorithm = &algorithm,
                        .request = {.collective = algorithm.collective,
                                    .rank_count = ranks,
                                    .root = ranks - 1,
                                    .block_bytes = bytes,
                                    .type = DataType::kUint32},
                        .facts = {.can_publish = false, .slots = slots / 2, .slot_bytes = slot_bytes},
                        .options = {.type = DataType::kUint32, .slots = slots, .slot_bytes = slot_bytes},
                        .stripes = stripes};
            if (!algorithm.supports(cut.request, cut.facts)) continue;
            if (algorithm.make(cut.request, cut.facts, 0).slots_needed > slots) continue;
            expect_equal_cut(cut);
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_GT(cases, 300);
}

TEST(CudaBindTest, AGroupOfMessagesHasALaneForEachPeerAndDirection) {
  std::vector<std::byte> memory(100'000);
  const auto message = [&](uint32_t peer, bool sending, uint64_t bytes, uint64_t seed) {
    return Message{
        .buffer = memory.data() + seed, .bytes = bytes, .peer = peer, .sending = sending, .seed = seed};
  };
  const std::vector<Message> messages = {message(1, true, 100, 1), message(2, true, 0, 2),
                                         message(1, false, 50'000, 3), message(1, true, 70'000, 4)};
  CountingIndex index;
  const cuda::Image image = cuda::bind_messages(messages, {.slots = 8, .slot_bytes = 16384}, index);
  ASSERT_EQ(image.lanes.size(), 3u);
  EXPECT_FALSE(image.is_collective);
  EXPECT_EQ(image.lanes[0].step_count, 2u);
  EXPECT_EQ(image.steps[1].signature, message_signature(messages[3]));
  EXPECT_EQ(image.offsets[image.ends[image.steps[1].first_end].index],
            reinterpret_cast<uint64_t>(memory.data() + 4));
  const Traffic traffic = walk(image, index);
  const uint64_t slice = 16384;
  EXPECT_EQ(traffic.at({1, kMessageChannel}),
            (std::vector<uint64_t>{100, slice, slice, slice, slice, 70'000 - 4 * slice}));
  EXPECT_EQ(traffic.at({2, kMessageChannel}), std::vector<uint64_t>{0});
}

TEST(CudaBindTest, ALongMessageHasALaneForEachPart) {
  std::vector<std::byte> memory(400'000);
  const auto message = [&](uint32_t peer, bool sending, uint64_t bytes) {
    return Message{.buffer = memory.data(), .bytes = bytes, .peer = peer, .sending = sending, .seed = bytes};
  };
  const std::vector<Message> messages = {message(1, true, 400'000), message(1, true, 200),
                                         message(2, false, 150'000)};
  CountingIndex index;
  const cuda::Image image = cuda::bind_messages(messages, {.slots = 8, .slot_bytes = 65536}, index, 4);
  // To rank 1 four parts and a short message behind the first of them; from rank 2 two parts.
  ASSERT_EQ(image.lanes.size(), 6u);
  EXPECT_EQ(image.lanes[0].step_count, 2u);
  EXPECT_EQ(image.ends[image.steps[image.lanes[1].first_step].first_end].kind, cuda::EndKind::kReceive)
      << "all first parts come before all second ones";
  uint64_t sent = 0;
  uint64_t next = reinterpret_cast<uint64_t>(memory.data());
  for (const size_t lane : {0u, 2u, 4u, 5u}) {
    const cuda::Step& step = image.steps[image.lanes[lane].first_step];
    EXPECT_EQ(image.offsets[image.ends[step.first_end].index], next);
    EXPECT_EQ(step.signature, image.steps[image.lanes[0].first_step].signature);
    sent += image.chunk_bytes[step.first_chunk];
    next += image.chunk_bytes[step.first_chunk];
  }
  EXPECT_EQ(sent, 400'000u);
}

// Goal: where all does not fit, a block keeps what it needs most. Method: messages to one peer, a step each.
TEST(CudaBindTest, ABlockKeepsOfItsLanesTablesWhatFits) {
  std::vector<std::byte> memory(100);
  const auto lane_of = [&](size_t count) {
    const std::vector<Message> messages(
        count, {.buffer = memory.data(), .bytes = 100, .peer = 1, .sending = true, .seed = 1});
    CountingIndex index;
    const cuda::Image image = cuda::bind_messages(messages, {.slots = 8, .slot_bytes = 256}, index);
    expect_sound_lanes(image, std::to_string(count) + " messages");
    return image.lanes[0];
  };
  const cuda::Lane small = lane_of(20);
  EXPECT_EQ(small.kept_sends, 1u) << "one link of many ends";
  EXPECT_EQ(small.kept_ends, 40u);
  EXPECT_EQ(small.kept_steps, 20u);
  const cuda::Lane middle = lane_of(120);
  EXPECT_EQ(middle.kept_offsets, 120u);
  EXPECT_EQ(middle.kept_steps, 0u);
  const cuda::Lane large = lane_of(2000);
  EXPECT_EQ(large.kept_sends, 1u);
  EXPECT_EQ(large.kept_ends + large.kept_chunks + large.kept_offsets + large.kept_steps, 0u);
}

TEST(CudaBindTest, APackedProgramPointsIntoItself) {
  const Algorithm* ring = find_algorithm(Collective::kAllReduce, "ring");
  const Request request{.collective = Collective::kAllReduce, .rank_count = 4, .block_bytes = 4000};
  const Facts facts{.can_publish = false};
  const Plan plan = ring->make(request, facts, 1);
  const std::vector<Geometry> stripes = {Geometry::uniform(plan, 4000, {0, 2}),
                                         Geometry::uniform(plan, 4000, {1, 2})};
  CountingIndex index;
  const cuda::Image image = cuda::bind(plan, stripes, {.type = DataType::kFloat32}, index);
  const size_t bytes = cuda::packed_bytes(image);
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory(bytes / 64 + 1);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  cuda::pack(image, {}, address, memory[0].bytes);
  const auto& program = *reinterpret_cast<const cuda::Program*>(memory[0].bytes);
  ASSERT_EQ(program.lane_count, 2 * plan.lanes.size());
  EXPECT_EQ(program.lanes[1].first_step, image.lanes[1].first_step);
  EXPECT_EQ(program.offsets[image.offsets.size() - 1], image.offsets.back());
  EXPECT_EQ(program.chunk_bytes[0], image.chunk_bytes[0]);
  EXPECT_EQ(program.links[image.links.size() - 1], image.links.back());
  EXPECT_EQ(program.positions[program.lane_count - 1].finished, 0u);
  EXPECT_LE(reinterpret_cast<uint64_t>(program.positions + program.lane_count), address + bytes);
}

// Goal: what is collected waits for every rank's contribution, what is published for room at every reader,
// and both tell all of them. Method: the tables of rank 1 of 3, in two stripes.
TEST(CudaBindTest, ACollectAndAPublicationHaveALinkToEveryRank) {
  const Algorithm* algorithm = find_algorithm(Collective::kAllReduce, "multicast");
  const Request request{.collective = Collective::kAllReduce, .rank_count = 3, .block_bytes = 4096};
  const Plan plan = algorithm->make(request, {.can_multicast = true}, 1);
  const std::vector<Geometry> stripes = {Geometry::uniform(plan, request.block_bytes, {0, 2}),
                                         Geometry::uniform(plan, request.block_bytes, {1, 2})};
  CountingIndex index;
  const cuda::Image image =
      cuda::bind(plan, stripes, {.direct_writes = true, .slots = 4, .slot_bytes = 256}, index);
  expect_sound_lanes(image, "multicast");
  ASSERT_EQ(image.lanes.size(), 6u) << "in each stripe one contributes, one collects, one copies out";
  for (uint32_t stripe = 0; stripe < 2; ++stripe) {
    using Links = std::vector<std::pair<uint32_t, uint32_t>>;
    const cuda::Step& step = image.steps[image.lanes[3 * stripe + 1].first_step];
    EXPECT_EQ(image.steps[image.lanes[3 * stripe].first_step].contributes, 1);
    EXPECT_EQ(step.collects, 1);
    EXPECT_EQ(step.copies, 0);
    EXPECT_EQ(step.source_count, 1);
    EXPECT_EQ(step.sink_count, 2);
    EXPECT_EQ(step.published, 1u << 1) << "the output comes first";
    EXPECT_EQ(step.exposed_count, 0) << "what is published is not written directly";
    Links contributions;
    Links readers;
    for (uint32_t e = 0; e < 3u + step.companion_count; ++e) {
      const cuda::End& end = image.ends[step.first_end + e];
      if (end.kind == cuda::EndKind::kReceive) contributions.push_back(index.receives[end.index]);
      if (end.kind == cuda::EndKind::kSend) readers.push_back(index.sends[end.index]);
    }
    const uint32_t collected = CountingIndex::channel_of(stripe, cuda::Multicast::kCollect);
    const uint32_t published = CountingIndex::channel_of(stripe, cuda::Multicast::kPublish);
    EXPECT_EQ(contributions, (Links{{0, collected}, {1, collected}, {2, collected}}));
    EXPECT_EQ(readers, (Links{{0, published}, {2, published}}));
  }
}

}  // namespace
}  // namespace tutti::test
