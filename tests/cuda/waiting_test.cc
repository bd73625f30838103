// From when on an operation's wait counts. The deadline of an operation depends on it.
#include <gtest/gtest.h>

#include "core/clock.h"
#include "cuda/library.h"
#include "device/device_rank.h"
#include "engine/cuda/kernels.h"
#include "tests/cuda/trial.h"

namespace tutti::test {
namespace {

// As many queues as the driver's default.
constexpr uint32_t kQueues = 8;

/// Two ranks on device 0, connected.
std::vector<std::unique_ptr<DeviceRank>> open_pair(cuda::Trial& trial, Devices& devices) {
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  std::vector<DevicePeer> peers;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    auto opened = devices.open_rank(0, rank, 2);
    if (!trial.ok(opened.status(), "opening")) return {};
    peers.push_back({.identity = (*opened)->identity(), .same_process = true});
    ranks.push_back(std::move(*opened));
  }
  for (const auto& rank : ranks) trial.ok(rank->connect(peers), "connecting");
  return ranks;
}

/// Returns once the device's only block has been free.
void pass_through_device(cuda::Trial& trial) {
  const auto driver = cuda::Driver::find();
  const auto context = cuda::Context::retain(**driver, 0);
  const char* const names[] = {"tutti_nothing"};
  const auto loaded = cuda::load_kernels(**context, cuda::kernel_images(), names);
  const auto stream = cuda::Stream::create(**context);
  if (!trial.ok(loaded.status(), "a kernel")) return;
  trial.ok(cuda::launch(**context, loaded->kernels[0], {}, stream->handle(), nullptr), "launching");
  trial.ok(stream->synchronize(), "waiting");
}

// Goal: the first operation of a rank waits from when it was issued, not since the machine's start. Method:
// on a device with one block, the operation's launch leaves without its peer, and what comes behind the
// launch has run before anyone looks at the rank.
TEST(WaitingTest, AnIdleRankWaitsFromItsNewOperationOn) {
  const auto body = [](cuda::Trial& trial) {
    const uint64_t begun = now_ns();
    auto devices = Devices::find(kQueues);
    if (!trial.ok(devices.status(), "devices")) return;
    const auto ranks = open_pair(trial, **devices);
    auto buffer = (*devices)->allocate(0, 4096);
    if (ranks.empty() || !trial.ok(buffer.status(), "a buffer")) return;
    DeviceRank& rank = *ranks[0];
    const Message message{.buffer = *buffer, .bytes = 4096, .peer = 1, .sending = false};
    auto program = rank.bind_messages({}, {.messages = {message}});
    if (!trial.ok(program.status(), "binding")) return;
    const DeviceOperation operation{.rank = &rank, .program = program->get(), .buffers = {}, .stream = {}};
    trial.ok((*devices)->launch(std::span(&operation, 1)), "launching");
    pass_through_device(trial);
    const DeviceSnapshot first = rank.look();
    trial.is(first.state == DeviceSnapshot::State::kBlocked, "the launch has left without its peer");
    trial.is(first.waited_ns <= now_ns() - begun,
             "no longer than this test: waited for " + std::to_string(first.waited_ns) + " ns");
    rank.abort();
    trial.ok(rank.relaunch(), "relaunching");
    for (auto done = rank.is_done(); done && !*done; done = rank.is_done()) pass_through_device(trial);
  };
  EXPECT_EQ(cuda::run(body, {{"FAKE_CUDA_SMS", "1"}, {"FAKE_CUDA_BLOCKS", "1"}}), "");
}

}  // namespace
}  // namespace tutti::test
