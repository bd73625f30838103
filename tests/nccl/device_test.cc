// NCCL's interface on CUDA devices: a rank works on the device whose context is current when it joins, its
// operations run on the streams that calls name. The device is the fake driver's.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <string>
#include <thread>
#include <vector>

#include "cuda/context.h"
#include "cuda/memory.h"
#include "tests/nccl/nccl_cluster.h"

namespace tutti::test {
namespace {

constexpr size_t kCount = 3000;

/// What a program on a GPU has: a current context, a stream, buffers.
class Gpu {
 public:
  bool open(NcclRank& rank) {
    auto found = cuda::Driver::find();
    if (!rank.expect_true(found.is_ok(), std::string(found.status().text()))) return false;
    driver_ = std::move(*found);
    auto context = cuda::Context::retain(*driver_, 0);
    if (!rank.expect_true(context.is_ok(), std::string(context.status().text()))) return false;
    context_ = std::move(*context);
    current_ = std::make_unique<cuda::CurrentContext>(*context_);
    auto stream = cuda::Stream::create(*context_);
    auto input = cuda::DeviceMemory::allocate(*context_, kCount * sizeof(float));
    auto output = cuda::DeviceMemory::allocate(*context_, kCount * sizeof(float));
    if (!rank.expect_true(stream.is_ok() && input.is_ok() && output.is_ok(), "memory")) return false;
    stream_ = std::move(*stream);
    input_ = std::move(*input);
    output_ = std::move(*output);
    return true;
  }
  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(stream_.handle()); }
  float* input() const { return input_.as<float>(); }
  float* output() const { return output_.as<float>(); }
  const cuda::Driver& driver() const { return *driver_; }
  void write(float* to, const std::vector<float>& values) const {
    (void)cuda::copy_now(*context_, to, values.data(), values.size() * sizeof(float));
  }
  cuda::PinnedMemory pinned(size_t bytes) const {
    auto memory = cuda::PinnedMemory::allocate(*context_, bytes);
    return memory ? std::move(*memory) : cuda::PinnedMemory();
  }
  /// The stream writes `value` once the word is 1.
  void write_behind(float* to, float value, const uint32_t* word) const {
    (void)driver_->stream_wait_value32(stream_.handle(), reinterpret_cast<CUdeviceptr>(word), 1,
                                       CU_STREAM_WAIT_VALUE_EQ);
    (void)driver_->stream_write_value32(stream_.handle(), reinterpret_cast<CUdeviceptr>(to),
                                        std::bit_cast<uint32_t>(value), CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  /// What the buffer holds once the stream has done its work.
  std::vector<float> read(const float* from) const {
    std::vector<float> values(kCount);
    (void)stream_.synchronize();
    (void)cuda::copy_now(*context_, values.data(), from, kCount * sizeof(float));
    return values;
  }

 private:
  std::unique_ptr<const cuda::Driver> driver_;
  std::unique_ptr<cuda::Context> context_;
  std::unique_ptr<cuda::CurrentContext> current_;
  cuda::Stream stream_;
  cuda::DeviceMemory input_;
  cuda::DeviceMemory output_;
};

std::vector<float> all(float value) {
  return std::vector<float>(kCount, value);
}

/// Runs `body` on ranks that have joined on device 0.
std::string run_on_device(const std::vector<int>& layout, const std::function<void(NcclRank&, Gpu&)>& body,
                          const std::vector<int>& hosts = {}) {
  ClusterOptions options = uncreated(layout);
  options.hosts = hosts;
  return run_nccl(options, [&](NcclRank& rank) {
    Gpu gpu;
    const ncclUniqueId id = rank.next_id();
    if (!gpu.open(rank)) return;
    if (!rank.expect_ok(ncclCommInitRank(&rank.comm, rank.count(), id, rank.rank()), "join")) return;
    body(rank, gpu);
    rank.expect_ok(ncclCommDestroy(rank.comm), "destroy");
    rank.comm = nullptr;
  });
}

void check_operations(NcclRank& rank, Gpu& gpu) {
  int device = -1;
  rank.expect_ok(ncclCommCuDevice(rank.comm, &device), "device");
  rank.expect_true(device == 0, "the current device");
  const auto own = static_cast<float>(rank.rank() + 1);
  const auto sum = static_cast<float>(rank.count() * (rank.count() + 1)) / 2;
  gpu.write(gpu.input(), all(own));
  rank.expect_ok(
      ncclAllReduce(gpu.input(), gpu.output(), kCount, ncclFloat32, ncclSum, rank.comm, gpu.stream()), "sum");
  rank.expect_true(gpu.read(gpu.output()) == all(sum), "the sum");
  // A scalar in device memory is what it is when the operation runs.
  ncclRedOp_t scaled = ncclSum;
  float* scalar = nullptr;
  rank.expect_ok(ncclMemAlloc(reinterpret_cast<void**>(&scalar), kCount * sizeof(float)), "ncclMemAlloc");
  rank.expect_true(gpu.driver().look_up(scalar).kind == cuda::MemoryKind::kDevice, "device memory");
  rank.expect_ok(ncclRedOpCreatePreMulSum(&scaled, scalar, ncclFloat32, ncclScalarDevice, rank.comm),
                 "operator");
  gpu.write(scalar, {3});
  rank.expect_ok(
      ncclAllReduce(gpu.input(), gpu.output(), kCount, ncclFloat32, scaled, rank.comm, gpu.stream()),
      "scaled sum");
  rank.expect_true(gpu.read(gpu.output()) == all(3 * sum), "the scaled sum");
  rank.expect_ok(ncclRedOpDestroy(scaled, rank.comm), "operator");
  rank.expect_ok(ncclMemFree(scalar), "ncclMemFree");
  // A ring of messages.
  const int next = (rank.rank() + 1) % rank.count();
  const int previous = (rank.rank() + rank.count() - 1) % rank.count();
  rank.expect_ok(ncclGroupStart(), "group");
  rank.expect_ok(ncclSend(gpu.input(), kCount, ncclFloat32, next, rank.comm, gpu.stream()), "send");
  rank.expect_ok(ncclRecv(gpu.output(), kCount, ncclFloat32, previous, rank.comm, gpu.stream()), "receive");
  rank.expect_ok(ncclGroupEnd(), "group");
  rank.expect_true(gpu.read(gpu.output()) == all(static_cast<float>(previous + 1)), "the message");
}

TEST(NcclDeviceTest, RanksWorkOnTheCurrentDevice) {
  EXPECT_EQ(run_on_device({2}, check_operations), "");
  EXPECT_EQ(run_on_device({1, 1}, check_operations), "");
}

/// Memory of the current device in a window, a sum in it, and the end of both.
void check_window(NcclRank& rank, Gpu& gpu) {
  constexpr size_t kBytes = kCount * sizeof(float);
  float* memory = nullptr;
  rank.expect_ok(ncclMemAlloc(reinterpret_cast<void**>(&memory), kBytes), "ncclMemAlloc");
  ncclWindow_t window = nullptr;
  rank.expect_ok(ncclCommWindowRegister(rank.comm, memory, kBytes, &window, NCCL_WIN_COLL_SYMMETRIC),
                 "register");
  rank.expect_true(window != nullptr, "a window");
  void* pointer = nullptr;
  rank.expect_ok(ncclWinGetUserPtr(rank.comm, window, &pointer), "pointer");
  rank.expect_true(pointer == memory, "where it is");
  const auto own = static_cast<float>(rank.rank() + 1);
  gpu.write(memory, all(own));
  rank.expect_ok(ncclAllReduce(memory, memory, kCount, ncclFloat32, ncclSum, rank.comm, gpu.stream()), "sum");
  const auto sum = static_cast<float>(rank.count() * (rank.count() + 1)) / 2;
  rank.expect_true(gpu.read(memory) == all(sum), "the sum");
  rank.expect_ok(ncclCommWindowDeregister(rank.comm, window), "deregister");
  rank.expect(ncclWinGetUserPtr(rank.comm, window, &pointer), ncclInvalidArgument, "it is gone");
  rank.expect_ok(ncclMemFree(memory), "ncclMemFree");
}

TEST(NcclDeviceTest, MemoryIsRegisteredAsAWindow) {
  EXPECT_EQ(run_on_device({2}, check_window), "");
  EXPECT_EQ(run_on_device({1, 1}, check_window), "");
}

// Goal: a communicator knows nothing of the windows of an earlier one. Method: one ends with a window, which
// the next, whose handle is the same, is asked for, before and after it has some of its own.
TEST(NcclDeviceTest, WindowsEndWithTheirCommunicator) {
  const auto body = [](NcclRank& rank, Gpu& gpu) {
    void* const memory[] = {gpu.input(), gpu.output()};
    void* pointer = nullptr;
    ncclWindow_t window = nullptr;
    for (int i = 0; i < 2; ++i) {
      if (i > 0) {
        rank.expect_ok(ncclCommDestroy(rank.comm), "destroy");
        const ncclUniqueId id = rank.next_id();
        if (!rank.expect_ok(ncclCommInitRank(&rank.comm, rank.count(), id, rank.rank()), "join")) return;
        rank.expect(ncclWinGetUserPtr(rank.comm, window, &pointer), ncclInvalidArgument, "an old window");
      }
      rank.expect_ok(
          ncclCommWindowRegister(rank.comm, memory[i], kCount * sizeof(float), &window, NCCL_WIN_DEFAULT),
          "register");
      rank.expect_ok(ncclWinGetUserPtr(rank.comm, window, &pointer), "pointer");
      rank.expect_true(pointer == memory[i], "where it is");
    }
  };
  EXPECT_EQ(run_on_device({1, 1}, body), "");
}

// Goal: a thread that drives several ranks registers for all of them in one group.
TEST(NcclDeviceTest, AGroupRegistersTheWindowsOfAllRanks) {
  ClusterOptions options = uncreated({1});
  options.environment = {{"FAKE_CUDA_DEVICES", "2"}};
  const auto body = [](NcclRank& rank) {
    Gpu gpu;
    if (!gpu.open(rank)) return;
    const auto context = cuda::Context::retain(gpu.driver(), 1);
    const auto second = cuda::DeviceMemory::allocate(**context, kCount * sizeof(float));
    void* const memory[] = {gpu.input(), second->as<void>()};
    ncclComm_t comms[2] = {};
    ncclWindow_t windows[2] = {};
    rank.expect_ok(ncclCommInitAll(comms, 2, nullptr), "all devices");
    rank.expect_ok(ncclGroupStart(), "group");
    for (int i = 0; i < 2; ++i)
      rank.expect_ok(
          ncclCommWindowRegister(comms[i], memory[i], kCount * sizeof(float), &windows[i], NCCL_WIN_DEFAULT),
          "register");
    rank.expect_ok(ncclGroupEnd(), "the end registers");
    rank.expect_true(windows[0] != nullptr && windows[1] != nullptr, "windows");
    rank.expect_ok(ncclGroupStart(), "group");
    for (int i = 0; i < 2; ++i) rank.expect_ok(ncclCommWindowDeregister(comms[i], windows[i]), "deregister");
    rank.expect_ok(ncclGroupEnd(), "the end deregisters");
    for (ncclComm_t comm : comms) rank.expect_ok(ncclCommDestroy(comm), "destroy");
  };
  EXPECT_EQ(run_nccl(options, body), "");
}

TEST(NcclDeviceTest, DevicesMayBeOnSeveralHosts) {
  EXPECT_EQ(run_on_device({1, 1}, check_operations, {0, 1}), "");
  EXPECT_EQ(run_on_device({2, 1}, check_operations, {0, 1}), "");
}

TEST(NcclDeviceTest, ARankInHostMemoryJoinsOneOnADevice) {
  EXPECT_EQ(
      run_nccl(uncreated({1, 1}),
               [](NcclRank& rank) {
                 Gpu gpu;
                 const bool on_device = rank.rank() == 0;
                 const ncclUniqueId id = rank.next_id();
                 if (on_device && !gpu.open(rank)) return;
                 if (!rank.expect_ok(ncclCommInitRank(&rank.comm, rank.count(), id, rank.rank()), "join"))
                   return;
                 std::vector<float> host = all(5);
                 if (on_device) gpu.write(gpu.input(), all(7));
                 float* const buffer = on_device ? gpu.input() : host.data();
                 rank.expect_ok(ncclAllReduce(buffer, buffer, kCount, ncclFloat32, ncclSum, rank.comm,
                                              on_device ? gpu.stream() : nullptr),
                                "sum");
                 rank.expect_true((on_device ? gpu.read(buffer) : host) == all(12), "the sum");
               }),
      "");
}

TEST(NcclDeviceTest, ASplitInheritsTheDevice) {
  EXPECT_EQ(run_on_device({2},
                          [](NcclRank& rank, Gpu& gpu) {
                            ncclComm_t both = nullptr;
                            rank.expect_ok(ncclCommSplit(rank.comm, 0, rank.rank(), &both, nullptr), "split");
                            gpu.write(gpu.input(), all(2));
                            rank.expect_ok(ncclAllReduce(gpu.input(), gpu.input(), kCount, ncclFloat32,
                                                         ncclProd, both, gpu.stream()),
                                           "product in place");
                            rank.expect_true(gpu.read(gpu.input()) == all(4), "the product");
                            rank.expect_ok(ncclCommDestroy(both), "destroy");
                          }),
            "");
}

// Goal: a thread that has not named a device has device 0, as cudaGetDevice says: PyTorch makes communicators
// from such threads.
TEST(NcclDeviceTest, AThreadWithoutAContextHasDevice0) {
  EXPECT_EQ(run_nccl(uncreated({1}),
                     [](NcclRank& rank) {
                       Gpu gpu;
                       if (!gpu.open(rank)) return;
                       std::thread([&] {
                         ncclComm_t comm = nullptr;
                         rank.expect_ok(ncclCommInitRank(&comm, 1, rank.next_id(), 0), "join");
                         int device = -1;
                         rank.expect_ok(ncclCommCuDevice(comm, &device), "device");
                         rank.expect_true(device == 0, "device 0");
                         rank.expect_ok(ncclCommDestroy(comm), "destroy");
                       }).join();
                     }),
            "");
}

// Goal: a scalar "on the device" in memory that the host can read, too, is what work ahead in the stream has
// made of it.
// Method: the stream waits for a word, then writes the scalar; the word is set after the call.
TEST(NcclDeviceTest, AScalarInPinnedMemoryIsReadWhenTheOperationRuns) {
  EXPECT_EQ(run_on_device({1},
                          [](NcclRank& rank, Gpu& gpu) {
                            auto words = gpu.pinned(2 * sizeof(uint32_t));
                            auto* const word = words.as<uint32_t>();
                            auto* const scalar = words.as<float>() + 1;
                            *word = 0;
                            *scalar = 2;
                            ncclRedOp_t scaled = ncclSum;
                            rank.expect_ok(ncclRedOpCreatePreMulSum(&scaled, scalar, ncclFloat32,
                                                                    ncclScalarDevice, rank.comm),
                                           "operator");
                            gpu.write(gpu.input(), all(5));
                            gpu.write_behind(scalar, 3, word);
                            rank.expect_ok(ncclAllReduce(gpu.input(), gpu.output(), kCount, ncclFloat32,
                                                         scaled, rank.comm, gpu.stream()),
                                           "scaled sum");
                            std::atomic_ref(*word).store(1, std::memory_order_release);
                            rank.expect_true(gpu.read(gpu.output()) == all(15), "the scaled sum");
                          }),
            "");
}

TEST(NcclDeviceTest, HostMemoryIsRefusedOnADevice) {
  EXPECT_EQ(run_on_device({1},
                          [](NcclRank& rank, Gpu& gpu) {
                            std::vector<float> host(kCount);
                            rank.expect(ncclAllReduce(host.data(), gpu.output(), kCount, ncclFloat32, ncclSum,
                                                      rank.comm, gpu.stream()),
                                        ncclInvalidArgument, "host memory");
                            rank.expect_text({"send", "host memory"}, "host memory");
                          }),
            "");
}

TEST(NcclDeviceTest, OneCallMakesTheRanksOfAllDevices) {
  ClusterOptions options = uncreated({1});
  options.environment = {{"FAKE_CUDA_DEVICES", "2"}};
  const auto body = [](NcclRank& rank) {
    Gpu gpu;
    if (!gpu.open(rank)) return;
    ncclComm_t comms[2] = {};
    const int wrong[] = {0, 2};
    rank.expect(ncclCommInitAll(comms, 2, wrong), ncclInvalidArgument, "no device 2");
    rank.expect_ok(ncclCommInitAll(comms, 2, nullptr), "all devices");
    for (int i = 0; i < 2; ++i) {
      int device = -1;
      rank.expect_ok(ncclCommCuDevice(comms[i], &device), "device");
      rank.expect_true(device == i, "a rank a device");
    }
    for (ncclComm_t comm : comms) rank.expect_ok(ncclCommDestroy(comm), "destroy");
  };
  EXPECT_EQ(run_nccl(options, body), "");
}

}  // namespace
}  // namespace tutti::test
