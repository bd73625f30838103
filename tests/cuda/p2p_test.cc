// Memory of devices that ranks share (transports/p2p): by file, by IPC handle, between devices, and where it
// cannot be.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/context.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "net/local_socket.h"
#include "tests/cuda/driver/control.h"
#include "tests/cuda/driver/test_kernels.h"
#include "tests/cuda/trial.h"
#include "transports/p2p/device_memory.h"
#include "transports/p2p/multicast_memory.h"

namespace tutti::cuda {
namespace {

using test::Rank;

constexpr size_t kBytes = 5000;

/// A driver and contexts of its first devices.
struct Devices {
  std::unique_ptr<const Driver> driver;
  std::vector<std::unique_ptr<Context>> contexts;

  bool open(Trial& trial, int count) {
    auto found = Driver::find();
    if (!trial.ok(found.status(), "finding the driver")) return false;
    driver = std::move(*found);
    for (int device = 0; device < count; ++device) {
      auto context = Context::retain(*driver, device);
      if (!trial.ok(context.status(), "context")) return false;
      contexts.push_back(std::move(*context));
    }
    return true;
  }
  void close() {
    contexts.clear();
    driver.reset();
  }
};

/// What [address, address + kBytes) of a device holds.
std::vector<unsigned char> read(const Context& context, const void* address) {
  std::vector<unsigned char> bytes(kBytes);
  (void)copy_now(context, bytes.data(), address, bytes.size());
  return bytes;
}

/// Sends a memory handle and its file to the other rank, by a socket of that name.
void send_handle(Trial& trial, Rank& rank, const std::string& name, const DeviceMemoryHandle& handle,
                 const FileDescriptor& file) {
  const auto listener = local_listen(name);
  trial.ok(listener.status(), "listening");
  if (!rank.meet() || !rank.meet() || !listener) return;
  const FileDescriptor visitor = local_accept(*listener);
  const int fd = file.get();
  const std::span files(&fd, file.is_open() ? 1 : 0);
  trial.ok(local_send(visitor.get(), std::as_bytes(std::span(&handle, 1)), files, UINT64_MAX), "sending");
}

/// Receives it. The handle is empty when it does not come.
DeviceMemoryHandle receive_handle(Trial& trial, Rank& rank, const std::string& name, FileDescriptor& file) {
  DeviceMemoryHandle handle;
  if (!rank.meet()) return handle;
  const auto connection = local_connect(name, UINT64_MAX);
  trial.ok(connection.status(), "connecting");
  if (!rank.meet() || !connection) return handle;
  auto message = local_receive(connection->get(), UINT64_MAX);
  if (!trial.ok(message.status(), "receiving") || message->bytes.size() != sizeof(handle)) return handle;
  std::memcpy(&handle, message->bytes.data(), sizeof(handle));
  if (!message->files.empty()) file = std::move(message->files[0]);
  return handle;
}

/// Rank 0 shares memory, rank 1 writes to it, rank 0 sees that; both give everything back.
void share(Rank& rank, const std::string& name, DeviceMemoryHandle::Kind kind) {
  Trial trial;
  {
    Devices devices;
    if (devices.open(trial, 1) && rank.rank() == 0) {
      const Context& context = *devices.contexts[0];
      auto memory = SharedDeviceMemory::create(context, kBytes);
      if (trial.ok(memory.status(), "creating")) {
        trial.is(memory->handle().kind == kind, "the kind of handle");
        trial.is(read(context, memory->as<char>()) == std::vector<unsigned char>(kBytes, 0), "it is zeroed");
        send_handle(trial, rank, name, memory->handle(), memory->file());
        rank.meet();
        trial.is(read(context, memory->as<char>()) == std::vector<unsigned char>(kBytes, 9),
                 "the peer's write");
      }
    } else if (rank.rank() == 1) {
      const Context& context = *devices.contexts[0];
      FileDescriptor file;
      const DeviceMemoryHandle handle = receive_handle(trial, rank, name, file);
      const auto memory = PeerDeviceMemory::open(context, handle, file);
      file.reset();
      if (trial.ok(memory.status(), "opening")) {
        const auto own = DeviceMemory::allocate(context, kCheckBytes);
        trial.ok(check_access(context, memory->as<void>(), own->as<void>(), 1), "checking");
        trial.ok(fill_now(context, memory->as<void>(), 9, kBytes), "writing");
      }
      rank.meet();
    }
  }
  trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
  if (!trial.failures().empty()) rank.fail(trial.failures());
}

TEST(PeerToPeerTest, ProcessesShareMemoryByFileOrByIpcHandle) {
  const std::string name = "tutti-p2p-test-" + std::to_string(getpid());
  EXPECT_EQ(test::run_cluster({.layout = {1, 1}, .create = false},
                              [&](Rank& rank) { share(rank, name, DeviceMemoryHandle::kFile); }),
            "");
  EXPECT_EQ(
      test::run_cluster({.layout = {1, 1}, .environment = {{"FAKE_CUDA_NO_FILES", "1"}}, .create = false},
                        [&](Rank& rank) { share(rank, name, DeviceMemoryHandle::kIpc); }),
      "");
}

TEST(PeerToPeerTest, AProgramsOwnMemoryIsSharedFromItsMiddle) {
  const std::string name = "tutti-p2p-test-" + std::to_string(getpid());
  const auto body = [&](Rank& rank) {
    Trial trial;
    Devices devices;
    if (devices.open(trial, 1)) {
      const Context& context = *devices.contexts[0];
      if (rank.rank() == 0) {
        const auto memory = DeviceMemory::allocate(context, 4 * kBytes);
        const auto handle = make_handle(context, memory->as<char>() + 3000, kBytes);
        trial.ok(handle.status(), "handle");
        trial.fails(make_handle(context, memory->as<char>() + 3000, 4 * kBytes).status(), Code::kUnsupported,
                    "not allocated by cudaMalloc as one piece of 20000 bytes");
        const auto own = SharedDeviceMemory::create(context, kBytes);
        trial.fails(make_handle(context, own->as<char>(), kBytes).status(), Code::kUnsupported, "cudaMalloc");
        trial.ok(fill_now(context, memory->as<void>(), 0, 4 * kBytes), "clearing");
        send_handle(trial, rank, name, *handle, FileDescriptor());
        rank.meet();
        trial.is(read(context, memory->as<char>() + 3000) == std::vector<unsigned char>(kBytes, 4),
                 "the write");
        unsigned char before = 1;
        trial.ok(copy_now(context, &before, memory->as<char>() + 2999, 1), "copy");
        trial.is(before == 0, "nothing in front of it is touched");
      } else {
        FileDescriptor file;
        const DeviceMemoryHandle handle = receive_handle(trial, rank, name, file);
        const auto memory = PeerDeviceMemory::open(context, handle, file);
        if (trial.ok(memory.status(), "opening"))
          trial.ok(fill_now(context, memory->as<void>(), 4, kBytes), "writing");
        rank.meet();
      }
    }
    if (!trial.failures().empty()) rank.fail(trial.failures());
  };
  EXPECT_EQ(test::run_cluster({.layout = {1, 1}, .create = false}, body), "");
}

TEST(PeerToPeerTest, AnAllocationThatIsMadeForFilesIsSharedFromItsMiddle) {
  const std::string name = "tutti-p2p-test-" + std::to_string(getpid());
  const auto body = [&](Rank& rank) {
    Trial trial;
    {
      Devices devices;
      if (devices.open(trial, 1) && rank.rank() == 0) {
        const Context& context = *devices.contexts[0];
        // Whatever has made it: all that is known is the address.
        auto memory = SharedDeviceMemory::create(context, 4 * kBytes);
        char* const middle = memory->as<char>() + 3000;
        const auto share = share_memory(context, middle, kBytes);
        if (trial.ok(share.status(), "sharing")) {
          trial.is(share->handle.kind == DeviceMemoryHandle::kFile, "by file");
          send_handle(trial, rank, name, share->handle, share->file);
          rank.meet();
          trial.is(read(context, middle) == std::vector<unsigned char>(kBytes, 7), "the write");
        }
        trial.fails(share_memory(context, middle, memory->bytes()).status(), Code::kUnsupported,
                    "nor is it one allocation");
      } else if (rank.rank() == 1) {
        const Context& context = *devices.contexts[0];
        FileDescriptor file;
        const DeviceMemoryHandle handle = receive_handle(trial, rank, name, file);
        const auto memory = PeerDeviceMemory::open(context, handle, file);
        if (trial.ok(memory.status(), "opening"))
          trial.ok(fill_now(context, memory->as<void>(), 7, kBytes), "writing");
        rank.meet();
      }
    }
    trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
    if (!trial.failures().empty()) rank.fail(trial.failures());
  };
  EXPECT_EQ(test::run_cluster({.layout = {1, 1}, .create = false}, body), "");
}

/// Devices 0 and 1 of one process: a word of device 0's memory is written by device 1.
Status reach(Trial& trial) {
  Devices devices;
  if (!devices.open(trial, 2)) return Status::ok();
  const Context& own = *devices.contexts[0];
  const Context& other = *devices.contexts[1];
  const auto memory = SharedDeviceMemory::create(own, kBytes);
  trial.ok(memory.status(), "creating");
  TUTTI_TRY(memory->let_in(other));
  const auto there = DeviceMemory::allocate(other, kCheckBytes);
  return check_access(other, memory->as<void>(), there->as<void>(), 3);
}

TEST(PeerToPeerTest, APairWithoutAccessOrWithBrokenAccessIsNamed) {
  for (const char* no_files : {"0", "1"}) {
    const auto run_with = [&](const char* fault, const std::function<void(Trial&)>& body) {
      return run(body, {{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_NO_FILES", no_files}, {fault, "0:1"}});
    };
    EXPECT_EQ(
        run_with("NO_FAULT", [](Trial& trial) { trial.ok(reach(trial), "devices that reach each other"); }),
        "");
    EXPECT_EQ(run_with("FAKE_CUDA_NO_PEER",
                       [](Trial& trial) { trial.fails(reach(trial), Code::kUnsupported, "CUDA device 1"); }),
              "");
    EXPECT_EQ(run_with("FAKE_CUDA_BROKEN_PEER",
                       [](Trial& trial) {
                         trial.fails(reach(trial), Code::kUnsupported,
                                     "CUDA device 1 (0000:02:00.0) claims access");
                       }),
              "");
  }
}

TEST(PeerToPeerTest, WhatCannotBeMadeLeavesNothingBehind) {
  const auto body = [](Trial& trial) {
    {
      Devices devices;
      if (!devices.open(trial, 1)) return;
      const Context& context = *devices.contexts[0];
      trial.fails(SharedDeviceMemory::create(context, 8 << 20).status(), Code::kOutOfMemory,
                  "cuMemCreate(8388608");
      const auto plain = SharedDeviceMemory::create(context, kBytes);
      trial.ok(plain.status(), "memory that the driver refuses to map is plain memory");
      trial.is(plain && plain->handle().kind == DeviceMemoryHandle::kIpc, "shared by CUDA IPC");
      DeviceMemoryHandle handle{.kind = DeviceMemoryHandle::kFile, .bytes = 2 << 20};
      trial.fails(PeerDeviceMemory::open(context, handle, FileDescriptor()).status(), Code::kUnsupported,
                  "cuMemImportFromShareableHandle");
      handle.kind = DeviceMemoryHandle::kNone;
      trial.fails(PeerDeviceMemory::open(context, handle, FileDescriptor()).status(), Code::kUnsupported,
                  "shared");
    }
    trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
  };
  EXPECT_EQ(run(body, {{"FAKE_CUDA_MEMORY", "4194304"}, {"FAKE_CUDA_FAIL", "cuMemSetAccess:1:999"}}), "");
}

constexpr uint32_t kMembers = 4;
using Members = std::vector<MulticastMemory>;

/// Runs fake_collect on a member's device: from the first four floats to the next four of its own memory, and
/// to the four behind those of all.
void collect(Trial& trial, const Context& context, const MulticastMemory& memory) {
  static const std::byte kImage{};
  const auto library = Library::load(context, std::span(&kImage, 1));
  const auto stream = Stream::create(context);
  if (!trial.ok(library.status(), "library") || !trial.ok(stream.status(), "stream")) return;
  const auto kernel = library->kernel("fake_collect");
  if (!trial.ok(kernel.status(), "kernel")) return;
  const fake_cuda::CollectArgument argument{
      .from_all = memory.all<float>(), .to = memory.own<float>() + 4, .to_all = memory.all<float>() + 8};
  trial.ok(launch(context, *kernel, {.blocks = 1, .threads = 4}, stream->handle(), &argument), "launching");
  trial.ok(context.driver().check(context.driver().stream_synchronize(stream->handle()), "waiting"),
           "waiting");
}

/// Two processes of two devices each bind a member a device. Those of rank 0 have created and opened the
/// object, those of rank 1 have got its file.
Members make_members(Trial& trial, Rank& rank, const std::string& name, const Devices& devices) {
  const uint32_t first = 2 * static_cast<uint32_t>(rank.rank());
  Members members;
  FileDescriptor received;
  if (rank.rank() == 0) {
    auto created = MulticastMemory::create(*devices.contexts[first], kMembers, kBytes);
    if (!trial.ok(created.status(), "creating")) return {};
    send_handle(trial, rank, name, {}, created->file());
    members.push_back(std::move(*created));
  } else {
    receive_handle(trial, rank, name, received);
  }
  const FileDescriptor& file = rank.rank() == 0 ? members[0].file() : received;
  for (uint32_t device = first + static_cast<uint32_t>(members.size()); device < first + 2; ++device) {
    auto opened = MulticastMemory::open(*devices.contexts[device], kMembers, kBytes, file);
    if (!trial.ok(opened.status(), "opening")) return {};
    members.push_back(std::move(*opened));
  }
  trial.is(members[0].bytes() == members[1].bytes(), "one size");
  for (MulticastMemory& member : members) trial.ok(member.add_device(), "adding");
  trial.fails(members[0].add_device(), Code::kSystemError, "CUDA_ERROR_INVALID_DEVICE");
  rank.meet();
  for (MulticastMemory& member : members) trial.ok(member.bind(), "binding");
  return members;
}

void use_multicast(Rank& rank, const std::string& name) {
  Trial trial;
  {
    Devices devices;
    if (!devices.open(trial, kMembers)) return rank.fail(trial.failures());
    const Members members = make_members(trial, rank, name, devices);
    if (members.size() < 2) return rank.fail(trial.failures());
    for (size_t i = 0; i < 2; ++i) {
      const size_t device = 2 * static_cast<size_t>(rank.rank()) + i;
      const std::vector<float> own(4, static_cast<float>(device + 1));
      trial.ok(copy_now(*devices.contexts[device], members[i].own<float>(), own.data(), 16), "writing");
    }
    rank.meet();
    if (rank.rank() == 1) collect(trial, *devices.contexts[3], members[1]);
    rank.meet();
    const std::vector<float> sum(4, 1 + 2 + 3 + 4);
    for (size_t i = 0; i < 2; ++i) {
      const size_t device = 2 * static_cast<size_t>(rank.rank()) + i;
      std::vector<float> found(4);
      trial.ok(copy_now(*devices.contexts[device], found.data(), members[i].own<float>() + 8, 16), "reading");
      trial.is(found == sum, "what was stored to all, on device " + std::to_string(device));
      trial.ok(copy_now(*devices.contexts[device], found.data(), members[i].own<float>() + 4, 16), "reading");
      trial.is((found == sum) == (device == 3),
               "what was stored to one, on device " + std::to_string(device));
    }
    rank.meet();
  }
  trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
  if (!trial.failures().empty()) rank.fail(trial.failures());
}

TEST(PeerToPeerTest, DevicesOfTwoProcessesStoreToAllAndLoadTheSum) {
  const std::string name = "tutti-p2p-test-" + std::to_string(getpid());
  EXPECT_EQ(test::run_cluster({.layout = {1, 1},
                               .environment = {{"FAKE_CUDA_DEVICES", "4"}, {"FAKE_CUDA_MULTICAST", "1"}},
                               .create = false},
                              [&](Rank& rank) { use_multicast(rank, name); }),
            "");
}

TEST(PeerToPeerTest, MulticastMemoryIsBoundOnceAllDevicesAreAdded) {
  const auto body = [](Trial& trial) {
    Devices devices;
    if (!devices.open(trial, 1)) return;
    auto memory = MulticastMemory::create(*devices.contexts[0], 2, kBytes);
    if (!trial.ok(memory.status(), "creating")) return;
    trial.fails(memory->bind(), Code::kSystemError, "CUDA_ERROR_INVALID_DEVICE");
    trial.ok(memory->add_device(), "adding");
    trial.fails(memory->bind(), Code::kSystemError, "CUDA_ERROR_ILLEGAL_STATE");
    memory->reset();
    devices.close();
    trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
  };
  EXPECT_EQ(run(body, {{"FAKE_CUDA_MULTICAST", "1"}, {"FAKE_CUDA_DEVICES", "2"}}), "");
}

TEST(PeerToPeerTest, OlderDriversAndOtherDevicesHaveNoMulticastMemory) {
  const auto body = [](Trial& trial) {
    Devices devices;
    if (!devices.open(trial, 1)) return;
    trial.fails(MulticastMemory::create(*devices.contexts[0], 2, kBytes).status(), Code::kUnsupported,
                "no multicast memory");
  };
  EXPECT_EQ(run(body), "");
  EXPECT_EQ(run(body, {{"FAKE_CUDA_MULTICAST", "1"}, {"FAKE_CUDA_VERSION", "12000"}}), "");
  EXPECT_EQ(run(body, {{"FAKE_CUDA_MULTICAST", "1"}, {"FAKE_CUDA_NO_FILES", "1"}}), "");
}

}  // namespace
}  // namespace tutti::cuda
