// Goal: what a driver does at a kernel's first launch (it loads code and reserves memory, and waits for the
// device) is over when a device is open. Later another rank's kernel may wait for this rank there. Method:
// the fake driver counts what its process asks for.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/context.h"
#include "cuda/library.h"
#include "device/device_rank.h"
#include "engine/cuda/kernels.h"
#include "tests/cuda/cuda_place.h"
#include "tests/cuda/driver/control.h"
#include "tests/cuda/numbers.h"
#include "tests/cuda/trial.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr uint32_t kQueues = 8;
constexpr std::array kKernels = {cuda::kRunKernel, cuda::kShortKernel};

/// Opens a device for two ranks, and finds one launch of each kernel for each opened device. Returns the
/// ranks.
std::vector<std::unique_ptr<DeviceRank>> expect_launches(cuda::Trial& trial, Devices& devices, int device,
                                                         uint64_t launches) {
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    auto opened = devices.open_rank(device, rank, 2);
    if (trial.ok(opened.status(), "opening device " + std::to_string(device)))
      ranks.push_back(std::move(*opened));
  }
  for (const char* kernel : kKernels)
    trial.is(fake_cuda::launches(kernel) == launches, std::string(kernel) + ": " +
                                                          std::to_string(fake_cuda::launches(kernel)) +
                                                          " launches, not " + std::to_string(launches));
  return ranks;
}

TEST(FirstLaunchTest, OpeningADeviceLaunchesEachKernelOnce) {
  const auto body = [](cuda::Trial& trial) {
    auto devices = Devices::find(kQueues);
    if (!trial.ok(devices.status(), "devices")) return;
    expect_launches(trial, **devices, 0, 1);
    expect_launches(trial, **devices, 1, 2);
  };
  EXPECT_EQ(cuda::run(body, {{"FAKE_CUDA_DEVICES", "2"}}), "");
}

/// Captures what `body` does in the strictest mode, in which a launch into the legacy stream, or whatever may
/// wait, ends the capture. Returns how the capture ended.
Status capture_around(const cuda::Context& context, const cuda::Stream& stream,
                      const std::function<void()>& body) {
  const cuda::Driver& driver = context.driver();
  const cuda::CurrentContext current(context);
  TUTTI_TRY(current.status());
  TUTTI_TRY(driver.check(driver.stream_begin_capture(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL),
                         "cuStreamBeginCapture"));
  body();
  CUgraph graph = nullptr;
  TUTTI_TRY(driver.check(driver.stream_end_capture(stream.handle(), &graph), "cuStreamEndCapture"));
  return driver.check(driver.graph_destroy(graph), "cuGraphDestroy");
}

// Goal: a user may make a communicator while a stream is being captured. The launches run, and the capture
// goes on without them.
TEST(FirstLaunchTest, ADeviceOpenedDuringACaptureIsLaunchedOnBesideIt) {
  const auto body = [](cuda::Trial& trial) {
    const auto driver = cuda::Driver::find();
    if (!trial.ok(driver.status(), "driver")) return;
    const auto context = cuda::Context::retain(**driver, 0);
    if (!trial.ok(context.status(), "context")) return;
    const auto stream = cuda::Stream::create(**context);
    if (!trial.ok(stream.status(), "stream")) return;
    auto devices = Devices::find(kQueues);
    if (!trial.ok(devices.status(), "devices")) return;
    std::vector<std::unique_ptr<DeviceRank>> ranks;
    trial.ok(capture_around(**context, *stream, [&] { ranks = expect_launches(trial, **devices, 0, 1); }),
             "the capture");
  };
  EXPECT_EQ(cuda::run(body), "");
}

// Goal: with communicators made, no call loads anything: neither the first one by packets nor the first one
// by links. Both kernels run in it.
TEST(FirstLaunchTest, TheFirstCallsLoadNothing) {
  EXPECT_EQ(run_cluster(on_device(2, 4),
                        [](Rank& rank) {
                          const auto place = CudaPlace::open(rank, 0, Order::kBlocking);
                          if (place == nullptr || !rank.meet()) return;
                          const uint64_t before = fake_cuda::loads();
                          rank.expect_true(before > 0, "images were loaded");
                          for (const size_t count : {kCount, kLongCount}) {
                            const Numbers numbers(*place, count);
                            rank.expect_ok(sum(numbers, numbers, rank.comm, TUTTI_BLOCKING), "a sum");
                          }
                          if (!rank.meet()) return;
                          rank.expect_true(fake_cuda::loads() == before, "a call has loaded something");
                          for (const char* kernel : kKernels)
                            rank.expect_true(fake_cuda::launches(kernel) > 1, kernel);
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
