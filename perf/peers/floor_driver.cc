// The limits of the machine, measured like the libraries: two pinned processes over shared memory, or over
// plain sockets.
//
// cache_line: half of a round trip between two lines, each written by one side. copy: payload bytes per
// second of 1 or 2 processes that copy a buffer far larger than the caches, by memcpy or non-temporal stores.
// socket_exchange, socket_round_trip: see sockets.h. Limits and libraries are measured in the same minutes,
// because the speed of virtual machines changes.
#include "driver.h"
#include "sockets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace peers {
namespace {

#if defined(__x86_64__)
constexpr bool kHasStreaming = true;
__attribute__((target("avx512f"))) void copy_streaming_512(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  }
  _mm_sfence();
}
__attribute__((target("avx"))) void copy_streaming_256(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i + 32 <= bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
  _mm_sfence();
}
void copy_streaming(char* to, const char* from, size_t bytes) {
  if (__builtin_cpu_supports("avx512f")) return copy_streaming_512(to, from, bytes);
  if (__builtin_cpu_supports("avx")) return copy_streaming_256(to, from, bytes);
  std::memcpy(to, from, bytes);
}
#else
constexpr bool kHasStreaming = false;
void copy_streaming(char* to, const char* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

class Floor {
 public:
  explicit Floor(const Arguments& arguments)
      : board_(arguments.dir + "/board", arguments.rank, arguments.rank_count) {}

  Sample measure(const Request& request) {
    if (request.verb == "cache_line") {
      Sample sample = time_batches(board_, request, [&](int64_t calls) { board_.bounce(calls); });
      sample.median_us /= 2;
      sample.best_us /= 2;
      return sample;
    }
    if (request.verb == "socket_exchange" || request.verb == "socket_round_trip")
      return measure_sockets(request);
    const bool streaming = request.words.at("method") == "streaming";
    const bool active = board_.rank() < std::stoi(request.words.at("ranks"));
    if (active) reserve(request.bytes);
    return time_batches(board_, request, [&](int64_t calls) {
      for (int64_t i = 0; active && i < calls; ++i) {
        if (streaming) {
          copy_streaming(to_.get(), from_.get(), request.bytes);
        } else {
          std::memcpy(to_.get(), from_.get(), request.bytes);
        }
      }
    });
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  using Buffer = std::unique_ptr<char, Free>;

  Sample measure_sockets(const Request& request) {
    const size_t count = std::stoul(request.words.at("connections"));
    if (!sockets_ || sockets_->count() != count) sockets_ = std::make_unique<Sockets>(board_, count);
    reserve(request.bytes);
    const bool round_trip = request.verb == "socket_round_trip";
    return time_batches(board_, request, [&](int64_t calls) {
      for (int64_t i = 0; i < calls; ++i) {
        if (round_trip) {
          sockets_->round_trip(to_.get(), request.bytes);
        } else {
          sockets_->exchange(from_.get(), to_.get(), request.bytes);
        }
      }
    });
  }

  void reserve(size_t bytes) {
    if (bytes <= capacity_bytes_) return;
    for (Buffer* buffer : {&from_, &to_}) {
      buffer->reset(static_cast<char*>(std::aligned_alloc(64, bytes)));
      std::memset(buffer->get(), 1, bytes);
    }
    capacity_bytes_ = bytes;
  }

  Board board_;
  std::unique_ptr<Sockets> sockets_;
  Buffer from_;
  Buffer to_;
  size_t capacity_bytes_ = 0;
};

int serve_floor(const Arguments& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Floor floor(arguments);
  pin_to_core(arguments.rank);
  std::ifstream requests(arguments.dir + "/requests." + std::to_string(arguments.rank));
  std::ofstream replies;
  if (arguments.rank == 0) {
    replies.open(arguments.dir + "/replies");
    replies << "{\"library\": \"floor\", \"version\": \"" << (kHasStreaming ? "streaming" : "memcpy only")
            << "\"}" << std::endl;
  }
  for (std::string text; std::getline(requests, text);) {
    const Request request = parse_request(text);
    if (request.verb == "quit") break;
    alarm(static_cast<unsigned>(request.limit_s));
    const Sample sample = floor.measure(request);
    if (arguments.rank == 0) {
      replies << "{\"median_us\": " << sample.median_us << ", \"best_us\": " << sample.best_us << "}"
              << std::endl;
    }
    alarm(0);
  }
  return 0;
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) {
  return peers::guarded_main([&] { return peers::serve_floor(peers::parse_arguments(argc, argv)); });
}
