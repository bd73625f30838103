// Goal: a copy in place of a network card gives up when its call has failed already. Method: a device with
// one queue, in which a stream waits in front of the copy; the fake driver.
#include <gtest/gtest.h>

#include <array>

#include "cuda/context.h"
#include "cuda/memory.h"
#include "device/staging_device.h"
#include "tests/cuda/trial.h"

namespace tutti::test {
namespace {

TEST(CopyBesideTest, ACopyInVainEndsAtOnce) {
  const auto body = [](cuda::Trial& trial) {
    const auto driver = cuda::Driver::find();
    const auto context = cuda::Context::retain(**driver, 0);
    auto device = open_staging_device(**context, 0);
    if (!trial.ok(device.status(), "a device") || !trial.ok((*device)->open_card_access(), "its cards"))
      return;
    const cuda::CurrentContext current(**context);
    auto word = cuda::PinnedMemory::allocate(**context, sizeof(cuuint32_t));
    auto memory = cuda::DeviceMemory::allocate(**context, 4096);
    auto stream = cuda::Stream::create(**context);
    if (!trial.ok(word.status(), "a word") || !trial.ok(memory.status(), "memory")) return;
    auto* const flag = word->as<cuuint32_t>();
    *flag = 0;
    trial.is((*driver)->stream_wait_value32(stream->handle(), reinterpret_cast<CUdeviceptr>(flag), 1,
                                            CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS,
             "a stream that waits");
    std::array<std::byte, 64> host{};
    int asked = 0;
    const Status copied = (*device)->copy_beside(
        {.to = host.data(), .from = memory->as<std::byte>(), .bytes = host.size()}, [&] {
          ++asked;
          return true;
        });
    trial.is(copied.code() == Code::kAborted && asked == 1,
             "the copy gives up: " + std::string(copied.text()));
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    trial.ok(stream->synchronize(), "the stream goes on");
  };
  EXPECT_EQ(cuda::run(body, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}), "");
}

}  // namespace
}  // namespace tutti::test
