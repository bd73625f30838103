// The measuring method of all drivers. tutti, Open MPI, MPICH and Gloo differ only in the Library class.
//
// A measurement: rotate over buffers; warm up; find how many calls make a batch of a few milliseconds; run
// batches; report the time of a call in each, and the median. The shared page's barrier opens and closes each
// batch, timed from the first rank's start to the last rank's end. Between batches a cache line tells where
// the cores are. Results are checked outside the timing, on fresh buffers.
//
// A Library offers: name(), version(), rank(), rank_count(), supports(collective, type), begin(type),
// progress() (called while waiting outside the library; may be empty), allocate(bytes)/release(pointer), one
// blocking member for each collective, send/recv for the ping-pong, create_microseconds(board), empty if it
// cannot make further communicators, and first_create_microseconds(), if known.
#pragma once

#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "board.h"
#include "buffers.h"
#include "request.h"

namespace peers {

struct Arguments {
  std::string dir;           // holds the shared page and the pipes
  std::string pin = "core";  // "core": the calling thread stays on core rank modulo cores; "none"
  int rank = 0;              // rank and ranks: for libraries without their own launcher
  int rank_count = 1;
  std::string options;  // options of the library, comma separated
};

inline Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--dir") arguments.dir = value;
    if (flag == "--pin") arguments.pin = value;
    if (flag == "--rank") arguments.rank = std::stoi(value);
    if (flag == "--ranks") arguments.rank_count = std::stoi(value);
    if (flag == "--options") arguments.options = value;
  }
  if (arguments.dir.empty())
    throw std::runtime_error("usage: driver --dir DIR [--rank R --ranks P] [--pin core|none]");
  return arguments;
}

struct Batch {
  double us = 0;               // of a call
  int64_t line_before_ns = 0;  // Board::probe_line before the batch and after it
  int64_t line_after_ns = 0;
};

struct Sample {
  double median_us = 0;
  double best_us = 0;
  int64_t calls = 0;
  std::vector<Batch> batches = {};
  int64_t wrong = 0;
};

/// Runs one batch on all ranks: `body(calls)` between two barriers. Returns its nanoseconds on rank 0, 0 on
/// other ranks.
template <class Body>
int64_t run_batch(Board& board, int64_t calls, Body&& body) {
  RankLine& own = board.line(board.rank());
  board.barrier();
  const int64_t begin = now_ns();
  body(calls);
  const int64_t end = now_ns();
  own.begin_ns.store(begin, std::memory_order_relaxed);
  own.end_ns.store(end, std::memory_order_relaxed);
  board.barrier();
  if (board.rank() != 0) return 0;
  int64_t first = begin;
  int64_t last = end;
  for (int r = 1; r < board.rank_count(); ++r) {
    first = std::min(first, board.line(r).begin_ns.load(std::memory_order_relaxed));
    last = std::max(last, board.line(r).end_ns.load(std::memory_order_relaxed));
  }
  return last - first;
}

/// Rank 0 tells the length of the next batch; 0 ends the measurement. The second barrier keeps rank 0 from
/// writing the next value before all ranks have read this one.
inline int64_t agree_calls(Board& board, int64_t calls_of_rank_0) {
  if (board.rank() == 0) board.page().calls.store(calls_of_rank_0, std::memory_order_relaxed);
  board.barrier();
  const int64_t calls = board.page().calls.load(std::memory_order_relaxed);
  board.barrier();
  return calls;
}

/// Warm-up, batch length, batches. The result is valid on rank 0.
template <class Body>
Sample time_batches(Board& board, const Request& request, Body&& body) {
  constexpr int64_t kCallsMax = 1'000'000;
  constexpr int kBatchesMin = 3;
  // A batch of long calls has four of them, if it then is at most four times as long.
  constexpr int64_t kCallsMin = 4;
  constexpr double kLongest = 4;
  const int64_t started = now_ns();
  const double batch_ns = request.batch_us * 1e3;
  int64_t calls = 1;
  bool is_warm = false;  // the first call may take several times as long as the others
  for (bool long_enough = false; !long_enough;) {
    const int64_t elapsed = run_batch(board, calls, body);
    int64_t next = 0;
    if (board.rank() == 0) {
      const double per_call = std::max(1.0, static_cast<double>(elapsed) / static_cast<double>(calls));
      const bool enough = static_cast<double>(elapsed) >= batch_ns / 2 || calls >= kCallsMax;
      const auto least = std::min(kCallsMin, static_cast<int64_t>(kLongest * batch_ns / per_call));
      const auto wanted = std::max(least, static_cast<int64_t>(batch_ns / per_call));
      next = !enough ? calls * 4 : is_warm ? wanted : calls;
      next = std::clamp<int64_t>(next, 1, kCallsMax);
      if (enough && is_warm) next = -next;  // negative: this is the final length
      is_warm = true;
    }
    next = agree_calls(board, next);
    long_enough = next < 0;
    calls = next < 0 ? -next : next;
  }
  std::vector<Batch> batches;
  int64_t line_ns = board.probe_line();
  for (;;) {
    const double spent_us = static_cast<double>(now_ns() - started) / 1e3;
    const int done = static_cast<int>(batches.size());
    const bool stop = done >= request.batches || (done >= kBatchesMin && spent_us > request.budget_us);
    if (agree_calls(board, stop ? 0 : calls) == 0) break;
    const int64_t elapsed = run_batch(board, calls, body);
    const int64_t before_ns = std::exchange(line_ns, board.probe_line());
    batches.push_back({.us = static_cast<double>(elapsed) / static_cast<double>(calls) / 1e3,
                       .line_before_ns = before_ns,
                       .line_after_ns = line_ns});
  }
  std::vector<double> per_call_us;
  for (const Batch& batch : batches) per_call_us.push_back(batch.us);
  std::sort(per_call_us.begin(), per_call_us.end());
  return {.median_us = per_call_us[per_call_us.size() / 2],
          .best_us = per_call_us.front(),
          .calls = calls,
          .batches = std::move(batches)};
}

/// Passes `body` a callable that makes one call of the collective on one slot.
template <class Library, class Body>
auto with_call(Library& library, Collective collective, Body&& body) {
  constexpr int kRoot = 0;
  const int rank = library.rank();
  switch (collective) {
    case Collective::kAllGather:
      return body([&](const Slot& slot) { library.all_gather(slot.send, slot.recv, slot.count); });
    case Collective::kReduceScatter:
      return body([&](const Slot& slot) { library.reduce_scatter(slot.send, slot.recv, slot.count); });
    case Collective::kBroadcast:
      return body([&](const Slot& slot) {
        library.broadcast(rank == kRoot ? slot.send : slot.recv, slot.count, kRoot);
      });
    case Collective::kReduce:
      return body([&](const Slot& slot) { library.reduce(slot.send, slot.recv, slot.count, kRoot); });
    case Collective::kAllToAll:
      return body([&](const Slot& slot) { library.all_to_all(slot.send, slot.recv, slot.count); });
    case Collective::kPingPong:
      return body([&](const Slot& slot) {
        if (rank == 0) {
          library.send(slot.send, slot.count, 1);
          library.recv(slot.recv, slot.count, 1);
        } else if (rank == 1) {
          library.recv(slot.recv, slot.count, 0);
          library.send(slot.send, slot.count, 0);
        }
      });
    case Collective::kBarrier: return body([&](const Slot&) { library.barrier(); });
    case Collective::kAllReduce:
    default: return body([&](const Slot& slot) { library.all_reduce(slot.send, slot.recv, slot.count); });
  }
}

/// Runs the first and the last slot once on poisoned outputs. Returns the wrong elements of all ranks (on
/// rank 0).
template <class Call>
int64_t check_results(Board& board, const BufferRing& ring, const Request& request, Call& call) {
  const std::vector<Slot>& slots = ring.slots();
  int64_t wrong = 0;
  for (const size_t s : {size_t{0}, slots.size() - 1}) {
    poison(slots[s], request, board.rank_count());
    board.barrier();
    call(slots[s]);
    wrong += check_slot(slots[s], s, request, board.rank(), board.rank_count());
  }
  board.line(board.rank()).wrong.store(wrong, std::memory_order_relaxed);
  board.barrier();
  for (int r = 0; board.rank() == 0 && r < board.rank_count(); ++r) {
    wrong += r == 0 ? 0 : board.line(r).wrong.load(std::memory_order_relaxed);
  }
  board.barrier();
  return wrong;
}

template <class Library>
Sample measure(Library& library, Board& board, BufferRing& ring, const Request& request) {
  ring.prepare(request, board.rank(), board.rank_count());
  library.begin(request.type);
  return with_call(library, request.collective, [&](auto call) {
    const int64_t wrong = request.check ? check_results(board, ring, request, call) : 0;
    const std::vector<Slot>& slots = ring.slots();
    size_t next = 0;
    Sample sample = time_batches(board, request, [&](int64_t calls) {
      for (int64_t i = 0; i < calls; ++i) {
        call(slots[next]);
        if (++next == slots.size()) next = 0;
      }
    });
    sample.wrong = wrong;
    if (request.collective == Collective::kPingPong) {  // one way is half the round trip
      sample.median_us /= 2;
      sample.best_us /= 2;
      for (Batch& batch : sample.batches) batch.us /= 2;
    }
    return sample;
  });
}

/// Rank 0 comes `late_ms` late to a barrier. Returns, on rank 0, the largest CPU time of a waiting process,
/// over all its threads, in milliseconds.
template <class Library>
double late_barrier_cpu_ms(Library& library, Board& board, int64_t late_ms) {
  library.barrier();
  board.barrier();
  const int64_t before = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  if (board.rank() == 0) usleep(static_cast<useconds_t>(late_ms * 1000));
  library.barrier();
  const int64_t used = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before;
  board.line(board.rank()).cpu_ns.store(used, std::memory_order_relaxed);
  board.barrier();
  int64_t most = 0;
  for (int r = 1; r < board.rank_count(); ++r) {
    most = std::max(most, board.line(r).cpu_ns.load(std::memory_order_relaxed));
  }
  return static_cast<double>(most) / 1e6;
}

/// The answer to "measure", as JSON.
inline std::string answer(const Sample& sample) {
  std::ostringstream text;
  text << "{\"median_us\": " << sample.median_us << ", \"best_us\": " << sample.best_us
       << ", \"calls\": " << sample.calls << ", \"wrong\": " << sample.wrong << ", \"batches\": [";
  for (const Batch& batch : sample.batches) {
    text << (&batch == sample.batches.data() ? "[" : ", [") << batch.us << ", " << batch.line_before_ns
         << ", " << batch.line_after_ns << "]";
  }
  text << "]}";
  return text.str();
}

/// Answers requests until "quit" or until the orchestrator ends.
template <class Library>
int serve(Library& library, const Arguments& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rank = library.rank();
  Board board(arguments.dir + "/board", rank, library.rank_count());
  if (arguments.pin == "core") pin_to_core(rank);
  board.set_progress(library.progress());
  BufferRing plain([](size_t bytes) { return std::aligned_alloc(64, bytes); },
                   [](void* memory) { std::free(memory); });
  BufferRing own([&](size_t bytes) { return library.allocate(bytes); },
                 [&](void* memory) { library.release(memory); });
  std::ifstream requests(arguments.dir + "/requests." + std::to_string(rank));
  std::ofstream replies;
  if (rank == 0) {
    replies.open(arguments.dir + "/replies");
    replies << "{\"library\": \"" << library.name() << "\", \"version\": \"" << library.version() << "\"}"
            << std::endl;
  }
  for (std::string text; std::getline(requests, text);) {
    const Request request = parse_request(text);
    alarm(static_cast<unsigned>(request.limit_s));
    std::string reply = "{\"error\": \"not supported\"}";
    if (request.verb == "quit") break;
    if (request.verb == "measure" && library.supports(request.collective, request.type)) {
      reply = answer(measure(library, board, request.memory == Memory::kLibrary ? own : plain, request));
    } else if (request.verb == "late_barrier") {
      const double cpu_ms = late_barrier_cpu_ms(library, board, std::stoll(request.words.at("late_ms")));
      reply = "{\"cpu_ms\": " + std::to_string(cpu_ms) + "}";
    } else if (request.verb == "create") {
      std::optional<double> created_us;
      if constexpr (requires { library.first_create_microseconds(); }) {
        if (request.words.contains("first")) created_us = library.first_create_microseconds();
      }
      if (!request.words.contains("first")) created_us = library.create_microseconds(board);
      if (created_us) reply = "{\"median_us\": " + std::to_string(*created_us) + "}";
    }
    if (rank == 0) replies << reply << std::endl;
    alarm(0);
  }
  return 0;
}

/// The body of every driver's main(): prints errors with the rank on stderr and ends the process.
template <class Run>
int guarded_main(Run&& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "driver: %s\n", error.what());
    std::fflush(stderr);
    std::_Exit(1);  // other threads of the library may still run
  }
}

}  // namespace peers
