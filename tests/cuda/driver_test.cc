// The driver layer (src/cuda), and the fake driver on which everything else about CUDA is tested: each shows
// that the other does what CUDA's documentation says.
//
// Every case runs in a child, so that each has a driver of its own, made as its environment says.
#include "cuda/driver.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <map>
#include <thread>

#include "core/clock.h"
#include "cuda/context.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "net/local_socket.h"
#include "tests/cuda/driver/control.h"
#include "tests/cuda/driver/test_kernels.h"
#include "tests/cuda/trial.h"
#include "tests/support/cluster.h"

namespace tutti::cuda {
namespace {

using test::Rank;

/// A driver, device 0, a page of pinned memory and one of device memory.
struct Bench {
  std::unique_ptr<const Driver> driver;
  std::unique_ptr<Context> context;
  PinnedMemory pinned;
  DeviceMemory memory;
  Library library;
  std::map<std::string, Kernel> kernels;  ///< loaded at once: in a capture it would be too late

  bool open(Trial& trial) {
    auto found = Driver::find();
    if (!trial.ok(found.status(), "finding the driver")) return false;
    driver = std::move(*found);
    auto retained = Context::retain(*driver, 0);
    if (!trial.ok(retained.status(), "context")) return false;
    context = std::move(*retained);
    auto host = PinnedMemory::allocate(*context, 4096);
    auto device = DeviceMemory::allocate(*context, 4096);
    static const std::byte kImage{};
    auto loaded = Library::load(*context, std::span(&kImage, 1));
    if (!trial.ok(host.status(), "pinned memory") || !trial.ok(device.status(), "device memory"))
      return false;
    if (!trial.ok(loaded.status(), "library")) return false;
    pinned = std::move(*host);
    memory = std::move(*device);
    library = std::move(*loaded);
    for (const char* name : {"fake_store", "fake_add", "fake_hand_over", "fake_meet"}) {
      const auto kernel = library.kernel(name);
      if (!trial.ok(kernel.status(), name)) return false;
      kernels[name] = *kernel;
    }
    return trial.ok(fill_now(*context, memory.as<void>(), 0, memory.bytes()), "clearing device memory");
  }
  Stream stream(Trial& trial) const {
    auto made = Stream::create(*context);
    trial.ok(made.status(), "stream");
    return std::move(*made);
  }
  template <class Argument>
  void launch(Trial& trial, const char* name, const Grid& grid, CUstream stream,
              const Argument& argument) const {
    trial.ok(cuda::launch(*context, kernels.at(name), grid, stream, &argument), name);
  }
  uint32_t word(size_t index) const {
    uint32_t value = 0;
    (void)copy_now(*context, &value, memory.as<uint32_t>() + index, sizeof(value));
    return value;
  }
  /// What comes on the stream waits until the first word of `pinned` compares so.
  void wait(Trial& trial, CUstream stream, uint32_t value, CUstreamWaitValue_flags comparison) const {
    trial.ok(
        driver->check(driver->stream_wait_value32(stream, flag(), value, comparison), "cuStreamWaitValue32"),
        "");
  }
  CUdeviceptr flag(size_t index = 0) const {
    return reinterpret_cast<CUdeviceptr>(pinned.as<uint32_t>() + index);
  }
};

TEST(DriverTest, AnUnusableDriverSaysWhy) {
  EXPECT_EQ(
      run([](Trial& trial) { trial.fails(Driver::find().status(), Code::kUnsupported, "sees no device"); },
          {{"FAKE_CUDA_DEVICES", "0"}}),
      "");
  EXPECT_EQ(run([](Trial& trial) { trial.fails(Driver::find().status(), Code::kUnsupported, "CUDA 11.4"); },
                {{"FAKE_CUDA_VERSION", "11040"}}),
            "");
  EXPECT_EQ(run(
                [](Trial& trial) {
                  trial.fails(Driver::find().status(), Code::kUnsupported, "CUDA_ERROR_UNKNOWN");
                },
                {{"FAKE_CUDA_FAIL", "cuInit:1:999"}}),
            "");
}

// After a failed kernel no address could be asked about, and every one was called memory of the host.
TEST(DriverTest, AFailedContextDoesNotTellWhereAnAddressIs) {
  const auto body = [](Trial& trial) {
    const auto driver = Driver::find();
    if (!trial.ok(driver.status(), "finding the driver")) return;
    const Pointer found = (*driver)->look_up(&driver);
    trial.is(found.kind == MemoryKind::kUnknown && found.failure == CUDA_ERROR_ILLEGAL_ADDRESS,
             "nobody knows");
  };
  EXPECT_EQ(run(body, {{"FAKE_CUDA_FAIL", "cuPointerGetAttributes:1:700"}}), "");
}

TEST(DriverTest, DevicesAreDescribed) {
  const auto body = [](Trial& trial) {
    const auto driver = Driver::find();
    if (!trial.ok(driver.status(), "finding the driver")) return;
    trial.is((*driver)->device_count() == 2, "two devices");
    const auto one = (*driver)->describe(0);
    const auto two = (*driver)->describe(1);
    if (!trial.ok(one.status(), "device 0") || !trial.ok(two.status(), "device 1")) return;
    trial.is(one->multiprocessors == 7, "multiprocessors");
    trial.is(one->uuid != two->uuid, "devices have their own UUIDs");
    trial.is(two->name == "Fake GPU 3", "CUDA_VISIBLE_DEVICES picks: " + two->name);
    trial.fails((*driver)->describe(2).status(), Code::kInvalidArgument, "no CUDA device 2");
  };
  EXPECT_EQ(run(body, {{"FAKE_CUDA_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "1,3"}, {"FAKE_CUDA_SMS", "7"}}),
            "");
}

TEST(DriverTest, AddressesAreToldApart) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const auto kind = [&](const void* address) { return bench.driver->look_up(address).kind; };
    int local = 0;
    trial.is(kind(&local) == MemoryKind::kHost, "the stack");
    trial.is(kind(bench.pinned.as<char>() + 100) == MemoryKind::kPinned, "pinned memory");
    trial.is(kind(bench.memory.as<char>() + 100) == MemoryKind::kDevice, "device memory");
    trial.is(bench.driver->look_up(bench.memory.as<char>()).device == 0, "its device");
    trial.is(kind(bench.memory.as<char>() + 4096) == MemoryKind::kHost, "behind device memory");
    CUdeviceptr managed = 0;
    const CurrentContext current(*bench.context);
    trial.ok(
        bench.driver->check(bench.driver->mem_alloc_managed(&managed, 64, CU_MEM_ATTACH_GLOBAL), "managed"),
        "");
    trial.is(kind(reinterpret_cast<void*>(managed)) == MemoryKind::kManaged, "managed memory");
    trial.ok(bench.driver->check(bench.driver->mem_free(managed), "cuMemFree"), "");
  };
  EXPECT_EQ(run(body), "");
}

TEST(DriverTest, AStreamWaitsForAWordAndGoesOnInOrder) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const Driver& driver = *bench.driver;
    const Stream waiting = bench.stream(trial);
    const Stream writing = bench.stream(trial);
    auto* const pinned = bench.pinned.as<uint32_t>();
    bench.wait(trial, waiting.handle(), 2, CU_STREAM_WAIT_VALUE_GEQ);
    bench.launch(trial, "fake_store", {}, waiting.handle(), fake_cuda::StoreArgument{pinned + 1, 5});
    trial.ok(driver.check(driver.stream_write_value32(writing.handle(), bench.flag(), 1, 0), ""), "");
    trial.ok(writing.synchronize(), "the other stream is not held up");
    trial.is(driver.stream_query(waiting.handle()) == CUDA_ERROR_NOT_READY, "the first still waits");
    trial.is(__atomic_load_n(pinned + 1, __ATOMIC_ACQUIRE) == 0, "nothing has overtaken the wait");
    __atomic_store_n(pinned, 2, __ATOMIC_RELEASE);
    trial.ok(waiting.synchronize(), "the host's write releases it");
    trial.is(pinned[1] == 5, "the kernel has run");
    // Cyclic comparison, and words of 8 bytes.
    pinned[0] = 3;
    bench.wait(trial, waiting.handle(), UINT32_MAX, CU_STREAM_WAIT_VALUE_GEQ);
    trial.ok(
        driver.check(driver.stream_write_value64(waiting.handle(), bench.flag(2), uint64_t{7} << 32, 0), ""),
        "");
    trial.ok(waiting.synchronize(), "3 comes after 2^32 - 1");
    trial.is(pinned[2] == 0 && pinned[3] == 7, "8 bytes");
    trial.is(driver.stream_wait_value32(waiting.handle(), bench.flag() + 2, 0, 0) == CUDA_ERROR_INVALID_VALUE,
             "an address that is not aligned");
    trial.is(
        driver.stream_wait_value32(waiting.handle(), reinterpret_cast<CUdeviceptr>(&trial) & ~CUdeviceptr{3},
                                   0, 0) == CUDA_ERROR_INVALID_VALUE,
        "an address that the driver does not know");
  };
  EXPECT_EQ(run(body), "");
}

TEST(DriverTest, StreamsOfOneQueueHoldEachOtherUp) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const Driver& driver = *bench.driver;
    // Two queues: the streams go to them in turn.
    const Stream waiting = bench.stream(trial);
    const Stream apart = bench.stream(trial);
    const Stream behind = bench.stream(trial);
    auto* const pinned = bench.pinned.as<uint32_t>();
    bench.wait(trial, waiting.handle(), 1, CU_STREAM_WAIT_VALUE_EQ);
    trial.ok(driver.check(driver.stream_write_value32(behind.handle(), bench.flag(1), 1, 0), ""), "");
    trial.ok(driver.check(driver.stream_write_value32(apart.handle(), bench.flag(2), 1, 0), ""), "");
    trial.ok(apart.synchronize(), "the stream of the other queue goes on");
    trial.is(driver.stream_query(behind.handle()) == CUDA_ERROR_NOT_READY,
             "the one behind the wait is held up");
    __atomic_store_n(pinned, 1, __ATOMIC_RELEASE);
    trial.ok(behind.synchronize(), "until that ends");
    trial.is(pinned[1] == 1 && pinned[2] == 1, "both have written");
  };
  EXPECT_EQ(run(body, {{"CUDA_DEVICE_MAX_CONNECTIONS", "2"}}), "");
}

TEST(DriverTest, AHostFunctionRunsInItsTurnAndMayNotCallTheDriver) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    struct Seen {
      const Driver* driver;
      uint32_t* pinned;
      uint32_t word = 0;
      CUresult answer = CUDA_SUCCESS;
    };
    const Driver& driver = *bench.driver;
    Seen seen{.driver = &driver, .pinned = bench.pinned.as<uint32_t>()};
    const Stream stream = bench.stream(trial);
    bench.launch(trial, "fake_store", {}, stream.handle(), fake_cuda::StoreArgument{seen.pinned, 5});
    const auto look = [](void* argument) {
      auto* const to = static_cast<Seen*>(argument);
      to->word = *to->pinned;
      int count = 0;
      to->answer = to->driver->device_get_count(&count);
    };
    trial.ok(driver.check(driver.launch_host_func(stream.handle(), look, &seen), "cuLaunchHostFunc"), "");
    trial.ok(stream.synchronize(), "the stream");
    trial.is(seen.word == 5, "after the kernel before it");
    trial.is(seen.answer == CUDA_ERROR_NOT_PERMITTED, "a call of the driver is refused");
  };
  EXPECT_EQ(run(body), "");
}

TEST(DriverTest, EventsAndTheDefaultStreamOrderStreams) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const Driver& driver = *bench.driver;
    const Stream first = bench.stream(trial);
    const Stream second = bench.stream(trial);
    auto* const pinned = bench.pinned.as<uint32_t>();
    auto event = Event::create(*bench.context, true);
    auto later = Event::create(*bench.context, true);
    if (!trial.ok(event.status(), "event") || !trial.ok(later.status(), "event")) return;
    bench.wait(trial, first.handle(), 1, CU_STREAM_WAIT_VALUE_EQ);
    trial.ok(event->record(first.handle()), "record");
    trial.ok(event->make_wait(second.handle()), "wait");
    bench.launch(trial, "fake_store", {}, second.handle(), fake_cuda::StoreArgument{pinned + 1, 5});
    trial.ok(later->record(second.handle()), "record");
    trial.is(driver.event_query(event->handle()) == CUDA_ERROR_NOT_READY, "the event is not due");
    trial.is(__atomic_load_n(pinned + 1, __ATOMIC_ACQUIRE) == 0, "the second stream waits");
    // A stream that takes turns with the default stream, which waits for it.
    const CurrentContext current(*bench.context);
    CUstream blocking = nullptr;
    trial.ok(driver.check(driver.stream_create(&blocking, CU_STREAM_DEFAULT), ""), "");
    bench.wait(trial, blocking, 1, CU_STREAM_WAIT_VALUE_EQ);
    bench.launch(trial, "fake_store", {}, nullptr, fake_cuda::StoreArgument{pinned + 2, 6});
    trial.is(driver.stream_query(nullptr) == CUDA_ERROR_NOT_READY, "the default stream waits");
    __atomic_store_n(pinned, 1, __ATOMIC_RELEASE);
    trial.ok(second.synchronize(), "second stream");
    trial.ok(driver.check(driver.stream_synchronize(nullptr), ""), "");
    trial.is(pinned[1] == 5 && pinned[2] == 6, "all have run");
    float elapsed_ms = -1;
    trial.ok(driver.check(driver.event_elapsed_time(&elapsed_ms, event->handle(), later->handle()), ""), "");
    trial.is(elapsed_ms >= 0, "time goes on");
    trial.ok(driver.check(driver.stream_destroy(blocking), ""), "");
  };
  EXPECT_EQ(run(body), "");
}

TEST(DriverTest, KernelsOfSeveralStreamsRunTogetherAsFarAsThereAreSlots) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const Stream first = bench.stream(trial);
    const Stream second = bench.stream(trial);
    auto* const words = bench.memory.as<uint32_t>();
    bench.launch(trial, "fake_store", {}, first.handle(), fake_cuda::StoreArgument{words + 1, 9});
    bench.launch(trial, "fake_hand_over", {.threads = 32}, first.handle(),
                 fake_cuda::HandOverArgument{words, 1, words + 1, words + 2});
    bench.launch(trial, "fake_store", {}, second.handle(), fake_cuda::StoreArgument{words, 1});
    trial.ok(first.synchronize(), "the kernel that waits for the other stream's");
    trial.is(bench.word(2) == 9, "it has seen what came before it");
    const auto kernel = bench.library.kernel("fake_meet");
    if (!trial.ok(kernel.status(), "kernel")) return;
    const auto slots = resident_blocks(*bench.context, *kernel, 64);
    trial.is(slots.is_ok() && *slots == 6, "3 multiprocessors of 2 blocks");
    const fake_cuda::MeetArgument all{words + 4, 6};
    bench.launch(trial, "fake_meet", {.blocks = 6, .threads = 4, .cooperative = true}, first.handle(), all);
    trial.ok(first.synchronize(), "blocks that wait for each other");
    trial.fails(launch(*bench.context, *kernel, {.blocks = 7, .threads = 4, .cooperative = true},
                       first.handle(), &all),
                Code::kUnsupported, "COOPERATIVE_LAUNCH_TOO_LARGE");
    bench.launch(trial, "fake_add", {.blocks = 40, .threads = 16}, first.handle(),
                 fake_cuda::AddArgument{words + 5});
    trial.ok(first.synchronize(), "more blocks than slots");
    trial.is(bench.word(5) == 640, "every thread has run once");
  };
  for (const char* seed : {"1", "2", "3"}) {
    EXPECT_EQ(run(body, {{"FAKE_CUDA_SMS", "3"}, {"FAKE_CUDA_SEED", seed}}), "") << "seed " << seed;
  }
}

/// Captures: the first stream waits for a word and forks a second one, which joins it again.
CUgraph capture_fork(Trial& trial, const Bench& bench, const Stream& first, const Stream& second) {
  const Driver& driver = *bench.driver;
  auto* const words = bench.memory.as<uint32_t>();
  const auto fork = Event::create(*bench.context);
  const auto join = Event::create(*bench.context);
  trial.ok(driver.check(driver.stream_begin_capture(first.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL), "begin"),
           "");
  bench.wait(trial, first.handle(), 1, CU_STREAM_WAIT_VALUE_GEQ);
  trial.ok(fork->record(first.handle()), "fork");
  trial.ok(fork->make_wait(second.handle()), "fork");
  bench.launch(trial, "fake_add", {.threads = 8}, first.handle(), fake_cuda::AddArgument{words});
  bench.launch(trial, "fake_add", {.threads = 8}, second.handle(), fake_cuda::AddArgument{words + 1});
  trial.ok(join->record(second.handle()), "join");
  CUgraph graph = nullptr;
  trial.ok(join->make_wait(first.handle()), "join");
  const CUdeviceptr sum = reinterpret_cast<CUdeviceptr>(words + 2);
  trial.ok(
      driver.check(driver.memcpy_async(sum, reinterpret_cast<CUdeviceptr>(words), 8, first.handle()), ""),
      "");
  trial.ok(driver.check(driver.stream_end_capture(first.handle(), &graph), "end"), "");
  return graph;
}

TEST(DriverTest, AGraphRunsWhatWasCapturedEachTimeItIsLaunched) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const Driver& driver = *bench.driver;
    const Stream first = bench.stream(trial);
    const Stream second = bench.stream(trial);
    CUgraph graph = capture_fork(trial, bench, first, second);
    CUgraphExec executable = nullptr;
    trial.ok(driver.check(driver.graph_instantiate(&executable, graph, 0), "instantiate"), "");
    trial.ok(driver.check(driver.graph_destroy(graph), "destroy"), "");
    trial.is(bench.word(0) == 0, "a capture runs nothing");
    for (int i = 0; i < 3; ++i)
      trial.ok(driver.check(driver.graph_launch(executable, second.handle()), ""), "");
    trial.is(driver.stream_query(second.handle()) == CUDA_ERROR_NOT_READY, "the graph waits for the word");
    __atomic_store_n(bench.pinned.as<uint32_t>(), 1, __ATOMIC_RELEASE);
    trial.ok(second.synchronize(), "graphs");
    trial.is(bench.word(0) == 24 && bench.word(1) == 24, "both branches have run three times");
    trial.is(bench.word(2) == 24 && bench.word(3) == 24, "what came after both has seen them");
    trial.ok(driver.check(driver.graph_exec_destroy(executable), "destroy"), "");
  };
  EXPECT_EQ(run(body), "");
  EXPECT_EQ(run(body, {{"FAKE_CUDA_SERIAL", "1"}}), "");
}

TEST(DriverTest, CapturesRefuseWhatCannotBeCaptured) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const Driver& driver = *bench.driver;
    const Stream first = bench.stream(trial);
    const Stream second = bench.stream(trial);
    const auto event = Event::create(*bench.context);
    CUgraph graph = nullptr;
    const auto begin = [&](CUstreamCaptureMode mode) {
      trial.ok(driver.check(driver.stream_begin_capture(first.handle(), mode), "begin"), "");
    };
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    trial.fails(DeviceMemory::allocate(*bench.context, 64).status(), Code::kInvalidUsage,
                "CAPTURE_UNSUPPORTED");
    trial.is(driver.stream_end_capture(first.handle(), &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
             "invalidated");
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    trial.ok(driver.check(driver.thread_exchange_capture_mode(&mode), ""), "");
    trial.ok(DeviceMemory::allocate(*bench.context, 64).status(), "a relaxed thread may allocate");
    trial.ok(driver.check(driver.thread_exchange_capture_mode(&mode), ""), "");
    trial.ok(event->record(first.handle()), "record");
    trial.ok(event->make_wait(second.handle()), "fork");
    bench.launch(trial, "fake_add", {}, second.handle(), fake_cuda::AddArgument{bench.memory.as<uint32_t>()});
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    trial.ok(driver.check(driver.stream_is_capturing(second.handle(), &status), ""), "");
    trial.is(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the second stream is captured too");
    trial.is(driver.stream_end_capture(second.handle(), &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
             "its end is not here");
    trial.is(driver.stream_end_capture(first.handle(), &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
             "a branch is left open");
    trial.is(driver.event_query(event->handle()) == CUDA_ERROR_CAPTURED_EVENT, "an event of a capture");
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    std::thread([&] {
      trial.ok(DeviceMemory::allocate(*bench.context, 64).status(), "another thread");
    }).join();
    trial.ok(driver.check(driver.stream_end_capture(first.handle(), &graph), "end"), "");
    trial.ok(driver.check(driver.graph_destroy(graph), "destroy"), "");
  };
  EXPECT_EQ(run(body), "");
}

TEST(DriverTest, MemoryThatRunsOutIsAnErrorAndNothingLeaks) {
  const auto body = [](Trial& trial) {
    {
      Bench bench;
      if (!bench.open(trial)) return;
      const auto some = DeviceMemory::allocate(*bench.context, 600 << 10);
      trial.ok(some.status(), "most of the memory");
      trial.fails(DeviceMemory::allocate(*bench.context, 600 << 10).status(), Code::kOutOfMemory,
                  "cuMemAlloc(614400 bytes");
      trial.is(fake_cuda::leaks().find("614400 bytes of device 0") != std::string::npos,
               "what is held is listed");
    }
    trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
  };
  EXPECT_EQ(run(body, {{"FAKE_CUDA_MEMORY", "1048576"}}), "");
}

// Goal: memory that is given back serves the next owner, and is freed when memory is short and when the last
// owner goes. Method: a device of 1 MiB.
TEST(DriverTest, MemoryIsUsedAgainAndFreedWhenNobodyIsLeft) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const auto allocate = [&](size_t bytes) {
      auto memory = DeviceMemory::allocate(*bench.context, bytes);
      trial.ok(memory.status(), "memory");
      return memory ? std::move(*memory) : DeviceMemory();
    };
    DeviceMemory first = allocate(600 << 10);
    const CUdeviceptr address = first.address();
    first.reset();
    DeviceMemory second = allocate(400 << 10);
    trial.is(second.address() == address && second.bytes() == 600 << 10, "the piece serves again");
    second.reset();
    DeviceMemory other = allocate(100 << 10);
    trial.is(other.address() != address, "what needs little does not take much");
    DeviceMemory large = allocate(700 << 10);
    large.reset();
    other.reset();
    bench.pinned.reset();
    trial.is(fake_cuda::leaks().find("716800 bytes of device 0") != std::string::npos,
             "spare memory is kept");
    bench.memory.reset();
    trial.is(fake_cuda::leaks().find("bytes") == std::string::npos, "left behind: " + fake_cuda::leaks());
  };
  EXPECT_EQ(run(body, {{"FAKE_CUDA_MEMORY", "1048576"}}), "");
}

// Goal: lent memory serves the next owner too, and is the host's again, and its owner's, when the last owner
// of device memory goes.
TEST(DriverTest, LentMemoryServesLaterOwnersAndReturnsWithTheLastOne) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const auto pages = std::make_shared<std::vector<std::byte>>(3 * 4096);
    const auto kind = [&] { return bench.driver->look_up(pages->data() + 5000).kind; };
    SpareMemory& spare = bench.context->spare_memory();
    trial.ok(spare.lend({.address = pages->data(), .bytes = pages->size(), .owner = pages}), "lending");
    trial.is(kind() == MemoryKind::kPinned, "lent memory");
    trial.is(!spare.lend({.address = pages->data() + 4096, .bytes = 4096}), "lent twice");
    trial.is(!spare.find_lent(4096), "an owner has it");
    spare.give_back({.address = pages->data(), .bytes = pages->size(), .owner = pages});
    trial.is(kind() == MemoryKind::kPinned && !spare.find_lent(4 * 4096), "spare memory");
    auto found = spare.find_lent(2 * 4096);
    trial.is(found && found->address == pages->data(), "it serves again");
    if (found) spare.give_back(std::move(*found));
    bench.pinned.reset();
    trial.is(kind() == MemoryKind::kPinned && pages.use_count() == 2, "device memory has an owner");
    bench.memory.reset();
    trial.is(kind() == MemoryKind::kHost && pages.use_count() == 1, "nobody is left");
  };
  EXPECT_EQ(run(body), "");
}

TEST(DriverTest, AFaultHitsTheCallThatItNames) {
  const auto body = [](Trial& trial) {
    Bench bench;
    if (!bench.open(trial)) return;
    const Stream stream = bench.stream(trial);
    const fake_cuda::AddArgument argument{bench.memory.as<uint32_t>()};
    bench.launch(trial, "fake_add", {}, stream.handle(), argument);
    const auto kernel = bench.library.kernel("fake_add");
    trial.fails(launch(*bench.context, *kernel, {}, stream.handle(), &argument), Code::kSystemError,
                "cuLaunchKernelEx: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
    trial.fails(bench.library.kernel("no_such_kernel").status(), Code::kSystemError, "no_such_kernel");
  };
  EXPECT_EQ(run(body, {{"FAKE_CUDA_FAIL", "cuLaunchKernelEx:2:701"}}), "");
}

TEST(DriverTest, TheHostCannotTouchDeviceMemory) {
  const auto touch = [](const Environment&) {
    Trial trial;
    Bench bench;
    if (!bench.open(trial)) _exit(2);
    (void)std::signal(SIGSEGV, SIG_DFL);  // the address sanitizer has a handler
    if (!fake_cuda::guards_memory()) raise(SIGSEGV);
    *bench.memory.as<volatile char>() = 1;
    _exit(1);
  };
  EXPECT_EXIT(touch({}), testing::KilledBySignal(SIGSEGV), "");
}

/// Shares one granule of device memory by a file; 0: it cannot.
CUdeviceptr map_shared(Trial& trial, const Bench& bench, CUmemGenericAllocationHandle handle, size_t bytes) {
  const Driver& driver = *bench.driver;
  CUdeviceptr address = 0;
  trial.ok(driver.check(driver.mem_address_reserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve"), "");
  trial.ok(driver.check(driver.mem_map(address, bytes, 0, handle, 0), "cuMemMap"), "");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 0;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  trial.ok(driver.check(driver.mem_set_access(address, bytes, &access, 1), "cuMemSetAccess"), "");
  trial.is(driver.mem_address_free(address, bytes) == CUDA_ERROR_INVALID_VALUE,
           "mapped addresses are not freed");
  return address;
}

void unmap_shared(Trial& trial, const Bench& bench, CUdeviceptr address, size_t bytes) {
  const Driver& driver = *bench.driver;
  trial.ok(driver.check(driver.mem_unmap(address, bytes), "cuMemUnmap"), "");
  trial.ok(driver.check(driver.mem_address_free(address, bytes), "cuMemAddressFree"), "");
}

constexpr size_t kShared = size_t{2} << 20;

/// Rank 0's part: makes memory, sends its file, waits until the other has written, sees it.
void share(Trial& trial, Rank& rank, const Bench& bench, const std::string& name) {
  const Driver& driver = *bench.driver;
  CUmemAllocationProp wish{};
  wish.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wish.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wish.location.id = 0;
  wish.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  trial.ok(driver.check(driver.mem_create(&handle, kShared, &wish, 0), "cuMemCreate"), "");
  const CUdeviceptr address = map_shared(trial, bench, handle, kShared);
  trial.ok(fill_now(*bench.context, reinterpret_cast<void*>(address), 0, kShared), "clearing");
  int fd = -1;
  trial.ok(driver.check(driver.mem_export_to_shareable_handle(&fd, handle,
                                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                        ""),
           "");
  trial.ok(driver.check(driver.mem_release(handle), "cuMemRelease"), "a mapping keeps the memory");
  const FileDescriptor file(fd);
  const auto listener = local_listen(name);
  if (!trial.ok(listener.status(), "listening") || !rank.meet()) return;
  FileDescriptor visitor;
  if (!rank.meet()) return;
  visitor = local_accept(*listener);
  const std::byte nothing{};
  trial.ok(local_send(visitor.get(), std::span(&nothing, 1), std::span(&fd, 1), UINT64_MAX), "sending");
  // The peer's kernel hands over what it finds once this stream has written the flag.
  const Stream stream = bench.stream(trial);
  const uint32_t number = 77;
  trial.ok(copy_now(*bench.context, reinterpret_cast<void*>(address + 8), &number, sizeof(number)), "copy");
  trial.ok(driver.check(driver.stream_write_value32(stream.handle(), address, 1, 0), ""), "");
  trial.ok(
      driver.check(driver.stream_wait_value32(stream.handle(), address + 4, 77, CU_STREAM_WAIT_VALUE_EQ), ""),
      "");
  trial.ok(stream.synchronize(), "the peer's kernel has answered");
  rank.meet();
  unmap_shared(trial, bench, address, kShared);
}

/// Rank 1's: maps what came, and answers by a kernel that waits in it.
void take_share(Trial& trial, Rank& rank, const Bench& bench, const std::string& name) {
  const Driver& driver = *bench.driver;
  if (!rank.meet()) return;
  const auto connection = local_connect(name, UINT64_MAX);
  if (!trial.ok(connection.status(), "connecting") || !rank.meet()) return;
  auto message = local_receive(connection->get(), UINT64_MAX);
  if (!trial.ok(message.status(), "receiving") || !trial.is(message->files.size() == 1, "one file")) return;
  CUmemGenericAllocationHandle handle = 0;
  void* const file = reinterpret_cast<void*>(static_cast<intptr_t>(message->files[0].get()));
  trial.ok(driver.check(driver.mem_import_from_shareable_handle(&handle, file,
                                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                        ""),
           "");
  const CUdeviceptr address = map_shared(trial, bench, handle, kShared);
  trial.ok(driver.check(driver.mem_release(handle), "cuMemRelease"), "");
  trial.is(bench.driver->look_up(reinterpret_cast<void*>(address)).kind == MemoryKind::kDevice,
           "device memory");
  const Stream stream = bench.stream(trial);
  auto* const words = reinterpret_cast<uint32_t*>(address);
  bench.launch(trial, "fake_hand_over", {.threads = 4}, stream.handle(),
               fake_cuda::HandOverArgument{words, 1, words + 2, words + 1});
  trial.ok(stream.synchronize(), "kernel");
  rank.meet();
  unmap_shared(trial, bench, address, kShared);
}

TEST(DriverTest, TwoProcessesShareMemoryByAFile) {
  const std::string name = "tutti-driver-test-" + std::to_string(getpid());
  const auto body = [&](Rank& rank) {
    Trial trial;
    {
      Bench bench;
      if (bench.open(trial)) {
        const CurrentContext current(*bench.context);
        rank.rank() == 0 ? share(trial, rank, bench, name) : take_share(trial, rank, bench, name);
      }
    }
    trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
    if (!trial.failures().empty()) rank.fail(trial.failures());
  };
  EXPECT_EQ(test::run_cluster({.layout = {1, 1}, .create = false}, body), "");
}

TEST(DriverTest, TwoProcessesShareMemoryByAnIpcHandle) {
  const auto body = [](Rank& rank) {
    Trial trial;
    Bench bench;
    if (bench.open(trial)) {
      const Driver& driver = *bench.driver;
      const CurrentContext current(*bench.context);
      CUipcMemHandle handle{};
      if (rank.rank() == 0) {
        trial.ok(
            driver.check(driver.ipc_get_mem_handle(&handle, bench.memory.address()), "cuIpcGetMemHandle"),
            "");
        std::memcpy(rank.shared_bytes(), &handle, sizeof(handle));
        CUdeviceptr own = 0;
        trial.is(driver.ipc_open_mem_handle(&own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS,
                 "a process does not open its own handle");
        rank.meet();
        rank.meet();
        trial.is(bench.word(3) == 123, "the peer's write");
      } else {
        rank.meet();
        std::memcpy(&handle, rank.shared_bytes(), sizeof(handle));
        CUdeviceptr address = 0;
        trial.ok(driver.check(
                     driver.ipc_open_mem_handle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), ""),
                 "");
        const uint32_t number = 123;
        trial.ok(copy_now(*bench.context, reinterpret_cast<void*>(address + 12), &number, sizeof(number)),
                 "copy");
        trial.ok(driver.check(driver.ipc_close_mem_handle(address), "cuIpcCloseMemHandle"), "");
        rank.meet();
      }
    }
    if (!trial.failures().empty()) rank.fail(trial.failures());
  };
  EXPECT_EQ(test::run_cluster({.layout = {1, 1}, .create = false}, body), "");
}

TEST(DriverTest, PeersWithoutAccessAndBrokenOnesAreAsTheEnvironmentSays) {
  const auto body = [](Trial& trial) {
    const auto driver = Driver::find();
    if (!trial.ok(driver.status(), "finding the driver")) return;
    const auto zero = Context::retain(**driver, 0);
    const auto one = Context::retain(**driver, 1);
    const auto two = Context::retain(**driver, 2);
    trial.fails((*zero)->enable_peer(**one), Code::kUnsupported,
                "device 0 cannot reach the memory of device 1");
    trial.ok((*zero)->enable_peer(**two), "access");
    trial.ok((*zero)->enable_peer(**two), "twice");
    const auto source = DeviceMemory::allocate(**one, 64);
    const auto target = DeviceMemory::allocate(**two, 64);
    trial.ok(fill_now(**one, source->as<void>(), 7, 64), "fill");
    trial.ok(copy_now(**one, target->as<void>(), source->as<void>(), 64), "copy");
    std::vector<unsigned char> found(64);
    trial.ok(copy_now(**two, found.data(), target->as<void>(), 64), "copy");
    trial.is(found != std::vector<unsigned char>(64, 7), "what crosses a broken pair arrives wrong");
  };
  EXPECT_EQ(
      run(body, {{"FAKE_CUDA_DEVICES", "3"}, {"FAKE_CUDA_NO_PEER", "0:1"}, {"FAKE_CUDA_BROKEN_PEER", "1:2"}}),
      "");
}

}  // namespace
}  // namespace tutti::cuda
