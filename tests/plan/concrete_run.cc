#include "tests/plan/concrete_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace tutti::test {
namespace {

using Word = uint64_t;

constexpr uint32_t kRounds = 3;
constexpr Word kFinishFactor = 0x9e3779b97f4a7c15;  // odd: finishing twice or never shows
const char* const kDeadlock = "deadlock";

/// A buffer of one rank: words by chunk, round, slice.
struct Buffer {
  Word* words = nullptr;
  uint32_t chunks = 0;
};

struct Rank {
  std::vector<Word> memory;  ///< input, output and what lies between them in place
  std::vector<Word> scratch_memory;
  Buffer input, output, scratch;
  std::vector<Word> initial_input;
};

/// A slice in a link: a word, or where to find it.
struct Slice {
  Word word = 0;
  const Word* reference = nullptr;
  bool direct = false;  ///< it lies where the receiver's step writes its output
};

struct LaneState {
  uint32_t rank = 0;
  const Lane* lane = nullptr;
  uint32_t step = 0, round = 0, chunk = 0, slice = 0;
  uint64_t priority = 0;
};

enum class Outcome { kRan, kBlocked, kDone };

class ConcreteRun {
 public:
  ConcreteRun(std::span<const Plan> plans, const RunOptions& options)
      : plans_(plans), plan_(plans[0]), options_(options), random_(options.seed), ranks_(plans.size()) {}

  std::string run() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) make_buffers(rank);
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Lane& lane : plans_[rank].lanes) {
        lanes_.push_back({.rank = rank, .lane = &lane, .priority = random_()});
      }
    }
    const std::string defect = run_lanes();
    if (!defect.empty()) return defect;
    for (const auto& [key, slices] : links_) {
      if (!slices.empty()) return "a message is left over";
    }
    return check_outputs();
  }

 private:
  uint32_t words_per_chunk(bool is_scratch) const { return options_.slices * (is_scratch ? 1 : kRounds); }

  /// Slices of a chunk: the last chunk of a block is short, so that sizes matter.
  uint32_t slices_of(uint32_t chunk, uint32_t round) const {
    const bool is_short = plan_.chunks_per_block > 1 && (chunk + 1) % plan_.chunks_per_block == 0;
    return options_.slices - (is_short && round + 1 == kRounds ? 1 : 0);
  }

  void make_buffers(uint32_t r) {
    const Collective collective = plan_.collective;
    const uint32_t cut = plan_.chunks_per_block;
    const bool is_root = r == plan_.root;
    const bool has_input =
        is_root || (collective != Collective::kBroadcast && collective != Collective::kScatter);
    const bool has_output =
        is_root || (collective != Collective::kReduce && collective != Collective::kGather);
    Rank& rank = ranks_[r];
    rank.input.chunks = has_input ? input_blocks(collective, plan_.rank_count) * cut : 0;
    rank.output.chunks = has_output ? output_blocks(collective, plan_.rank_count) * cut : 0;
    rank.scratch.chunks = plan_.scratch_chunks;
    const uint32_t words = words_per_chunk(false);
    rank.memory.resize(size_t{rank.input.chunks + rank.output.chunks} * words);
    rank.scratch_memory.resize(size_t{rank.scratch.chunks} * words_per_chunk(true));
    for (Word& word : rank.memory) word = random_();
    for (Word& word : rank.scratch_memory) word = random_();
    rank.scratch.words = rank.scratch_memory.data();
    rank.input.words = rank.memory.data();
    rank.output.words = rank.input.words + size_t{rank.input.chunks} * words;
    if (options_.in_place && has_input && has_output && collective != Collective::kBarrier) {
      // As in tutti.h: the smaller buffer is this rank's block of the larger one.
      rank.output.words = rank.input.words;
      if (rank.output.chunks > rank.input.chunks) rank.input.words += size_t{r} * cut * words;
      if (rank.output.chunks < rank.input.chunks) rank.output.words += size_t{r} * cut * words;
    }
    if (collective == Collective::kBarrier) {
      std::fill_n(rank.input.words, size_t{rank.input.chunks} * words, Word{1} << r);
    }
    rank.initial_input.assign(rank.input.words, rank.input.words + size_t{rank.input.chunks} * words);
  }

  std::string run_lanes() {
    const bool by_priority = options_.seed % 4 != 0;
    size_t left = lanes_.size();
    while (left > 0) {
      if (by_priority && random_() % 16 == 0) lanes_[random_() % lanes_.size()].priority = random_();
      std::vector<size_t> order(lanes_.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      if (by_priority) {
        std::sort(order.begin(), order.end(),
                  [&](size_t a, size_t b) { return lanes_[a].priority > lanes_[b].priority; });
      } else {
        std::shuffle(order.begin(), order.end(), random_);
      }
      Outcome outcome = Outcome::kBlocked;
      for (const size_t i : order) {
        if (lanes_[i].lane == nullptr) continue;
        outcome = run_slice(lanes_[i]);
        if (!defect_.empty()) return defect_;
        if (outcome == Outcome::kBlocked) continue;
        if (outcome == Outcome::kDone) {
          lanes_[i].lane = nullptr;
          --left;
        }
        break;
      }
      if (outcome == Outcome::kBlocked) return kDeadlock;
    }
    return "";
  }

  Outcome run_slice(LaneState& state) {
    // Steps without a slice in this round (short chunks) are passed over.
    while (state.round < kRounds) {
      if (state.step == state.lane->steps.size()) {
        state.step = 0;
        ++state.round;
      } else if (const Step& step = state.lane->steps[state.step]; state.chunk == step.chunk_count) {
        state.chunk = 0;
        ++state.step;
      } else if (state.slice >= slices_of(step.first_chunk + state.chunk, state.round)) {
        state.slice = 0;
        ++state.chunk;
      } else {
        if (!links_are_ready(state, step)) return Outcome::kBlocked;
        move(state, step);
        ++state.slice;
        return Outcome::kRan;
      }
      if (state.lane->steps.empty()) break;
    }
    return Outcome::kDone;
  }

  using LinkKey = std::tuple<uint32_t, uint32_t, uint32_t>;  // from, to, channel

  std::vector<LinkKey> sink_links(uint32_t rank, const End& sink) const {
    if (sink.kind == EndKind::kLink) return {{rank, sink.peer, sink.channel}};
    std::vector<LinkKey> keys;
    for (uint32_t to = 0; sink.kind == EndKind::kPublish && to < ranks_.size(); ++to) {
      if (to != rank) keys.emplace_back(rank, to, kPublishChannel);
    }
    return keys;
  }

  std::vector<LinkKey> source_links(uint32_t rank, const End& source) const {
    if (source.kind == EndKind::kLink) return {{source.peer, rank, source.channel}};
    std::vector<LinkKey> keys;
    for (uint32_t from = 0; source.kind == EndKind::kCollect && from < ranks_.size(); ++from)
      keys.emplace_back(from, rank, kCollectChannel);
    return keys;
  }

  bool links_are_ready(const LaneState& state, const Step& step) {
    for (const End& source : step.sources) {
      for (const LinkKey& key : source_links(state.rank, source)) {
        if (links_[key].empty()) return false;
      }
    }
    for (const End& sink : step.sinks) {
      for (const LinkKey& key : sink_links(state.rank, sink)) {
        if (links_[key].size() >= size_t{plan_.slots_needed} * options_.slices) return false;
      }
    }
    return true;
  }

  /// Where the current slice of a buffer end lies; null and a defect when outside of the buffer.
  Word* place(const LaneState& state, const End& end) {
    Rank& rank = ranks_[state.rank];
    const bool is_scratch = end.kind == EndKind::kScratch;
    const Buffer& buffer = end.kind == EndKind::kInput ? rank.input : is_scratch ? rank.scratch : rank.output;
    const uint64_t chunk = uint64_t{end.first_chunk} + state.chunk;
    const bool inside = state.chunk < end.chunk_count && chunk < buffer.chunks &&
                        (is_scratch || state.slice < slices_of(static_cast<uint32_t>(chunk), state.round));
    if (!inside) {
      defect_ = "outside of a buffer";
      return nullptr;
    }
    const uint32_t round = is_scratch ? 0 : state.round;
    return buffer.words + chunk * words_per_chunk(is_scratch) + round * options_.slices + state.slice;
  }

  /// Pre-multiplication of what a reduction reads from the input.
  Word scale(uint32_t rank) const {
    return options_.premultiplied && reduces(plan_.collective) ? 2 * Word{rank} + 3 : 1;
  }

  /// What the next message of a link says.
  Word receive(const LaneState& state, const Step& step, std::deque<Slice>& link) {
    if (link.empty()) {
      defect_ = "a step reads a link twice";
      return 0;
    }
    const Slice slice = link.front();
    link.pop_front();
    const Word* there = slice.direct ? output_word(state, step) : slice.reference;
    return there != nullptr ? *there : slice.word;
  }

  void move(const LaneState& state, const Step& step) {
    Word value = 0;
    const Word* source_word = nullptr;
    for (const End& source : step.sources) {
      Word operand = 0;
      if (const auto keys = source_links(state.rank, source); !keys.empty()) {
        for (const LinkKey& key : keys) operand += receive(state, step, links_[key]);
        if (!defect_.empty()) return;
      } else {
        source_word = place(state, source);
        if (source_word == nullptr) return;
        operand = *source_word * (source.kind == EndKind::kInput ? scale(state.rank) : 1);
      }
      value = plan_.collective == Collective::kBarrier ? value | operand : value + operand;
    }
    // A barrier's operator is no average: finishing changes nothing.
    if (step.finish && plan_.collective != Collective::kBarrier) value *= kFinishFactor;
    const bool copies = step.sources.size() == 1 && step.sources[0].kind < EndKind::kLink &&
                        source_word != nullptr && *source_word == value;
    write(state, step, value, copies ? source_word : nullptr);
  }

  static const End* output_of(const Step& step) {
    const auto found = std::find_if(step.sinks.begin(), step.sinks.end(),
                                    [](const End& end) { return end.kind == EndKind::kOutput; });
    return found == step.sinks.end() ? nullptr : &*found;
  }

  Word* output_word(const LaneState& state, const Step& step) {
    const End* sink = output_of(step);
    if (sink == nullptr) defect_ = "a directly written message is not wanted in the output";
    return sink == nullptr ? nullptr : place(state, *sink);
  }

  /// Stores a result in the output of rank `to`, at the chunk where `sink` puts it in the own one.
  void store_in(uint32_t to, LaneState state, const End& sink, Word value) {
    state.rank = to;
    if (Word* word = place(state, sink); word != nullptr) *word = value;
  }

  /// `source_word`: in a step that copies, where the value lies.
  void write(const LaneState& state, const Step& step, Word value, const Word* source_word) {
    std::vector<const Word*> referable;
    if (source_word != nullptr && step.sources[0].kind != EndKind::kScratch) referable.push_back(source_word);
    for (const End& sink : step.sinks) {
      if (sink.kind == EndKind::kLink || sink.kind == EndKind::kPublish) continue;
      Word* word = place(state, sink);
      if (word == nullptr) return;
      *word = value;
      if (sink.kind != EndKind::kScratch) referable.push_back(word);
    }
    for (const End& sink : step.sinks) {
      const bool allowed = sink.reference_ok || (source_word != nullptr && step.sources[0].reference_ok);
      for (const LinkKey& key : sink_links(state.rank, sink)) {
        Slice slice{.word = value};
        if (options_.direct && sink.direct_write_ok) {
          const End* own = output_of(step);
          if (own == nullptr) {
            defect_ = "a step writes directly what it does not write";
            return;
          }
          store_in(std::get<1>(key), state, *own, value);
          slice.direct = true;
        } else if (options_.by_reference && allowed && !referable.empty()) {
          slice.reference = referable[random_() % referable.size()];
        }
        links_[key].push_back(slice);
      }
    }
  }

  Word input_word(uint32_t rank, uint32_t chunk, uint32_t word) const {
    return ranks_[rank].initial_input[size_t{chunk} * words_per_chunk(false) + word];
  }

  Word expected(uint32_t rank, uint32_t chunk, uint32_t word) const {
    const uint32_t cut = plan_.chunks_per_block;
    Word sum = 0;
    switch (plan_.collective) {
      case Collective::kBarrier: return (Word{1} << ranks_.size()) - 1;
      case Collective::kAllGather:
      case Collective::kGather: return input_word(chunk / cut, chunk % cut, word);
      case Collective::kAllToAll: return input_word(chunk / cut, rank * cut + chunk % cut, word);
      case Collective::kScatter: return input_word(plan_.root, rank * cut + chunk, word);
      case Collective::kBroadcast: return input_word(plan_.root, chunk, word);
      default: break;
    }
    const uint32_t from = plan_.collective == Collective::kReduceScatter ? rank * cut + chunk : chunk;
    for (uint32_t i = 0; i < ranks_.size(); ++i) sum += input_word(i, from, word) * scale(i);
    return sum * kFinishFactor;
  }

  std::string check_outputs() const {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const Buffer& output = ranks_[rank].output;
      for (uint32_t chunk = 0; chunk < output.chunks; ++chunk) {
        for (uint32_t word = 0; word < words_per_chunk(false); ++word) {
          if (word % options_.slices >= slices_of(chunk, word / options_.slices)) continue;
          if (output.words[size_t{chunk} * words_per_chunk(false) + word] != expected(rank, chunk, word)) {
            return "wrong result";
          }
        }
      }
    }
    return "";
  }

  std::span<const Plan> plans_;
  const Plan& plan_;
  RunOptions options_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<LaneState> lanes_;
  std::map<LinkKey, std::deque<Slice>> links_;
  std::string defect_;
};

bool writes_directly(std::span<const Plan> plans) {
  for (const Plan& plan : plans) {
    for (const Lane& lane : plan.lanes) {
      for (const Step& step : lane.steps) {
        if (std::any_of(step.sinks.begin(), step.sinks.end(),
                        [](const End& end) { return end.direct_write_ok; }))
          return true;
      }
    }
  }
  return false;
}

}  // namespace

std::string run_concretely(std::span<const Plan> plans, const RunOptions& options) {
  return ConcreteRun(plans, options).run();
}

std::string run_many_ways(std::span<const Plan> plans, bool in_place, uint32_t schedules, uint64_t seed) {
  for (uint32_t i = 0; i < schedules; ++i) {
    for (uint32_t way = 0; way < (writes_directly(plans) ? 32u : 16u); ++way) {
      const RunOptions options{.in_place = (way & 1) != 0,
                               .by_reference = (way & 2) != 0,
                               .direct = (way & 16) != 0,
                               .premultiplied = (way & 8) != 0,
                               .slices = (way & 4) != 0 ? 2u : 1u,
                               .seed = seed + i};
      if ((options.in_place && !in_place) || (options.premultiplied && !reduces(plans[0].collective)))
        continue;
      const std::string defect = run_concretely(plans, options);
      if (!defect.empty()) return defect;
    }
  }
  return "";
}

}  // namespace tutti::test
