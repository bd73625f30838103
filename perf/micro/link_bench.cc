// Microbenchmark of a link (transports/link.h): a message to the other end and back, in each carriage, in one
// process.
//
// threads:1 has both ends in one thread and measures only instructions; threads:2 adds the transfer of cache
// lines. Compare the `best` lines, interleaved by --benchmark_enable_random_interleaving=true.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "perf/micro/ends.h"
#include "tests/engine/raw_links.h"
#include "transports/link.h"

namespace tutti {
namespace {

constexpr RingShape kShape;

/// One direction: a writer's buffer, a ring, a reader's buffer.
class Way {
 public:
  Way(size_t most_bytes, bool refers) : refers_(refers), source_(most_bytes), target_(most_bytes) {}

  bool write(size_t bytes) {
    if (!send_.can_write() || !send_.references_returned()) return false;
    if (refers_) {
      send_.commit_reference(0, bytes, source_.data());
    } else {
      std::memcpy(send_.span(bytes), source_.data(), bytes);
      send_.commit(0, bytes);
    }
    return true;
  }
  bool read(size_t bytes) {
    const uint64_t word = recv_.word();
    if ((word & flag::kNumberMask) != ((recv_.next + 1) & flag::kNumberMask)) return false;
    std::memcpy(target_.data(), recv_.span(word), bytes);
    recv_.release(word);
    return true;
  }

 private:
  bool refers_;
  test::RingMemory ring_{kShape};
  SendLink send_ = SendLink::at(ring_.bytes(), kShape);
  RecvLink recv_ = RecvLink::at(ring_.bytes(), kShape, 0);
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
};

void register_all() {
  struct Carried {
    const char* name;
    uint64_t bytes;
    bool refers;
  };
  for (const Carried& carried :
       {Carried{"inline/8", 8, false}, Carried{"inline/120", 120, false}, Carried{"slot/128", 128, false},
        Carried{"slot/4096", 4096, false}, Carried{"slot/16384", 16384, false},
        Carried{"reference/4096", 4096, true}, Carried{"reference/16384", 16384, true}}) {
    add(std::string(carried.name) + "/threads:1", 10'000, [=](benchmark::State& state) {
      Way there(carried.bytes, carried.refers);
      Way back(carried.bytes, carried.refers);
      pingpong_one_thread(state, there, back, carried.bytes);
    });
    add(std::string(carried.name) + "/threads:2", 300, [=](benchmark::State& state) {
      Way there(carried.bytes, carried.refers);
      Way back(carried.bytes, carried.refers);
      pingpong_two_threads(state, there, back, carried.bytes);
    });
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tutti::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
