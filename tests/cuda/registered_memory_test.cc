// Registered memory: memory of devices that ranks register, and load from and store to where it lies, across
// processes and devices (tutti_memory_register).
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "tests/conformance/trial.h"
#include "tests/cuda/cuda_place.h"
#include "tests/cuda/driver/control.h"
#include "tests/cuda/numbers.h"
#include "tests/support/cluster.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr size_t kArenaBytes = 4 << 20;

/// Ranks on `devices` devices in turn, without a communicator.
ClusterOptions on_devices(std::vector<int> layout, int devices, const char* fault = "NONE",
                          const char* value = "") {
  ClusterOptions options = on_device(1, 4);
  options.layout = std::move(layout);
  options.create = false;
  options.environment.emplace_back("FAKE_CUDA_DEVICES", std::to_string(devices));
  options.environment.emplace_back(fault, value);
  return options;
}

/// The rank's communicator and place. Null on failure.
std::unique_ptr<CudaPlace> join(Rank& rank, int devices, Order order = Order::kStream,
                                uint64_t timeout_ms = 0) {
  tutti_config_t config = rank.config();
  const int device = rank.rank() % devices;
  config.device = TUTTI_CUDA_DEVICE(device);
  if (timeout_ms > 0) config.timeout_ms = timeout_ms;
  return rank.renew(config) ? CudaPlace::open(rank, device, order) : nullptr;
}

tutti_registered_memory_t* register_memory(Rank& rank, void* buffer, size_t bytes, bool takes_effect = true) {
  tutti_registered_memory_t* registered = nullptr;
  rank.expect_ok(tutti_memory_register(rank.comm, buffer, bytes, &registered), "register");
  rank.expect_true((registered != nullptr) == takes_effect,
                   takes_effect ? "registered memory" : "no registered memory");
  return registered;
}

/// Which buffers of a trial lie in registered memory.
enum class Mix { kAll, kEvenRanks, kInTurn, kAcrossTheEnd };

/// Buffers in two registered memories in turn, of the program's memory and of the library's, at offsets that
/// no packet is aligned to, and others.
class RegisteredPlace final : public Place {
 public:
  RegisteredPlace(Rank& rank, CudaPlace& below, Mix mix) : rank_(rank), below_(below), mix_(mix) {
    arenas_[0].begin = below_.allocate(2 * kArenaBytes);
    void* memory = nullptr;
    rank.expect_ok(tutti_comm_mem_alloc(rank.comm, &memory, 2 * kArenaBytes), "memory");
    arenas_[1].begin = static_cast<std::byte*>(memory);
    for (Arena& arena : arenas_) {
      // The registered memory is a part of what was allocated.
      arena.registered = register_memory(rank, arena.begin + 1000, kArenaBytes);
    }
  }
  ~RegisteredPlace() override { rank_.expect_ok(tutti_mem_free(arenas_[1].begin), "free"); }
  void deregister() {
    for (Arena& arena : arenas_)
      rank_.expect_ok(tutti_memory_deregister(rank_.comm, std::exchange(arena.registered, nullptr)),
                      "deregister");
  }
  std::byte* allocate(size_t bytes) override {
    const size_t number = allocated_++;
    std::byte* const begin = arenas_[number % 2].begin;
    switch (mix_) {
      case Mix::kAll: break;
      case Mix::kEvenRanks:
        if (rank_.rank() % 2 != 0) return below_.allocate(bytes);
        break;
      case Mix::kInTurn:
        if ((number + static_cast<size_t>(rank_.rank())) % 3 == 0) return below_.allocate(bytes);
        break;
      case Mix::kAcrossTheEnd: return begin + 1000 + kArenaBytes - bytes / 2 / 8 * 8;
    }
    return begin + 1000 + 8 * (number % 7);
  }
  bool copy(void* to, const void* from, size_t bytes) override { return below_.copy(to, from, bytes); }
  tutti_result_t run(const std::function<tutti_result_t(tutti_stream_t)>& call) override {
    return below_.run(call);
  }

 private:
  struct Arena {
    std::byte* begin = nullptr;
    tutti_registered_memory_t* registered = nullptr;
  };
  Rank& rank_;
  CudaPlace& below_;
  Mix mix_;
  Arena arenas_[2];
  size_t allocated_ = 0;
};

void run_trials(Rank& rank, Place& place, uint64_t seed) {
  for (uint64_t i = 0; i < kKindCount; ++i) {
    Trial trial;
    trial.kind = static_cast<Kind>(i);
    trial.count = (i + seed) % 3 == 0 ? 300 : 30'000;
    trial.in_place = (i + seed) % 2 == 0 && trial.kind != Kind::kAllToAllV;
    trial.seed = kSeed + seed + i;
    run_trial(rank, trial, place);
  }
}

// Goal: calls give what they are defined to give wherever their buffers lie, before, between and after
// registered memory. Method: every collective, buffers in registered memory as the mix says, then without
// registered memory, then with one that nobody deregisters.
TEST(RegisteredMemoryTest, EveryCollectiveWorksInsideAndOutsideOfRegions) {
  const struct {
    std::vector<int> layout;
    int devices;
    Order order;
  } cases[] = {{{1, 1}, 1, Order::kStream}, {{1, 1, 1}, 1, Order::kGraph}, {{1, 1}, 2, Order::kBlocking},
               {{2, 1}, 1, Order::kStream}, {{2, 1}, 2, Order::kGraph},    {{3}, 2, Order::kStream}};
  constexpr Mix kMixes[][2] = {{Mix::kAll, Mix::kEvenRanks}, {Mix::kInTurn, Mix::kAcrossTheEnd}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    const auto& one = cases[i];
    // The thread sanitizer sees nothing between processes.
    if (thread_sanitized() && one.layout.size() > 1) continue;
    for (const Mix mix : kMixes[i % 2]) {
      const auto body = [&](Rank& rank) {
        const auto below = join(rank, one.devices, one.order);
        if (below == nullptr) return;
        {
          RegisteredPlace place(rank, *below, mix);
          run_trials(rank, place, static_cast<uint64_t>(mix));
          place.deregister();
          run_trials(rank, place, static_cast<uint64_t>(mix) + 1);
        }
        RegisteredPlace kept(rank, *below, mix);
        run_trials(rank, kept, static_cast<uint64_t>(mix) + 2);
        rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy");
      };
      EXPECT_EQ(run_cluster(on_devices(one.layout, one.devices), body), "")
          << layout_name(one.layout) << " on " << one.devices << " devices, " << order_name(one.order)
          << ", mix " << static_cast<int>(mix);
    }
  }
}

/// Every way in which bytes travel, with numbers that occur nowhere else.
struct Traffic {
  static constexpr size_t kNumbers = 90'000;
  Numbers send;
  Numbers recv;

  explicit Traffic(CudaPlace& place) : send(place, kNumbers), recv(place, kNumbers) {}
  static uint64_t first(uint64_t rank) { return (rank + 1) << 40; }
  static uint64_t total(uint64_t ranks) { return (ranks * (ranks + 1) / 2) << 40; }

  void run(Rank& rank, tutti_stream_t stream) {
    const auto ranks = static_cast<uint64_t>(rank.count());
    const size_t part = kNumbers / ranks;
    const int next = (rank.rank() + 1) % rank.count();
    const int previous = (rank.rank() + rank.count() - 1) % rank.count();
    rank.expect_ok(tutti_all_gather(send.get(), recv.get(), part, TUTTI_UINT64, rank.comm, stream), "gather");
    rank.expect_ok(
        tutti_reduce_scatter(send.get(), recv.get(), part, TUTTI_UINT64, TUTTI_SUM, rank.comm, stream),
        "reduce_scatter");
    rank.expect_ok(tutti_broadcast(send.get(), recv.get(), kNumbers, TUTTI_UINT64, 1, rank.comm, stream),
                   "broadcast");
    rank.expect_ok(tutti_all_to_all(send.get(), recv.get(), part, TUTTI_UINT64, rank.comm, stream),
                   "all_to_all");
    rank.expect_ok(tutti_group_start(), "group");
    rank.expect_ok(tutti_send(send.get(), kNumbers, TUTTI_UINT64, next, 0, rank.comm, stream), "send");
    rank.expect_ok(tutti_recv(recv.get(), kNumbers, TUTTI_UINT64, previous, 0, rank.comm, stream), "recv");
    rank.expect_ok(tutti_group_end(), "group");
    rank.expect_ok(sum(send, recv, rank.comm, stream), "all_reduce");
  }
  /// Whether any of it lies in the memory of links: inputs, and the sum of all.
  static bool is_in_links(uint64_t ranks) {
    bool found = false;
    for (size_t at = 9001; at < kNumbers; at += 9001) {
      for (uint64_t rank = 0; rank < ranks; ++rank) found = found || has_run(first(rank) + at, 1);
      found = found || has_run(total(ranks) + ranks * at, ranks);
    }
    return found;
  }

 private:
  /// Whether four numbers `apart` from each other follow one another there.
  static bool has_run(uint64_t from, uint64_t apart) {
    const uint64_t run[] = {from, from + apart, from + 2 * apart, from + 3 * apart};
    return fake_cuda::count_shared(run, sizeof(run)) > 0;
  }
};

// Goal: between processes and between devices what lies in registered memory is loaded where it lies, and a
// two-shot all_reduce stores its results where they belong: it moves the compulsory bytes only. Method:
// numbers that occur nowhere else are looked for in the memory of all links, after calls with registered
// memory and without.
TEST(RegisteredMemoryTest, NothingPassesThroughTheLinksThatLiesInRegions) {
  if (thread_sanitized()) GTEST_SKIP() << "the thread sanitizer sees nothing between processes";
  const auto body = [](Rank& rank, int devices, bool in_registered) {
    const auto place = join(rank, devices);
    if (place == nullptr || !fake_cuda::is_loaded()) return;
    Traffic traffic(*place);
    if (in_registered) {
      register_memory(rank, traffic.send.get(), traffic.send.bytes());
      register_memory(rank, traffic.recv.get(), traffic.recv.bytes());
    }
    const auto ranks = static_cast<uint64_t>(rank.count());
    rank.expect_true(traffic.send.count_from(Traffic::first(static_cast<uint64_t>(rank.rank()))), "input");
    traffic.run(rank, tutti_stream_cuda(place->stream()));
    rank.expect_true(synchronize(*place, place->stream()), "the stream");
    rank.expect_true(traffic.recv.holds(ranks, Traffic::total(ranks)), "the sum");
    char text[256];
    rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof(text)), "explain");
    rank.meet();  // nothing runs any more
    rank.expect_true(Traffic::is_in_links(ranks) != in_registered,
                     in_registered ? "nothing in the links" : "all in the links");
    if (in_registered) rank.expect_true(std::strstr(text, "direct_two_shot") != nullptr, text);
  };
  for (const auto& machine : {std::pair(processes(3), 1), std::pair(processes(2), 2)}) {
    const int devices = machine.second;
    for (const bool in_registered : {true, false}) {
      EXPECT_EQ(run_cluster(on_devices(machine.first, devices),
                            [&](Rank& rank) { body(rank, devices, in_registered); }),
                "")
          << devices << " devices, in Registered memory: " << in_registered;
    }
  }
}

TEST(RegisteredMemoryTest, MemoryThatCannotBeMappedIsRegisteredNowhere) {
  if (thread_sanitized()) GTEST_SKIP() << "the thread sanitizer sees nothing between processes";
  const auto body = [](Rank& rank) {
    const auto place = join(rank, 1);
    if (place == nullptr) return;
    std::byte* const own = place->allocate(kArenaBytes);
    auto pinned = cuda::PinnedMemory::allocate(place->context(), kArenaBytes);
    const bool is_odd = rank.rank() == 1;
    // Rank 1 has memory of another kind, then more than a piece, then some that is registered.
    register_memory(rank, is_odd ? pinned->as<void>() : own, kArenaBytes, false);
    register_memory(rank, own, is_odd ? 2 * kArenaBytes : kArenaBytes, false);
    tutti_registered_memory_t* const registered = register_memory(rank, own, kArenaBytes / 2);
    std::byte* const second = own + kArenaBytes / 2;
    register_memory(rank, is_odd ? second - 8 : second, 100, false);
    tutti_registered_memory_t* const beside = register_memory(rank, second, 100);
    RegisteredPlace(rank, *place, Mix::kAll).deregister();
    run_trials(rank, *place, 0);
    rank.expect_ok(tutti_memory_deregister(rank.comm, registered), "deregister");
    rank.expect_ok(tutti_memory_deregister(rank.comm, beside), "deregister");
    rank.expect(tutti_memory_deregister(rank.comm, beside), TUTTI_INVALID_ARGUMENT, "twice");
  };
  EXPECT_EQ(run_cluster(on_devices({1, 1}, 1), body), "");
}

TEST(RegisteredMemoryTest, RanksInHostMemoryAndStagedOnesHaveNone) {
  EXPECT_EQ(run_cluster({.layout = {1, 1}},
                        [](Rank& rank) {
                          char memory[100];
                          register_memory(rank, memory, sizeof(memory), false);
                          void* heap = nullptr;
                          rank.expect_ok(tutti_comm_mem_alloc(rank.comm, &heap, 100), "heap");
                          static_cast<char*>(heap)[99] = 1;
                          rank.expect_ok(tutti_mem_free(heap), "free");
                        }),
            "");
  const auto staged = [](Rank& rank) {
    const auto place = join(rank, 2);
    if (place == nullptr) return;
    void* memory = nullptr;
    rank.expect_ok(tutti_comm_mem_alloc(rank.comm, &memory, 5000), "memory");
    register_memory(rank, memory, 5000, false);
    rank.expect_ok(tutti_mem_free(memory), "free");
  };
  EXPECT_EQ(run_cluster(on_devices({1, 1}, 2, "FAKE_CUDA_NO_PEER", "0:1"), staged), "");
}

TEST(RegisteredMemoryTest, MemoryOfTheCommunicatorsDeviceOutlivesIt) {
  const auto body = [](Rank& rank) {
    const auto place = join(rank, 1);
    if (place == nullptr) return;
    void* memory = rank.comm;
    rank.expect_ok(tutti_comm_mem_alloc(rank.comm, &memory, 0), "nothing");
    rank.expect_true(memory == nullptr, "NULL");
    rank.expect(tutti_comm_mem_alloc(rank.comm, nullptr, 1), TUTTI_INVALID_ARGUMENT, "no pointer");
    rank.expect(tutti_comm_mem_alloc(rank.comm, &memory, size_t{1} << 40), TUTTI_OUT_OF_MEMORY, "a terabyte");
    rank.expect_ok(tutti_comm_mem_alloc(rank.comm, &memory, kArenaBytes), "memory");
    register_memory(rank, memory, kArenaBytes);
    rank.expect_true(place->driver().look_up(memory).kind == cuda::MemoryKind::kDevice, "of the device");
    rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy");
    std::vector<char> found(kArenaBytes, 1);
    rank.expect_true(place->copy(found.data(), memory, found.size()), "it is there");
    rank.expect_true(found == std::vector<char>(kArenaBytes, 0), "zeroed");
    rank.expect_ok(tutti_mem_free(memory), "free");
    rank.expect(tutti_mem_free(memory), TUTTI_INVALID_ARGUMENT, "free again");
  };
  EXPECT_EQ(run_cluster(on_devices({2}, 1), body), "");
}

TEST(RegisteredMemoryTest, WrongArgumentsAreRefusedAndNothingIsSent) {
  const auto body = [](Rank& rank) {
    const auto place = join(rank, 2);
    const auto other = CudaPlace::open(rank, 1 - rank.rank(), Order::kBlocking);
    if (place == nullptr || other == nullptr) return;
    void* const own = place->allocate(100);
    const auto refuse = [&](void* buffer, size_t bytes, const std::string& text) {
      tutti_registered_memory_t* registered = nullptr;
      rank.expect(tutti_memory_register(rank.comm, buffer, bytes, &registered), TUTTI_INVALID_ARGUMENT, text);
      rank.expect_text({text}, text);
    };
    char host[100];
    refuse(nullptr, 100, "buffer");
    refuse(own, 0, "bytes is 0");
    refuse(own, SIZE_MAX, "cannot be so long");
    refuse(host, sizeof(host), "host memory");
    refuse(other->allocate(100), 100, "is memory of device " + std::to_string(1 - rank.rank()));
    rank.expect(tutti_memory_register(rank.comm, own, 100, nullptr), TUTTI_INVALID_ARGUMENT,
                "no registered memory");
    rank.expect(tutti_memory_deregister(rank.comm, reinterpret_cast<tutti_registered_memory_t*>(own)),
                TUTTI_INVALID_ARGUMENT, "not registered memory");
    rank.expect_ok(tutti_memory_deregister(rank.comm, nullptr), "NULL");
    tutti_registered_memory_t* registered = nullptr;
    rank.expect_ok(tutti_group_start(), "group");
    rank.expect(tutti_memory_register(rank.comm, own, 100, &registered), TUTTI_INVALID_USAGE, "in a group");
    rank.expect_ok(tutti_group_end(), "group");
    rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "the communicator is as it was");
    registered = register_memory(rank, own, 100);
    rank.expect_ok(tutti_comm_finalize(rank.comm), "finalize");
    rank.expect(tutti_memory_register(rank.comm, own, 100, &registered), TUTTI_INVALID_USAGE, "finalized");
  };
  EXPECT_EQ(run_cluster(on_devices({2}, 2), body), "");
}

TEST(RegisteredMemoryTest, ARankThatDoesNotComeIsNamed) {
  const auto body = [](Rank& rank) {
    constexpr uint64_t kShortMs = 1000;
    for (const bool registers : {true, false}) {
      const auto place = join(rank, 1, Order::kBlocking, kShortMs);
      if (place == nullptr) return;
      void* const own = place->allocate(100);
      tutti_registered_memory_t* registered = registers ? nullptr : register_memory(rank, own, 100);
      if (rank.rank() == 0) {
        rank.expect(registers ? tutti_memory_register(rank.comm, own, 100, &registered)
                              : tutti_memory_deregister(rank.comm, registered),
                    TUTTI_TIMEOUT, "alone");
        rank.expect_text({registers ? "memory_register()" : "rank 1 has not called tutti_memory_deregister"},
                         "alone");
        if (!registers)
          rank.expect(tutti_memory_deregister(rank.comm, registered), TUTTI_INVALID_ARGUMENT, "dead");
      }
      rank.meet();
      // The communicator is in error, but nobody is left to wait for.
      if (rank.rank() == 1)
        rank.expect_ok(tutti_memory_deregister(rank.comm, registered), "the other has gone ahead");
      (void)tutti_comm_destroy(std::exchange(rank.comm, nullptr));
    }
    const auto place = join(rank, 1);
    if (place == nullptr) return;
    Numbers numbers(*place);
    tutti_registered_memory_t* registered = nullptr;
    rank.expect(rank.rank() == 0 ? tutti_memory_register(rank.comm, numbers.get(), 100, &registered)
                                 : sum(numbers, numbers, rank.comm, TUTTI_BLOCKING),
                TUTTI_MISMATCH, "another call");
    rank.expect_text({"memory_register()", "all_reduce"}, "another call");
  };
  EXPECT_EQ(run_cluster(on_devices({2}, 1), body), "");
}

TEST(RegisteredMemoryTest, ARankThatDiesIsNoticed) {
  if (thread_sanitized()) GTEST_SKIP() << "the thread sanitizer sees nothing between processes";
  for (const bool registers : {true, false}) {
    ClusterOptions options = on_devices({1, 1}, 1);
    options.lost_processes = {1};
    const auto body = [&](Rank& rank) {
      const auto place = join(rank, 1, Order::kBlocking);
      if (place == nullptr) return;
      void* const own = place->allocate(100);
      tutti_registered_memory_t* registered = registers ? nullptr : register_memory(rank, own, 100);
      rank.meet();
      if (rank.rank() == 1) (void)raise(SIGKILL);
      rank.expect(registers ? tutti_memory_register(rank.comm, own, 100, &registered)
                            : tutti_memory_deregister(rank.comm, registered),
                  TUTTI_PEER_LOST, "the other has died");
      rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy");
    };
    EXPECT_EQ(run_cluster(options, body), "") << registers;
  }
}

}  // namespace
}  // namespace tutti::test
