#include "tools/slice_probes.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/cache_hints.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "engine/result_trials.h"
#include "reduce/reduce.h"
#include "tools/meeting.h"
#include "tools/socket_probes.h"
#include "topology/line.h"
#include "topology/probes.h"
#include "transports/link.h"
#include "tutti/tutti.h"

namespace tutti::tool {
namespace {

using topology::SliceWork;

constexpr std::array<uint32_t, 10> kSizes = {8, 56, kInlineBytes, 128, 512, 1024, 2048, 4096, 8192, 16384};
constexpr RingShape kRing{.slots = 128, .slot_bytes = 16384, .passed_slots = PassedSlots::kMost};
constexpr size_t kArenaBytes = size_t{64} << 20;  // of each core: together beyond the caches
constexpr uint32_t kBatchBytes = 131072;
constexpr uint32_t kRounds = 32;
constexpr uint32_t kLeastRounds = 8;  // of these, at one distance
constexpr uint32_t kTrialRounds = 8;
constexpr uint32_t kTrips = 16;
/// Messages of 32 KiB, from which on the library tries both stores for results, are cut into such slices.
constexpr uint32_t kLeastStreamedResult = 8192;
constexpr uint64_t kWaitNs = Meeting::kWaitNs;
constexpr uint32_t kSignature = 1;

/// Slices of a batch: at most half of a ring, as in a round of a plan.
uint32_t batch_of(uint32_t bytes) {
  return std::clamp<uint32_t>(kBatchBytes / bytes, 8, kRing.slots / 2);
}

/// Anonymous memory, shared with child processes. Every page is there.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (address != MAP_FAILED) data_ = static_cast<std::byte*>(address);
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

/// How the library would store, by the trials of both cores: into slots; for results, ordinary or past the
/// caches.
struct StoresBySize {
  struct OfSize {
    std::array<StoreTrials, 2> writers;  ///< of each core
    std::array<StoreTrials, 2> readers;
    std::array<StoreTrials, 2> results;
    StoreTrials streams;  ///< of slices as long as a slot, by the core that reads them

    /// `bytes`: of a slice. Those as long as a slot are of pieces above 32 KiB, most of which are long.
    Stores slots(uint32_t bytes) const {
      if (bytes >= kRing.slot_bytes)
        return StoreTrials::choose(Stores::kOrdinary, StoreTrials::kLongPiece, streams.costs(),
                                   streams.costs());
      return StoreTrials::choose(Stores::kOrdinary, StoreTrials::length_of(bytes, bytes), sum(writers),
                                 sum(readers));
    }
    bool stream_results() const {
      const StoreTrials::Costs costs = sum(results);
      return costs[0] * 100 >= kCachedPercent * costs[1];
    }

   private:
    /// As the percentages in engine/result_trials.h, but for copies to results alone, which take 73 to 98 %
    /// where these are not cached (docs/measurements/carriage.md).
    static constexpr uint64_t kCachedPercent = 70;

    static StoreTrials::Costs sum(const std::array<StoreTrials, 2>& of) {
      StoreTrials::Costs sums = {};
      for (size_t kind = 0; kind < kStoresCount; ++kind)
        sums[kind] = of[0].costs()[kind] + of[1].costs()[kind];
      return sums;
    }
  };
  std::map<uint32_t, OfSize> sizes;
};

/// By what a cache line took between the cores then, in nanoseconds.
using SamplesByLine = std::map<uint64_t, SliceSamples>;

void add_samples(const SliceSamples& from, SliceSamples& to) {
  for (const auto& [key, values] : from) to[key].insert(to[key].end(), values.begin(), values.end());
}

/// What two cores share.
struct Shared {
  Meeting meeting;
  topology::LinePair lines;
  uint64_t line_ns = 0;  ///< of the latest probe of the lines
  StoresBySize stores;
};

/// Memory of one core's part: rings to the other core, from it, and back to this core; memory beyond caches.
struct Memory {
  std::byte* there;
  std::byte* back;
  std::byte* own;
  std::byte* arena;
};

/// One core's part.
class Side {
 public:
  Side(Shared& shared, const Memory& memory, uint32_t index)
      : shared_(shared),
        send_(SendLink::at(memory.there, kRing)),
        receive_(RecvLink::at(memory.back, kRing, 0)),
        own_send_(SendLink::at(memory.own, kRing)),
        own_receive_(RecvLink::at(memory.own, kRing, 0)),
        passed_((index == 0 ? memory.there : memory.back) + kRing.passed_offset(), kRing.slot_bytes,
                kRing.passed_slots, index == 0, PassedSlots::least_bytes_where(can_demote_lines())),
        arena_(memory.arena),
        index_(index) {
    send_.pass_slots(&passed_);
    receive_.pass_slots(&passed_);
  }

  SamplesByLine run() {
    for (uint32_t round = 0; round < kTrialRounds; ++round) {
      for (const uint32_t bytes : kSizes) {
        if (bytes >= StoreTrials::kLeastBytes && !try_stores(bytes)) return {};
      }
    }
    for (uint32_t round = 0; round <= kRounds; ++round) {
      for (const uint32_t bytes : kSizes) {
        if (!measure(bytes) || !keep_samples()) return {};
      }
      if (round == 0) kept_.clear();  // the first touches of rings and pages
    }
    return std::move(kept_);
  }

 private:
  bool meet() {
    const bool both = shared_.meeting.wait();
    wait_end_ns_ = now_ns() + kWaitNs;
    return both;
  }
  bool give_up() {
    shared_.meeting.give_up();
    return false;
  }
  bool is_first() const { return index_ == 0; }

  bool measure(uint32_t bytes) {
    if (!meet()) return false;
    if (const auto known = shared_.stores.sizes.find(bytes); known != shared_.stores.sizes.end()) {
      slots_ = known->second.slots(bytes);
      const bool past = bytes >= kLeastStreamedResult && known->second.stream_results();
      results_ = past ? Stores::kStreaming : Stores::kOrdinary;
    } else {
      slots_ = results_ = Stores::kOrdinary;
    }
    in_memory(bytes);
    pass_own(bytes);
    return exchange(bytes) && exchange_memory(bytes) && ping_pong(bytes) && stream(bytes);
  }

  /// Keeps the samples since the call before, unless the cores have moved since then.
  bool keep_samples() {
    constexpr topology::LineTrips kLineTrips{
        .count = 32, .stretch = 8, .patience = std::chrono::milliseconds(10)};
    ++line_probes_;
    if (is_first())
      shared_.line_ns = static_cast<uint64_t>(std::ceil(send_line(shared_.lines, line_probes_, kLineTrips)));
    else
      (void)answer_line(shared_.lines, line_probes_, kLineTrips);
    if (!meet()) return false;
    const uint64_t before_ns = std::exchange(line_ns_, shared_.line_ns);
    if (before_ns > 0 && line_ns_ > 0 && topology::is_same_distance(before_ns, line_ns_))
      add_samples(samples_, kept_[line_ns_]);
    samples_.clear();
    return true;
  }

  template <class Work>
  void time(SliceWork work, uint32_t bytes, const Work& slice) {
    const uint32_t count = batch_of(bytes);
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < count; ++i) slice();
    samples_[{work, bytes}].push_back(static_cast<double>(now_ns() - start) / count);
  }

  void copy(const void* from, void* to, uint32_t bytes, Stores stores) {
    job_.sources[0] = from;
    job_.sinks[0] = to;
    job_.source_count = job_.sink_count = 1;
    job_.count = bytes;
    job_.streaming_sinks = stores == Stores::kStreaming ? 1 : 0;
    job_.string_sinks = stores == Stores::kString ? 1 : 0;
    job_.interleaved_sinks = stores == Stores::kInterleaved ? 1 : 0;
    copy_kernel_(job_);
  }
  /// As in Operation::set_length: slices of 8 KiB are of results whose lines are not claimed.
  void copy_result(const void* from, void* to, uint32_t bytes, Stores stores) {
    job_.unclaimed_sinks = bytes == 8192 ? 1 : 0;
    copy(from, to, bytes, stores);
    job_.unclaimed_sinks = 0;
  }
  void reduce(const void* one, const void* other, void* to, uint32_t bytes, Stores stores) {
    job_.sources[0] = one;
    job_.sources[1] = other;
    job_.sinks[0] = to;
    job_.source_count = 2;
    job_.sink_count = 1;
    job_.count = bytes / sizeof(float);
    job_.streaming_sinks = stores == Stores::kStreaming ? 1 : 0;
    job_.string_sinks = job_.interleaved_sinks = 0;
    sum_kernel_(job_);
  }

  /// The next slice of memory that has not been touched for long. Short slices stand at the beginning of
  /// lines, as short messages do.
  std::byte* cold(uint32_t bytes, bool is_result) {
    const uint32_t stride = std::max<uint32_t>(bytes, kLineBytes);
    size_t& place = place_[is_result ? 1 : 0];
    if (place + stride > kArenaBytes / 2) place = 0;
    std::byte* const slice = arena_ + (is_result ? kArenaBytes / 2 : 0) + place;
    place += stride;
    return slice;
  }

  void in_memory(uint32_t bytes) {
    time(SliceWork::kCopy, bytes, [&] { copy(near_.data(), other_.data(), bytes, Stores::kOrdinary); });
    time(SliceWork::kRead, bytes, [&] { copy(cold(bytes, false), near_.data(), bytes, Stores::kOrdinary); });
    time(SliceWork::kWrite, bytes, [&] { copy_result(near_.data(), cold(bytes, true), bytes, results_); });
    time(SliceWork::kCopyMemory, bytes,
         [&] { copy_result(cold(bytes, false), cold(bytes, true), bytes, results_); });
    time(SliceWork::kReduce, bytes,
         [&] { reduce(near_.data(), third_.data(), other_.data(), bytes, Stores::kOrdinary); });
  }

  /// What the engine does for a slice to a link (engine/operation.cc). False: no slot becomes free.
  bool send(SendLink& link, const std::byte* from, uint32_t bytes, Stores stores) {
    for (uint32_t spins = 1; !link.can_write(); ++spins) {
      if (spins % 4096 == 0 && now_ns() > wait_end_ns_) return false;
    }
    copy(from, link.span(bytes), bytes, stores);
    link.commit(kSignature, bytes);
    const bool reader_has_slot = &link == &send_ && bytes > kInlineBytes;
    if (reader_has_slot && stores == Stores::kOrdinary && bytes <= kMostClaimedBytes && link.knows_room() &&
        !link.passes(bytes))
      claim_lines(link.span(bytes), bytes);
    return true;
  }
  bool await(const RecvLink& link, uint32_t bytes) const {
    const uint64_t expected = flag::make(link.next, kSignature, bytes);
    for (uint32_t spins = 1; (link.word() & flag::kAgreedMask) != expected; ++spins) {
      if (spins % 4096 == 0 && now_ns() > wait_end_ns_) return false;
    }
    return true;
  }
  bool receive(RecvLink& link, std::byte* to, uint32_t bytes, Stores stores) {
    if (!await(link, bytes)) return false;
    copy_result(link.span(link.word()), to, bytes, stores);
    link.release(link.word());
    return true;
  }

  void pass_own(uint32_t bytes) {
    time(SliceWork::kSendOwn, bytes, [&] { (void)send(own_send_, near_.data(), bytes, Stores::kOrdinary); });
    time(SliceWork::kReceiveOwn, bytes,
         [&] { (void)receive(own_receive_, other_.data(), bytes, Stores::kOrdinary); });
  }

  /// Both cores send a batch, then both receive.
  template <class Send, class Receive>
  bool in_turn(uint32_t bytes, std::pair<SliceWork, SliceWork> works, const Send& send_one,
               const Receive& receive_one) {
    if (!meet()) return false;
    bool good = true;
    time(works.first, bytes, [&] { good = good && send_one(); });
    if (!good) give_up();
    if (!meet()) return false;
    time(works.second, bytes, [&] { good = good && receive_one(); });
    if (!good) give_up();
    return meet();
  }

  bool exchange(uint32_t bytes) {
    return in_turn(
        bytes, {SliceWork::kSend, SliceWork::kReceive},
        [&] { return send(send_, near_.data(), bytes, slots_); },
        [&] { return receive(receive_, other_.data(), bytes, Stores::kOrdinary); });
  }

  bool exchange_memory(uint32_t bytes) {
    const auto send_one = [&] { return send(send_, cold(bytes, false), bytes, slots_); };
    return in_turn(bytes, {SliceWork::kSendMemory, SliceWork::kReceiveMemory}, send_one,
                   [&] { return receive(receive_, cold(bytes, true), bytes, results_); }) &&
           in_turn(bytes, {SliceWork::kSendMemory, SliceWork::kReduceMemory}, send_one, [&] {
             if (!await(receive_, bytes)) return false;
             const uint64_t word = receive_.word();
             reduce(receive_.span(word), cold(bytes, false), cold(bytes, true), bytes, results_);
             receive_.release(word);
             return true;
           });
  }

  bool ping_pong(uint32_t bytes) {
    if (!meet()) return false;
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < kTrips; ++i) {
      if (is_first() && !send(send_, cold(bytes, false), bytes, slots_)) return give_up();
      if (!receive(receive_, cold(bytes, true), bytes, results_)) return give_up();
      if (!is_first() && !send(send_, cold(bytes, false), bytes, slots_)) return give_up();
    }
    if (is_first())
      samples_[{SliceWork::kPass, bytes}].push_back(static_cast<double>(now_ns() - start) / (2 * kTrips));
    return meet();
  }

  /// One core sends without a pause, the other one receives.
  bool stream(uint32_t bytes) {
    if (!meet()) return false;
    const uint32_t count = 4 * batch_of(bytes);
    uint64_t start = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const bool good = is_first() ? send(send_, near_.data(), bytes, slots_)
                                   : receive(receive_, other_.data(), bytes, Stores::kOrdinary);
      if (!good) return give_up();
      if (i == 0) start = now_ns();
    }
    if (!is_first())
      samples_[{SliceWork::kStream, bytes}].push_back(static_cast<double>(now_ns() - start) / (count - 1));
    return meet();
  }

  /// A ping-pong whose copies are timed one by one, as in the library's trials; then the same for results.
  bool try_stores(uint32_t bytes) {
    if (!meet()) return false;
    StoresBySize::OfSize* const of = &shared_.stores.sizes.at(bytes);
    for (const Stores kind : {Stores::kOrdinary, Stores::kStreaming, Stores::kString, Stores::kInterleaved}) {
      if (kind == Stores::kString && (bytes < StoreTrials::kLeastMiddlePiece || !reduce::has_string_moves()))
        continue;
      if (kind == Stores::kInterleaved && bytes < kRing.slot_bytes) continue;
      const auto timed = [&](StoreTrials& trials, const void* from, void* to, Stores stores) {
        const uint64_t start = now_ns();
        copy(from, to, bytes, stores);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        trials.add(kind, bytes, now_ns() - start);
      };
      const auto send_one = [&] {
        (void)send_.can_write();
        timed(of->writers[index_], near_.data(), send_.span(bytes), kind);
        send_.commit(kSignature, bytes);
      };
      for (uint32_t i = 0; i < kTrips; ++i) {
        if (is_first()) send_one();
        if (!await(receive_, bytes)) return give_up();
        timed(of->readers[index_], receive_.span(receive_.word()), other_.data(), Stores::kOrdinary);
        receive_.release(receive_.word());
        if (!is_first()) send_one();
        if (kStoresOfSums.has(kind)) timed(of->results[index_], near_.data(), cold(bytes, true), kind);
      }
      if (!meet()) return false;
      if (bytes >= kRing.slot_bytes && !try_stream(bytes, kind, of->streams)) return false;
    }
    return true;
  }

  /// As in the library's runs: one core sends out of memory, the other one receives to memory.
  bool try_stream(uint32_t bytes, Stores kind, StoreTrials& trials) {
    uint64_t start = 0;
    for (uint32_t i = 0; i < 2 * kRing.slots; ++i) {
      const bool good = is_first() ? send(send_, cold(bytes, false), bytes, kind)
                                   : receive(receive_, cold(bytes, true), bytes, Stores::kStreaming);
      if (!good) return give_up();
      if (i == kRing.slots - 1) start = now_ns();  // the slots have been written in this way
    }
    if (!is_first()) trials.add(kind, uint64_t{bytes} * kRing.slots, now_ns() - start);
    return meet();
  }

  Shared& shared_;
  SendLink send_;
  RecvLink receive_;
  SendLink own_send_;
  RecvLink own_receive_;
  PassedSlots passed_;
  std::byte* arena_;
  uint32_t index_;
  Stores slots_ = Stores::kOrdinary;
  Stores results_ = Stores::kOrdinary;
  std::array<size_t, 2> place_ = {};
  uint64_t wait_end_ns_ = 0;
  reduce::Job job_ = {};
  const reduce::Kernel copy_kernel_ = reduce::find_copy_kernel();
  const reduce::Kernel sum_kernel_ =
      reduce::find_kernel(DataType::kFloat32, ReduceOp::kSum, reduce::Association::kLeft);
  alignas(kLineBytes) std::array<std::byte, 16384> near_ = {};
  alignas(kLineBytes) std::array<std::byte, 16384> other_ = {};
  alignas(kLineBytes) std::array<std::byte, 16384> third_ = {};
  SliceSamples samples_;  ///< since the latest probe of the lines
  SamplesByLine kept_;
  uint64_t line_ns_ = 0;
  uint32_t line_probes_ = 0;
};

/// Both cores' samples.
SamplesByLine run_sides(std::array<uint32_t, 2> cores) {
  const size_t ring = kRing.ring_bytes();
  const Pages rings(4 * ring);
  const std::array<Pages, 2> arenas = {Pages(kArenaBytes), Pages(kArenaBytes)};
  if (rings.data() == nullptr || arenas[0].data() == nullptr || arenas[1].data() == nullptr) return {};
  Shared shared;
  for (const uint32_t bytes : kSizes) {
    if (bytes >= StoreTrials::kLeastBytes) shared.stores.sizes[bytes];
  }
  std::array<SamplesByLine, 2> samples;
  std::vector<std::jthread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      if (!run_on(cores[i])) shared.meeting.give_up();
      const Memory memory{.there = rings.data() + i * ring,
                          .back = rings.data() + (1 - i) * ring,
                          .own = rings.data() + (2 + i) * ring,
                          .arena = arenas[i].data()};
      samples[i] = std::make_unique<Side>(shared, memory, i)->run();
    });
  }
  threads.clear();
  if (shared.meeting.gave_up()) return {};
  for (const auto& [line_ns, of_line] : samples[1]) add_samples(of_line, samples[0][line_ns]);
  return std::move(samples[0]);
}

/// Processes on one core that all yield, and count in `words[1]` and so on. They end with this, with this
/// process, and after some seconds.
class YieldingProcesses {
 public:
  YieldingProcesses(uint32_t core, uint32_t count, std::atomic<uint64_t>* words) : stop_(words[0]) {
    constexpr uint64_t kMostNs = 5'000'000'000;
    const pid_t parent = getpid();
    for (uint32_t i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        (void)run_on(core);
        const uint64_t end_ns = now_ns() + kMostNs;
        for (uint64_t turns = 0; stop_ == 0 && getppid() == parent && now_ns() < end_ns; ++turns) {
          sched_yield();
          words[1 + i] = turns;
        }
        _exit(0);
      }
      if (child > 0) children_.push_back(child);
    }
  }
  YieldingProcesses(const YieldingProcesses&) = delete;
  YieldingProcesses& operator=(const YieldingProcesses&) = delete;
  ~YieldingProcesses() {
    stop_ = 1;
    for (const pid_t child : children_) {
      int status = 0;
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
    }
  }
  size_t count() const { return children_.size(); }

 private:
  std::atomic<uint64_t>& stop_;
  std::vector<pid_t> children_;
};

/// Nanoseconds from one process to the next, of those that share a core and yield. Empty: they cannot be
/// made.
std::vector<double> measure_turns(uint32_t core) {
  constexpr uint32_t kChildren = 3;
  constexpr uint64_t kStretchNs = 10'000'000;
  const Pages page(4096);
  if (page.data() == nullptr) return {};
  auto* const words = reinterpret_cast<std::atomic<uint64_t>*>(page.data());
  const YieldingProcesses processes(core, kChildren, words);
  if (processes.count() < kChildren) return {};
  std::vector<double> samples;
  std::jthread([&] {
    (void)run_on(core);
    for (uint32_t i = 0; i < 16; ++i) {
      const auto turns = [&] { return words[1] + words[2] + words[3]; };
      const uint64_t before = turns();
      const uint64_t start = now_ns();
      uint64_t own = 0;
      for (; now_ns() - start < kStretchNs; ++own) sched_yield();
      samples.push_back(static_cast<double>(now_ns() - start) / static_cast<double>(own + turns() - before));
    }
  }).join();
  return samples;
}

/// A repeated call of one rank.
std::vector<double> measure_calls() {
  constexpr uint32_t kCalls = 1000;
  std::vector<double> samples;
  tutti_comm_t* comm = nullptr;
  if (tutti_comm_create_all(&comm, 1, nullptr) != TUTTI_SUCCESS) return samples;
  float from = 1;
  float to = 0;
  for (uint32_t i = 0; i < kRounds; ++i) {
    const uint64_t start = now_ns();
    for (uint32_t k = 0; k < kCalls; ++k)
      (void)tutti_all_reduce(&from, &to, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, TUTTI_BLOCKING);
    samples.push_back(static_cast<double>(now_ns() - start) / kCalls);
  }
  (void)tutti_comm_destroy(comm);
  return samples;
}

/// What was measured at one distance.
struct AtDistance {
  std::vector<double> lines_ns = {};
  SliceSamples samples = {};

  /// How often all sizes were measured.
  size_t rounds() const {
    size_t least = SIZE_MAX;
    for (const uint32_t bytes : kSizes) {
      const auto one = samples.find({SliceWork::kPass, bytes});
      least = std::min(least, one == samples.end() ? 0 : one->second.size());
    }
    return least;
  }
};

/// Those that were measured often enough, the most common one first. If none was: all as one.
std::vector<AtDistance> by_distance(const SamplesByLine& by_line) {
  std::set<uint64_t> lines;
  for (const auto& [line_ns, samples] : by_line) lines.insert(line_ns);
  const std::vector<uint64_t> distances = topology::distances_of(lines);
  std::map<uint64_t, AtDistance> found;
  AtDistance all;
  for (const auto& [line_ns, samples] : by_line) {
    for (AtDistance* one : {&found[topology::distance_at(distances, line_ns)], &all}) {
      for (const auto& [key, values] : samples) {
        if (key.first == SliceWork::kPass)
          one->lines_ns.insert(one->lines_ns.end(), values.size(), static_cast<double>(line_ns));
      }
      add_samples(samples, one->samples);
    }
  }
  std::vector<AtDistance> often;
  for (auto& [distance, one] : found) {
    if (one.rounds() >= kLeastRounds) often.push_back(std::move(one));
  }
  if (often.empty()) return {std::move(all)};
  std::ranges::stable_sort(often, std::ranges::greater(), &AtDistance::rounds);
  return often;
}

void add_curves(const SliceSamples& of_all, topology::SliceCosts& slices) {
  for (const auto& [key, samples] : of_all) {
    slices.curves[static_cast<size_t>(key.first)].push_back(
        {.bytes = key.second, .ns = topology::middle_of(samples)});
  }
}

}  // namespace

Result<std::vector<topology::Measurements>> measure_slices(const topology::Graph& graph,
                                                           const topology::Measurements& common) {
  std::vector<topology::Measurements> all;
  const std::vector<uint32_t> cores = topology::first_two_cores(graph);
  if (cores.empty()) return std::vector{common};
  const Status status = contained([&]() -> Status {
    const topology::Fact turn_ns = topology::middle_of(measure_turns(cores[0]));
    const topology::Fact call_ns = topology::middle_of(measure_calls());
    const auto sockets = measure_sockets({cores[0], cores[1]});
    TUTTI_TRY(sockets.status());
    for (const AtDistance& one : by_distance(run_sides({cores[0], cores[1]}))) {
      topology::Measurements& own = all.emplace_back(common);
      own.slices.turn_ns = turn_ns;
      own.slices.call_ns = call_ns;
      if (!one.lines_ns.empty()) topology::set_distance(own, cores, topology::middle_of(one.lines_ns));
      add_curves(one.samples, own.slices);
      add_curves(*sockets, own.slices);
    }
    return {};
  });
  if (!status) return status;
  return all;
}

}  // namespace tutti::tool
