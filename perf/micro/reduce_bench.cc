// Microbenchmark of the reduction kernels: type/op/sources/sinks/bytes of one source, cached and streamed.
//
// bytes_per_second counts the bytes of one source (nccl-tests' size), so that equal times give equal figures
// for all types. The jobs come from the case table of the correctness test (tests/reduce/cases.h). Large jobs
// use buffers larger than the last-level cache.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "reduce/reduce.h"
#include "tests/reduce/cases.h"

namespace tutti::reduce {
namespace {

struct FreeAligned {
  void operator()(uint8_t* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
};
using Memory = std::unique_ptr<uint8_t, FreeAligned>;

Memory allocate(size_t bytes) {
  return Memory(static_cast<uint8_t*>(::operator new (bytes, std::align_val_t{4096})));
}

/// Buffers of one job, filled with numbers near 1, so that no special value slows the arithmetic.
struct Buffers {
  std::vector<Memory> memory;
  Job job;

  Buffers(DataType type, const Shape& shape, size_t bytes) {
    const size_t element = type_bytes(type);
    job.count = bytes / element;
    job.source_count = static_cast<uint32_t>(shape.source_count);
    job.sink_count = static_cast<uint32_t>(shape.sink_count);
    job.streaming_sinks = shape.streaming_sinks;
    job.finish = true;
    job.divisor = 3;
    std::mt19937_64 engine(1);
    // Each buffer starts at another offset inside a page. With equal low address bits, loads would wait for
    // stores.
    size_t skew = 0;
    for (uint32_t k = 0; k < job.source_count; ++k) {
      uint8_t* source = add(bytes, skew += 256);
      for (size_t i = 0; i < job.count; ++i) {
        const uint64_t bits = plain_bits(type, engine);
        std::memcpy(source + i * element, &bits, element);
      }
      job.sources[k] = source;
    }
    for (uint32_t m = 0; m < job.sink_count; ++m) {
      job.sinks[m] = add(bytes, skew += 256);
      std::memset(job.sinks[m], 0, bytes);
    }
  }

  uint8_t* add(size_t bytes, size_t skew) {
    memory.push_back(allocate(bytes + skew));
    return memory.back().get() + skew;
  }
};

void run(benchmark::State& state, Kernel kernel, DataType type, const Shape& shape) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Buffers buffers(type, shape, bytes);
  for (auto _ : state) {
    kernel(buffers.job);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

void register_all() {
  for (const BenchmarkCase& entry : benchmark_cases()) {
    const Shape& shape = entry.shape;
    const Kernel kernel = entry.copy
                              ? find_copy_kernel()
                              : find_kernel(entry.kernel.type, entry.kernel.op, entry.kernel.association);
    const std::string name = (entry.copy ? std::string("bytes/copy")
                                         : std::string(type_name(entry.kernel.type)) + "/" +
                                               std::string(op_name(entry.kernel.op))) +
                             (entry.kernel.association == Association::kTree ? "_tree" : "") + "/" +
                             std::to_string(shape.source_count) + "/" + std::to_string(shape.sink_count) +
                             (shape.streaming_sinks != 0 ? "_streaming" : "");
    auto* benchmark = benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { run(state, kernel, entry.kernel.type, shape); });
    for (const int64_t bytes : entry.bytes) benchmark->Arg(bytes);
  }
  for (const int64_t bytes : copy_bytes_table()) {
    benchmark::RegisterBenchmark("bytes/memcpy/1/1", [](benchmark::State& state) {
      const Kernel kernel = [](const Job& job) { std::memcpy(job.sinks[0], job.sources[0], job.count); };
      run(state, kernel, DataType::kUint8, {.source_count = 1, .sink_count = 1, .streaming_sinks = 0});
    })->Arg(bytes);
  }
}

}  // namespace
}  // namespace tutti::reduce

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("simd_target", tutti::reduce::target_name());
  tutti::reduce::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
