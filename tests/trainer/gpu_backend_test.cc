// Gradients reduced on a GPU, by the fake driver (tests/cuda/driver): sums, failures, and when they stay on
// the host.
#include "trainer/gpu_backend.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cuda/driver/control.h"
#include "tests/trainer/bucket_checks.h"
#include "tests/trainer/team_run.h"

namespace tutti::trainer {
namespace {

using test::error_of;

CudaLibraries fakes() {
  return {.driver = {FAKE_CUDA_FOLDER "/libcuda.so.1"}};
}

/// Skips where this program was taken elsewhere without the fake driver.
class GpuBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(fakes().driver[0]))
      GTEST_SKIP() << FAKE_CUDA_FOLDER << " holds no fake driver";
  }
};

/// Lets the fake GPU reduce the team's gradients; what Team::reduce_on says.
std::string use_gpu(Team& team) {
  return team.reduce_on(std::make_shared<const Gpu>(team.rank(), fakes()));
}

// Goal: sums as on a host stream. Method: ranks as threads, processes and both, on one GPU and on two.
TEST_F(GpuBackendTest, BucketsHoldTheSumOverRanks) {
  for (const auto& layout : {test::threads(1), test::threads(3), test::processes(2), test::mixed(3)}) {
    for (const char* gpus : {"1", "2"}) {
      const auto body = [&](test::Rank& rank, Team& team) {
        rank.expect_true(use_gpu(team).empty(), "reductions on a GPU");
        for (const size_t bytes : {size_t{0}, size_t{1} << 20}) {
          test::check_sums(rank, team, bytes);
          // Nor does any begin while one still gives its memory back.
          rank.meet();
        }
      };
      EXPECT_EQ(test::run_team(layout, body, {}, {{"FAKE_CUDA_DEVICES", gpus}}), "")
          << test::layout_name(layout) << ", " << gpus << " GPUs";
    }
  }
}

// Goal: a lost rank is an error of finish(), on every other rank, not a hang.
TEST_F(GpuBackendTest, ALostRankIsAnErrorOfFinish) {
  for (const auto& layout : {test::processes(3), test::threads(3)}) {
    const auto body = [](test::Rank& rank, Team& team) {
      rank.expect_true(use_gpu(team).empty(), "reductions on a GPU");
      rank.meet();
      if (rank.rank() != 1) test::check_lost(rank, team);
      team.abort();
    };
    EXPECT_EQ(test::run_team(layout, body), "") << test::layout_name(layout);
  }
}

// Goal: where GPUs cannot reduce for all ranks they do for none, every rank knows the same reason, and the
// host goes on. Method: a rank without a GPU.
TEST_F(GpuBackendTest, ReductionsStayOnTheHostWhereARankHasNoGpu) {
  const auto without = [&](test::Rank& rank, Team& team) {
    const auto gpu = rank.rank() == 1 ? nullptr : std::make_shared<const Gpu>(0, fakes());
    const std::string found = team.reduce_on(gpu);
    rank.expect_true(found.find("rank 1: it has no GPU that works") != std::string::npos, found);
    test::check_sums(rank, team, 64);
  };
  EXPECT_EQ(test::run_team({1, 2}, without), "");
}

// Goal: GPUs that do not reach each other reduce all the same. Method: ranks of two emulated hosts; devices
// without access to each other.
TEST_F(GpuBackendTest, GpusThatDoNotReachEachOtherReduceToo) {
  const auto body = [](test::Rank& rank, Team& team) {
    const std::string found = use_gpu(team);
    rank.expect_true(found.empty(), found);
    test::check_sums(rank, team, 64);
  };
  EXPECT_EQ(test::run_team({1, 1}, body, {0, 1}), "");
  EXPECT_EQ(test::run_team({2}, body, {}, {{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_NO_PEER", "0:1"}}), "");
}

// Goal: every call of the driver that can fail becomes an error that names the GPU and what was tried, and
// nothing stays open.
TEST_F(GpuBackendTest, EveryFailureIsNamedAndLeavesNothingOpen) {
  for (const auto& [function, text] : std::vector<std::pair<std::string, std::string>>{
           {"cuCtxPushCurrent", "entering the context"},
           {"cuStreamCreate", "making a stream"},
           {"cuMemHostAlloc", "400 bytes of host memory for gradients"},
           {"cuEventCreate", "making an event"},
           {"cuEventRecord", "noting an event"},
           {"cuEventSynchronize", "reducing gradients"}}) {
    const auto body = [text = text]() -> std::string {
      const std::string error = error_of([] {
        const BackendPointer backend = gpu_backend(std::make_shared<const Gpu>(0, fakes()), nullptr);
        const BackendVector<float> memory(100, backend);
        const auto stream = backend->make_stream();
        stream->mark();
        stream->wait();
      });
      const bool named = error.starts_with("GPU 0 (") &&
                         error.find("): " + text + ": ") != std::string::npos && error.ends_with(" (2)");
      return (named ? "" : "'" + error + "'\n") + fake_cuda::leaks();
    };
    EXPECT_EQ(test::run_child(body, {{"FAKE_CUDA_FAIL", function + ":1:2"}}), "") << function;
  }
}

// Goal: memory is zeroed, of any size, and goes back.
TEST_F(GpuBackendTest, MemoryIsZeroedAndGivenBack) {
  const auto body = []() -> std::string {
    {
      const BackendPointer backend = gpu_backend(std::make_shared<const Gpu>(0, fakes()), nullptr);
      const BackendVector<float> none(0, backend);
      const BackendVector<float> some(3000, backend);
      for (size_t i = 0; i < some.size(); ++i)
        if (some.data()[i] != 0) return "number " + std::to_string(i);
      if (none.data() != nullptr) return "memory of nothing";
    }
    return fake_cuda::leaks();
  };
  EXPECT_EQ(test::run_child(body), "");
}

}  // namespace
}  // namespace tutti::trainer
