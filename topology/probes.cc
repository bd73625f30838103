#include "topology/probes.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/cpu.h"
#include "core/file_descriptor.h"
#include "topology/line.h"
#include "topology/loopback.h"

namespace tutti::topology {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr size_t kCopyBytes = size_t{32} << 20;  // beyond the caches
constexpr size_t kStageBytes = size_t{64} << 10;
constexpr size_t kPairsOfDistance = 4;
constexpr size_t kSamples = 15;

bool run_on(uint32_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

/// The cores of the graph that threads can be bound to. Assumed cores have no number.
std::vector<uint32_t> numbered_cores(const Graph& graph) {
  std::vector<uint32_t> nodes = graph.of_kind(NodeKind::kCore);
  std::erase_if(nodes, [&](uint32_t core) {
    const int32_t index = graph.node(core).os_index;
    return index < 0 || static_cast<size_t>(index) >= CpuSet().size();
  });
  return nodes;
}

/// Those that this process may use.
std::vector<uint32_t> usable_cores(const Graph& graph) {
  const CpuSet allowed = usable_cpus();
  std::vector<uint32_t> nodes = numbered_cores(graph);
  std::erase_if(nodes,
                [&](uint32_t core) { return !allowed[static_cast<size_t>(graph.node(core).os_index)]; });
  return nodes;
}

/// One batch of round trips between two cores. Nanoseconds one way; 0 if no stretch ended.
double ping_pong(uint32_t core_a, uint32_t core_b) {
  constexpr LineTrips kTrips{.count = 2000, .stretch = 100, .patience = std::chrono::milliseconds(100)};
  LinePair lines;
  std::atomic<bool> placed{true};
  double one_way = 0;
  std::jthread other([&] {
    if (!run_on(core_b)) placed = false;
    (void)answer_line(lines, 1, kTrips);
  });
  std::jthread first([&] {
    if (!run_on(core_a)) placed = false;
    one_way = send_line(lines, 1, kTrips);
  });
  first.join();
  other.join();
  return placed ? one_way : 0;
}

/// A few pairs of each distance.
std::vector<std::pair<uint32_t, uint32_t>> pairs_of(const Graph& graph, const std::vector<uint32_t>& cores) {
  std::map<std::array<bool, 3>, size_t> seen;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (size_t i = 0; i < cores.size(); ++i) {
    for (size_t j = i + 1; j < cores.size(); ++j) {
      std::array<bool, 3> together = {};
      constexpr NodeKind kPlaces[] = {NodeKind::kL3, NodeKind::kNuma, NodeKind::kPackage};
      for (size_t k = 0; k < together.size(); ++k) {
        together[k] = graph.around(cores[i], kPlaces[k]) == graph.around(cores[j], kPlaces[k]);
      }
      if (seen[together]++ < kPairsOfDistance) pairs.emplace_back(cores[i], cores[j]);
    }
  }
  return pairs;
}

void measure_pairs(const Graph& graph, const std::vector<uint32_t>& cores, Clock::time_point end,
                   Measurements& result) {
  const auto pairs = pairs_of(graph, cores);
  std::vector<std::vector<double>> samples(pairs.size());
  // Rounds over all pairs, so that each pair's samples are far apart in time.
  for (size_t round = 0; round < kSamples && Clock::now() < end; ++round) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      const double one_way = ping_pong(static_cast<uint32_t>(graph.node(pairs[i].first).os_index),
                                       static_cast<uint32_t>(graph.node(pairs[i].second).os_index));
      if (one_way > 0) samples[i].push_back(one_way);
    }
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Fact latency = middle_of(samples[i]);
    if (latency.value == 0) continue;
    result.pairs.push_back({static_cast<uint32_t>(graph.node(pairs[i].first).os_index),
                            static_cast<uint32_t>(graph.node(pairs[i].second).os_index), latency});
  }
}

/// Memory that is there: every page was written.
std::unique_ptr<char[]> touched(size_t bytes) {
  auto memory = std::make_unique_for_overwrite<char[]>(bytes);
  std::memset(memory.get(), 1, bytes);
  return memory;
}

/// Seconds on the core: other threads that take the core away do not count.
double core_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double wall_seconds() {
  return Seconds(Clock::now().time_since_epoch()).count();
}

/// Bytes per second of each repetition of `copy`, which moves kCopyBytes.
template <class Copy>
Fact speed_of(const Copy& copy, double (*seconds)(), Clock::time_point end) {
  std::vector<double> samples;
  copy();  // the first touches caches and pages
  for (size_t i = 0; i < kSamples && (i < 3 || Clock::now() < end); ++i) {
    const double start = seconds();
    copy();
    samples.push_back(static_cast<double>(kCopyBytes) / std::max(seconds() - start, 1e-9));
  }
  return middle_of(samples);
}

void measure_copies(Clock::time_point end, Measurements& result) {
  const auto from = touched(kCopyBytes);
  const auto to = touched(kCopyBytes);
  const auto stage = touched(kStageBytes);
  const auto half = Clock::now() + (end - Clock::now()) / 2;
  result.copy_alone = speed_of([&] { std::memcpy(to.get(), from.get(), kCopyBytes); }, core_seconds, half);
  result.staged_copy = speed_of(
      [&] {
        for (size_t at = 0; at < kCopyBytes; at += kStageBytes) {
          std::memcpy(stage.get(), from.get() + at, kStageBytes);
          std::memcpy(to.get() + at, stage.get(), kStageBytes);
        }
      },
      core_seconds, end);
}

/// All cores copy at once, each its own memory, for the same time.
void measure_copies_together(const Graph& graph, const std::vector<uint32_t>& cores, Clock::time_point end,
                             Measurements& result) {
  constexpr size_t kThreadsMax = 256;
  const size_t count = std::min(cores.size(), kThreadsMax);
  std::vector<double> samples;
  for (size_t round = 0; round < 5 && (round < 1 || Clock::now() < end); ++round) {
    std::atomic<size_t> ready{0};
    std::atomic<uint64_t> bytes{0};
    std::vector<std::jthread> threads;
    const auto run_s = Seconds(0.1);
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        (void)run_on(static_cast<uint32_t>(graph.node(cores[i]).os_index));
        const size_t part = kCopyBytes / 4;
        const auto from = touched(part);
        const auto to = touched(part);
        ++ready;
        const auto give_up = Clock::now() + std::chrono::seconds(2);
        while (ready < count && Clock::now() < give_up) std::this_thread::yield();
        uint64_t copied = 0;
        for (const auto start = Clock::now(); Clock::now() - start < run_s; copied += part) {
          std::memcpy(to.get(), from.get(), part);
        }
        bytes += copied;
      });
    }
    for (std::jthread& thread : threads) thread.join();
    const std::span copying(cores.data(), count);
    samples.push_back(for_all_caches(graph, copying, static_cast<double>(bytes) / run_s.count()));
  }
  result.copy_together = middle_of(samples);
}

bool put(int descriptor, const uint64_t& word) {
  return write_all(descriptor, std::as_bytes(std::span(&word, 1)));
}

bool take(int descriptor, uint64_t& word) {
  return read_all(descriptor, std::as_writable_bytes(std::span(&word, 1))) == sizeof word;
}

/// Of a message there and back, each time to a thread that sleeps: nanoseconds one way, of every hundredth
/// part of the round trips.
Fact sleeping_latency(int near_in, int near_out, int far_in, int far_out, Clock::time_point end) {
  constexpr int kTripsOfSample = 50;
  constexpr uint64_t kLastWord = UINT64_MAX - 1;  // the largest number that an eventfd takes
  std::jthread echo([&] {
    uint64_t word = 0;
    while (take(far_in, word) && word != kLastWord) {
      if (!put(far_out, word)) return;
    }
  });
  std::vector<double> samples;
  uint64_t word = 1;
  bool good = true;
  while (good && samples.size() < 2 * kSamples && (samples.size() < 3 || Clock::now() < end)) {
    const auto start = Clock::now();
    for (int i = 0; good && i < kTripsOfSample; ++i) good = put(near_out, word) && take(near_in, word);
    if (good) samples.push_back(Seconds(Clock::now() - start).count() * 1e9 / (2.0 * kTripsOfSample));
  }
  (void)put(near_out, kLastWord);
  echo.join();
  return middle_of(samples);
}

Fact socket_stream(int near, int far, Clock::time_point end) {
  const auto from = touched(kCopyBytes);
  const auto to = touched(kCopyBytes);
  const std::span read_to(to.get(), kCopyBytes);
  const std::span written_from(from.get(), kCopyBytes);
  bool good = true;
  const Fact speed = speed_of(
      [&] {
        std::jthread reader([&] {
          if (good && read_all(far, std::as_writable_bytes(read_to)) != kCopyBytes) good = false;
        });
        const bool sent = write_all(near, std::as_bytes(written_from));
        // The reader would wait forever for bytes that do not come.
        if (!sent) shutdown(near, SHUT_RDWR);
        reader.join();
        good = good && sent;
      },
      wall_seconds, end);
  return good ? speed : Fact();
}

Status measure_sleeping(Clock::time_point wake_end, Clock::time_point end, Measurements& result) {
  const FileDescriptor there(eventfd(0, EFD_CLOEXEC));
  const FileDescriptor back(eventfd(0, EFD_CLOEXEC));
  if (there.get() < 0 || back.get() < 0) return system_error("eventfd", errno);
  result.wake_ns = sleeping_latency(back.get(), there.get(), there.get(), back.get(), wake_end);
  const auto ends = connect_loopback();
  if (!ends) return ends.status();
  const int near = (*ends)[0].get();
  const int far = (*ends)[1].get();
  const auto half = Clock::now() + (end - Clock::now()) / 2;
  result.socket_ns = sleeping_latency(near, near, far, far, half);
  result.socket_speed = socket_stream(near, far, end);
  return {};
}

}  // namespace

std::vector<uint32_t> first_two_cores(const Graph& graph) {
  std::vector<uint32_t> cores = usable_cores(graph);
  if (cores.size() < 2) return {};
  cores.resize(2);
  for (uint32_t& core : cores) core = static_cast<uint32_t>(graph.node(core).os_index);
  return cores;
}

Status check_cores(const Graph& graph) {
  const size_t usable = usable_cores(graph).size();
  const size_t all = numbered_cores(graph).size();
  if (usable >= all) return {};
  return Status(
      Code::kUnsupported,
      format("this process may use only %zu of the machine's %zu cores (taskset, or a launcher that "
             "binds?), and its numbers would stand for all: lift the binding, or name a file with -o",
             usable, all));
}

double for_all_caches(const Graph& graph, std::span<const uint32_t> cores, double sum) {
  std::set<uint32_t> caches;
  for (const uint32_t core : cores) caches.insert(graph.around(core, NodeKind::kL3));
  caches.erase(kNoNode);
  if (caches.empty()) return sum;
  return sum * static_cast<double>(graph.of_kind(NodeKind::kL3).size()) / static_cast<double>(caches.size());
}

uint64_t measure_line(const Graph& graph) {
  const std::vector<uint32_t> cores = first_two_cores(graph);
  uint64_t line_ns = 0;
  const Status status = contained([&]() -> Status {
    if (!cores.empty()) line_ns = static_cast<uint64_t>(std::llround(ping_pong(cores[0], cores[1])));
    return {};
  });
  return status ? line_ns : 0;
}

Result<Measurements> measure(const Graph& graph, const ProbeOptions& options) {
  const auto start = Clock::now();
  const auto part = [&](int percent) {
    return start + std::chrono::milliseconds(uint64_t{options.budget_ms} * percent / 100);
  };
  Measurements result;
  result.machine = fingerprint(graph);
  const std::vector<uint32_t> cores = usable_cores(graph);
  const Status status = contained([&]() -> Status {
    measure_pairs(graph, cores, part(40), result);
    measure_copies(part(60), result);
    if (!cores.empty()) measure_copies_together(graph, cores, part(75), result);
    return measure_sleeping(part(80), part(100), result);
  });
  if (!status) return status;
  return result;
}

}  // namespace tutti::topology
