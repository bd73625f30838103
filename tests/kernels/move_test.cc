// Goal: what a block makes of K sources is what reduce.h says, to the bit, for every type, operator and
// association, whatever the alignment of the ends and however many threads the block has. Method: the jobs of
// the reduction suite, moved by fibers on the simulated device; the reference of src/reduce.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/types.h"
#include "engine/cuda/device.h"
#include "plan/multicast.h"
#include "tests/kernels/host_kernels.h"
#include "tests/reduce/cases.h"
#include "tests/reduce/trial.h"
#include "tests/simt/multicast.h"
#include "tests/simt/scheduler.h"

namespace tutti::reduce {
namespace {

/// Under the thread sanitizer a fiber costs a millisecond, and the orders of one block show little more.
constexpr bool kFew = simt::kThreadSanitizer;

cuda::Slice slice_of(const KernelCase& kernel, const Job& job) {
  cuda::Slice slice{};
  slice.source_count = job.source_count;
  slice.sink_count = job.sink_count;
  slice.bytes = job.count * type_bytes(kernel.type);
  slice.scaled_sources = job.scaled_sources;
  slice.finishes = job.finish ? 1 : 0;
  // As binding decides it; the tree of one operand makes its NaN canonical, which no plan asks for.
  slice.copies = job.source_count == 1 && kernel.association == Association::kLeft &&
                         kernel.type != DataType::kBool && slice.scaled_sources == 0 && slice.finishes == 0
                     ? 1
                     : 0;
  slice.arithmetic = {.type = static_cast<uint32_t>(kernel.type),
                      .op = static_cast<uint32_t>(kernel.op),
                      .association = static_cast<uint32_t>(kernel.association),
                      .element_bytes = static_cast<uint32_t>(type_bytes(kernel.type)),
                      .divisor = job.divisor,
                      .scale_bits = job.scale_bits};
  for (uint32_t k = 0; k < job.source_count; ++k)
    slice.sources[k] = static_cast<const unsigned char*>(job.sources[k]);
  for (uint32_t m = 0; m < job.sink_count; ++m) slice.sinks[m] = static_cast<unsigned char*>(job.sinks[m]);
  return slice;
}

/// A block of the simulated device that moves jobs of one case with so many threads.
TargetKernel block_of(simt::Scheduler& device, const KernelCase& kernel, uint32_t movers) {
  return {std::to_string(movers) + " movers", [&device, kernel, movers](const Job& job) {
            cuda::Slice slice = slice_of(kernel, job);
            slice.movers = movers;
            device.launch(
                {.name = "move", .threads = movers + 1, .body = [&slice] { test::move_one_slice(slice); }});
            ASSERT_TRUE(device.run()) << device.report();
          }};
}

/// What short calls do: a packet at a time, the last one in part.
TargetKernel words_of(const KernelCase& kernel) {
  return {"a packet at a time", [kernel](const Job& job) {
            const cuda::Slice slice = slice_of(kernel, job);
            const uint64_t most = data_of_packet(true, type_bytes(kernel.type));
            for (uint64_t at = 0; at < slice.bytes; at += most) {
              const size_t bytes = std::min(most, slice.bytes - at);
              cuda::Operands operands{};
              for (uint32_t k = 0; k < slice.source_count; ++k)
                std::memcpy(&operands.sources[k], slice.sources[k] + at, bytes);
              const cuda::PacketData words =
                  slice.copies != 0 ? operands.sources[0] : test::reduce_some_words(slice, operands);
              for (uint32_t m = 0; m < slice.sink_count; ++m) std::memcpy(slice.sinks[m] + at, &words, bytes);
            }
          }};
}

class MoveTest : public testing::TestWithParam<int> {
 protected:
  DataType type() const { return static_cast<DataType>(GetParam()); }
};

TEST_P(MoveTest, EveryOperatorGivesTheBitsOfTheReference) {
  simt::Scheduler device({.seed = 4, .preemption_period = 64});
  std::vector<size_t> counts = {1, 3, 16 / type_bytes(type()) + 1, 256 / type_bytes(type()) - 1,
                                600 / type_bytes(type()) + 1};
  const std::vector<Placement> places = placements(type());
  const size_t ways = test::reduces_some_words() ? 3 : 2;
  size_t turn = 0;
  for (const KernelCase& kernel : kernel_cases()) {
    if (kernel.type != type()) continue;
    const TargetKernel blocks[] = {block_of(device, kernel, 1), block_of(device, kernel, 6),
                                   words_of(kernel)};
    Trial trial(kernel, counts.back());
    for (const int source_count : kSourceCounts) {
      for (const size_t count : counts) {
        Job job = trial.make_job(source_count, count);
        const std::vector<uint8_t> want = trial.reference(job);
        for (size_t again = 0; again < (kFew ? 1 : 4); ++again) {
          job.sink_count = static_cast<uint32_t>(kSinkCounts[turn % kSinkCounts.size()]);
          trial.check(blocks[turn % ways], job, places[turn % places.size()], want);
          if (HasFatalFailure()) return;
          ++turn;
        }
      }
    }
  }
}

TEST_P(MoveTest, EverySmallFloatGivesTheBitsOfTheReference) {
  if (!is_float(type()) || type_bytes(type()) > 2 || kFew) GTEST_SKIP() << "not a small float, or too slow";
  constexpr size_t kPatterns = 65536;
  simt::Scheduler device({.seed = 5, .preemption_period = 0});
  const size_t values = size_t{1} << (8 * type_bytes(type()));
  for (const KernelCase& kernel : kernel_cases()) {
    if (kernel.type != type()) continue;
    Trial trial(kernel, kPatterns);
    for (size_t i = 0; i < kPatterns; ++i) {
      trial.set(0, i, i % values);
      trial.set(1, i, values == 256 ? i / values : (i * 40503) % values);
    }
    const Job job = trial.make_job(2, kPatterns);
    trial.check(block_of(device, kernel, 8), job, {}, trial.reference(job));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MoveTest, testing::Range(0, kDataTypeCount), [](const auto& test) {
  return std::string(type_name(static_cast<DataType>(test.param)));
});

/// Copies have words of 16, 4 and 1 bytes, heads and tails of every length.
TEST(MoveTest, CopiesAreExactAtEveryAlignment) {
  simt::Scheduler device({.seed = 6, .preemption_period = 64});
  const KernelCase bytes{DataType::kUint8, ReduceOp::kSum, Association::kLeft};
  Trial trial(bytes, 700);
  for (const size_t count : {1, 7, 15, 16, 17, 63, 64, 65, 300, 700}) {
    for (const size_t misaligned : {0, 1, 4, 8, 12}) {
      for (const size_t by : {0, 1, 4, 16}) {
        Job job = trial.make_job(1, count);
        const std::vector<uint8_t> want = trial.reference(job);
        job.sink_count = 2;
        const Placement place{misaligned, misaligned + by, false, 0};
        trial.check(block_of(device, bytes, kFew ? 2 : 7), job, place, want);
        if (HasFatalFailure()) return;
      }
      if (kFew && count > 64) break;
    }
  }
}

/// A place in multicast memory of two members, with their copies.
class TwoCopies {
 public:
  explicit TwoCopies(size_t bytes)
      : lines_{std::vector<Line>(bytes / sizeof(Line) + 1), std::vector<Line>(bytes / sizeof(Line) + 1)},
        memory_({copy(0), copy(1)}, lines_[0].size() * sizeof(Line)) {}
  std::byte* copy(size_t member) { return lines_[member][0].bytes; }
  unsigned char* begin() const { return reinterpret_cast<unsigned char*>(memory_.begin()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_[2];
  simt::MulticastMemory memory_;
};

/// A block that collects the two sources of a job, each in one member's memory, into its sink, and publishes
/// what it has collected.
TargetKernel collect_with(uint32_t movers, const KernelCase& kernel) {
  return {"collected", [kernel, movers](const Job& job) {
            simt::Scheduler device({.seed = 7, .preemption_period = 64});
            cuda::Slice slice = slice_of(kernel, job);
            TwoCopies contributions(slice.bytes);
            TwoCopies published(slice.bytes);
            for (size_t k = 0; k < 2; ++k) std::memcpy(contributions.copy(k), job.sources[k], slice.bytes);
            slice.source_count = 1;
            slice.collects = 1;
            slice.sources[0] = contributions.begin();
            slice.sink_count = 3;  // the last one is not written, as where a reference travels
            slice.sinks[2] = nullptr;
            slice.published = 2;
            slice.movers = movers;
            slice.sinks[1] = published.begin();
            device.launch({.name = "collect", .threads = movers + 1, .body = [&slice] {
                             // As the interpreter does before a slice.
                             simulator::alias_fence_made();
                             simulator::barrier("the fence is made");
                             test::move_one_slice(slice);
                           }});
            ASSERT_TRUE(device.run()) << device.report();
            for (size_t k = 0; k < 2; ++k)
              EXPECT_EQ(std::memcmp(published.copy(k), job.sinks[0], slice.bytes), 0) << "member " << k;
          }};
}

/// Operands whose sums are exact: what is collected of 16-bit floats is rounded before it is divided.
void make_whole(Trial& trial, DataType type, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i % 100);
    const uint64_t bits = type == DataType::kFloat16 ? narrow<Float16>(value) : narrow<Bfloat16>(value);
    trial.set(0, i, bits);
    trial.set(1, i, bits);
  }
}

// Goal: what plan/multicast.h promises the kernel does, for every type and operator. Method: two members,
// because the order of two operands leaves the bits of a result alone.
TEST_P(MoveTest, EveryOperatorOfTheHardwareIsCollected) {
  for (const KernelCase& kernel : kernel_cases()) {
    if (kernel.type != type() || kernel.association != Association::kLeft) continue;
    if (!multicast_reduces(kernel.type, kernel.op)) continue;
    Trial trial(kernel, 200);
    if (kernel.op == ReduceOp::kAvg && type_bytes(type()) == 2) make_whole(trial, type(), 200);
    for (const size_t count : {1, 3, 16, 65, 200}) {
      Job job = trial.make_job(2, count);
      job.scaled_sources = 0;  // the senders' affair
      const Placement place{0, count % 2 == 0 ? 0 : type_bytes(type()), false, 0};
      trial.check(collect_with(kFew ? 2 : 5, kernel), job, place, trial.reference(job));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tutti::reduce
