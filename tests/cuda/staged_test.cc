// Communicators whose ranks do not all reach each other's device memory: ranks in host memory beside ranks on
// devices, devices of several hosts, devices without access to each other. Their calls pass through host
// memory, give the same results, keep the same orders and fail in the same ways.
//
// The machine is the fake driver's.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/trial.h"
#include "tests/cuda/cuda_place.h"
#include "tests/cuda/driver/control.h"
#include "tests/support/pairwise.h"
#include "tests/support/scope.h"
#include "transports/ring.h"

namespace tutti::test {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr int kHost = -1;

/// Where ranks are.
struct Machine {
  const char* name;
  std::vector<int> layout;
  std::vector<int> hosts;      ///< of its processes; empty: one
  std::vector<int> device_of;  ///< by rank
  std::vector<std::pair<std::string, std::string>> environment = {};

  ClusterOptions options() const {
    ClusterOptions options;
    options.layout = layout;
    options.hosts = hosts;
    options.create = false;
    options.config.timeout_ms = static_cast<uint64_t>(patience_s(60)) * 1000;
    options.seconds = 240;
    options.environment = environment;
    options.environment.emplace_back("FAKE_CUDA_DEVICES", "2");
    return options;
  }
  int device(const Rank& rank) const { return device_of[static_cast<size_t>(rank.rank())]; }
};

/// A rank in host memory and one on a device, in one process.
const Machine kPair = {"a pair", {2}, {}, {0, kHost}};

const Machine kTwoHosts = {"devices of two hosts", {1, 1}, {0, 1}, {0, 0}};
const Machine kMixedThreads = {"mixed threads", {4}, {}, {kHost, 0, 1, kHost}};

std::string explain(Rank& rank) {
  std::array<char, 1024> text{};
  rank.expect_ok(tutti_comm_explain(rank.comm, text.data(), text.size()), "explain");
  return text.data();
}

/// Runs `body` on ranks that have a communicator; `place` is null in host memory.
std::string run_on(const Machine& machine, Order order,
                   const std::function<void(Rank&, CudaPlace* place)>& body, const ClusterOptions& options) {
  return run_cluster(options, [&](Rank& rank) {
    tutti_config_t config = rank.config();
    const int device = machine.device(rank);
    if (device != kHost) config.device = TUTTI_CUDA_DEVICE(device);
    if (!rank.renew(config)) return;
    if (device == kHost) return body(rank, nullptr);
    const auto place = CudaPlace::open(rank, device, order);
    if (place != nullptr) body(rank, place.get());
  });
}
std::string run_on(const Machine& machine, const std::function<void(Rank&, CudaPlace* place)>& body) {
  return run_on(machine, Order::kBlocking, body, machine.options());
}

/// Around the inline limit, a slot, and many slots.
uint64_t count_of(int count_class, tutti_type_t type) {
  const uint64_t element = tutti_type_bytes(type);
  switch (count_class) {
    case 0: return 0;
    case 1: return 1;
    case 2: return kInlineBytes / element + 1;
    case 3: return 1000;
    default: return 70'003 / element;
  }
}

struct Setting {
  int machine = 0;
  Order order = Order::kBlocking;
  bool reproducible = false;

  auto operator<=>(const Setting&) const = default;  // NOLINT(modernize-use-nullptr): the check is wrong
};

/// What this process, and those that it starts, write to standard error while it lives.
class StandardError {
 public:
  StandardError() : file_(std::tmpfile()), before_(dup(STDERR_FILENO)) {
    (void)dup2(fileno(file_), STDERR_FILENO);
  }
  ~StandardError() {
    (void)dup2(before_, STDERR_FILENO);
    (void)close(before_);
    (void)std::fclose(file_);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;
  std::string text() const {
    std::string text(4096, '\0');
    const ssize_t got = pread(fileno(file_), text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

 private:
  FILE* file_;
  int before_;
};

/// Every collective, type and operator on every machine, in every order: a sample that covers all pairs.
void check_collectives(const std::vector<Machine>& all) {
  // collective, type, operator, root, in place, count, machine, order.
  const std::vector<int> sizes = {
      kKindCount, TUTTI_TYPE_COUNT, kOpChoices, 3, 2, 5, static_cast<int>(all.size()), 4};
  std::map<Setting, std::vector<Trial>> plan;
  const auto rows = pairwise_rows(sizes, kSeed);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int>& row = rows[i];
    const Machine& machine = all[static_cast<size_t>(row[6])];
    Trial trial = draw_trial(row, static_cast<int>(machine.device_of.size()), kSeed + i);
    trial.count = count_of(row[5], trial.type);
    plan[{row[6], static_cast<Order>(row[7]), (row[6] + row[7]) % 2 != 0}].push_back(trial);
  }
  const StandardError log;  // which pairs cannot reach each other
  for (const auto& [setting, trials] : plan) {
    const Machine& machine = all[static_cast<size_t>(setting.machine)];
    ClusterOptions options = machine.options();
    options.config.reproducible = setting.reproducible ? 1 : 0;
    const auto body = [&trials = trials](Rank& rank, CudaPlace* place) {
      for (const Trial& trial : trials) {
        if (place != nullptr) {
          run_trial(rank, trial, *place);
        } else {
          run_trial(rank, trial);
        }
      }
    };
    EXPECT_EQ(run_on(machine, setting.order, body, options), "")
        << machine.name << ", " << order_name(setting.order)
        << (setting.reproducible ? ", reproducible" : "");
  }
}

TEST(StagedTest, EveryCollectiveGivesItsResultOnOneDeviceAndInHostMemory) {
  check_collectives({kPair,
                     kTwoHosts,
                     {"mixed processes", {1, 1, 1}, {}, {0, kHost, 0}},
                     {"mixed on three hosts", {2, 1, 2}, {0, 1, 2}, {0, kHost, 0, 0, kHost}}});
}

TEST(StagedTest, EveryCollectiveGivesItsResultOnSeveralDevices) {
  check_collectives({kMixedThreads,
                     {"threads of processes", {2, 1, 2}, {}, {0, 1, kHost, kHost, 0}},
                     {"no access in a process", {3}, {}, {0, 1, 0}, {{"FAKE_CUDA_NO_PEER", "0:1"}}},
                     {"broken access", {1, 1}, {}, {0, 1}, {{"FAKE_CUDA_BROKEN_PEER", "0:1"}}},
                     {"no files", {1, 1}, {}, {0, 0}, {{"FAKE_CUDA_NO_FILES", "1"}}}});
}

TEST(StagedTest, ItSaysThatCallsAreStagedAndWhy) {
  const std::vector<std::pair<Machine, std::string>> cases = {
      {kPair, "through host memory (rank 1 is in host memory)"},
      {kTwoHosts, "through host memory (rank 1 is on another host than rank 0)"},
      {{"no access", {2}, {}, {0, 1}, {{"FAKE_CUDA_NO_PEER", "1:0"}}},
       "through host memory (rank 0 (device 0) cannot reach rank 1"},
      {{"one device", {2}, {}, {0, 0}}, "blocks of the device"},
  };
  const StandardError log;
  for (const auto& [machine, part] : cases) {
    EXPECT_EQ(run_on(machine,
                     [&part = part](Rank& rank, CudaPlace* place) {
                       float host[2] = {};
                       auto* const buffer =
                           place != nullptr ? reinterpret_cast<float*>(place->allocate(sizeof(host))) : host;
                       rank.expect_ok(tutti_all_reduce(buffer, buffer, 2, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                                       TUTTI_BLOCKING),
                                      "all_reduce");
                       const std::string text = explain(rank);
                       rank.expect_true(place == nullptr || text.find(part) != std::string::npos, text);
                     }),
              "")
        << machine.name;
  }
}

/// The driver's answers to who may not share memory: not supported, not permitted, invalid value, no such
/// device, an operating system that refuses.
constexpr int kRefusals[] = {801, 800, 1, 101, 304};

// Whatever the driver refuses on the way to a peer's memory, the calls pass through host memory, and the rank
// says why. All later calls of the function are refused too.
TEST(StagedTest, EveryRefusalToShareMemoryLeadsThroughHostMemory) {
  struct Refusal {
    const char* function;
    bool no_files;
  };
  const Refusal refusals[] = {{"cuMemGetAllocationGranularity", false},
                              {"cuMemCreate", false},
                              {"cuMemAddressReserve", false},
                              {"cuMemMap", false},
                              {"cuMemSetAccess", false},
                              {"cuMemExportToShareableHandle", false},
                              {"cuMemImportFromShareableHandle", false},
                              {"cuIpcGetMemHandle", true},
                              {"cuPointerGetAttribute", true}};
  const StandardError log;
  size_t turn = 0;
  for (const auto& [function, no_files] : refusals) {
    const int code = kRefusals[turn++ % std::size(kRefusals)];
    const Machine machine{function,
                          {1, 1},
                          {},
                          {0, 0},
                          {{"FAKE_CUDA_FAIL", std::string(function) + ":1:" + std::to_string(code)},
                           {"FAKE_CUDA_NO_FILES", no_files ? "1" : "0"}}};
    const auto body = [](Rank& rank, CudaPlace* place) {
      auto* const buffer = reinterpret_cast<float*>(place->allocate(2 * sizeof(float)));
      const float ones[2] = {1, 1};
      float sums[2] = {};
      rank.expect_true(place->copy(buffer, ones, sizeof(ones)), "input");
      rank.expect_ok(tutti_all_reduce(buffer, buffer, 2, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                     "all_reduce");
      rank.expect_true(place->copy(sums, buffer, sizeof(sums)), "output");
      rank.expect_true(sums[0] == 2 && sums[1] == 2, "the sum");
      const std::string text = explain(rank);
      rank.expect_true(text.find("through host memory (rank") != std::string::npos, text);
    };
    EXPECT_EQ(run_on(machine, body), "") << function << ", error " << code;
  }
}

// Goal: the driver is asked whether devices reach each other before a peer's memory is imported. Method: a
// pair without access, where the import would fail with a reason that names no pair.
TEST(StagedTest, APairOfProcessesWithoutAccessIsNamedBeforeAnyImport) {
  const Machine machine{
      "no peer",
      {1, 1},
      {},
      {0, 1},
      {{"FAKE_CUDA_NO_PEER", "0:1"}, {"FAKE_CUDA_FAIL", "cuMemImportFromShareableHandle:1:999"}}};
  const StandardError log;
  EXPECT_EQ(run_on(machine, [](Rank&, CudaPlace*) {}), "");
  EXPECT_NE(log.text().find("cannot access each other"), std::string::npos) << log.text();
}

// Goal: where no kernels can be loaded, calls pass through host memory, and the log says which driver is
// needed. Method: each of the driver's answers to an image that it does not understand, when the image comes
// and, as a driver that loads lazily, when a kernel is asked for; and a failure that says nothing.
TEST(StagedTest, ADriverThatDoesNotRunTheKernelsStillCopies) {
  std::vector<std::string> faults = {"cuLibraryLoadData:1:999", "cuKernelGetFunction:1:222",
                                     "cuLibraryGetKernel:1:200", "cuLaunchKernelEx:1:999"};
  for (const int code : {200, 209, 218, 221, 222, 223})
    faults.push_back("cuLibraryLoadData:1:" + std::to_string(code));
  for (const std::string& fault : faults) {
    const Machine machine{
        "no kernels", {1, 1}, {}, {0, 0}, {{"FAKE_CUDA_FAIL", fault}, {"FAKE_CUDA_VERSION", "12040"}}};
    const StandardError log;
    const auto body = [](Rank& rank, CudaPlace* place) {
      auto* const buffer = reinterpret_cast<float*>(place->allocate(sizeof(float)));
      const float one = 1;
      float sum = 0;
      rank.expect_true(place->copy(buffer, &one, sizeof(one)), "input");
      rank.expect_ok(tutti_all_reduce(buffer, buffer, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                     "all_reduce");
      rank.expect_true(place->copy(&sum, buffer, sizeof(sum)) && sum == 2, "the sum");
      const std::string text = explain(rank);
      rank.expect_true(text.find("does not run this build's kernels") != std::string::npos, text);
    };
    EXPECT_EQ(run_on(machine, body), "") << fault;
    const bool is_refusal = fault.find(":999") == std::string::npos;
    const char* const said = is_refusal ? "this driver supports CUDA 12.4" : "CUDA_ERROR_UNKNOWN";
    EXPECT_NE(log.text().find(said), std::string::npos) << fault << ": " << log.text();
  }
}

TEST(StagedTest, ABrokenPairIsNamedInTheLogAndTheCommunicatorGoesOn) {
  const Machine machine{"broken", {1, 1}, {}, {0, 1}, {{"FAKE_CUDA_BROKEN_PEER", "0:1"}}};
  const StandardError log;
  EXPECT_EQ(run_on(machine, [](Rank&, CudaPlace*) {}), "");
  const std::string text = log.text();
  // The pair is broken both ways; the first rank that finds out says so.
  for (const char* part : {") cannot reach rank ", "claims access", "pass through host memory"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

constexpr size_t kCount = 5'000;

/// A buffer of kCount numbers, of a device or not.
class Numbers {
 public:
  explicit Numbers(CudaPlace* place)
      : place_(place), there_(place != nullptr ? place->allocate(kCount * sizeof(uint64_t)) : nullptr) {}
  void* get() { return place_ != nullptr ? static_cast<void*>(there_) : here_.data(); }
  /// Element i becomes first + i.
  void count_from(uint64_t first) {
    for (size_t i = 0; i < kCount; ++i) here_[i] = first + i;
    if (place_ != nullptr) (void)place_->copy(there_, here_.data(), kCount * sizeof(uint64_t));
  }
  /// Whether element i is factor * i + constant.
  bool holds(uint64_t factor, uint64_t constant) {
    if (place_ != nullptr && !place_->copy(here_.data(), there_, kCount * sizeof(uint64_t))) return false;
    for (size_t i = 0; i < kCount; ++i) {
      if (here_[i] != factor * i + constant) return false;
    }
    return true;
  }

 private:
  CudaPlace* place_;
  std::byte* there_;
  std::vector<uint64_t> here_ = std::vector<uint64_t>(kCount);
};

tutti_result_t sum(Numbers& send, Numbers& recv, tutti_comm_t* comm, tutti_stream_t stream) {
  return tutti_all_reduce(send.get(), recv.get(), kCount, TUTTI_UINT64, TUTTI_SUM, comm, stream);
}

bool synchronize(const CudaPlace& place, CUstream stream) {
  return place.driver().stream_synchronize(stream) == CUDA_SUCCESS;
}

/// Captures a sum on the rank's stream, then one on a stream that joins the capture. Null on failure.
CUgraphExec capture_two_sums(Rank& rank, const CudaPlace& place, CUstream other, Numbers& numbers) {
  const cuda::CurrentContext current(place.context());
  const cuda::Driver& driver = place.driver();
  const CUstream stream = place.stream();
  const auto forked = cuda::Event::create(place.context());
  const auto joined = cuda::Event::create(place.context());
  (void)driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  rank.expect_ok(sum(numbers, numbers, rank.comm, tutti_stream_cuda(stream)), "a captured sum");
  rank.expect_true(forked->record(stream).is_ok() && forked->make_wait(other).is_ok(), "a fork");
  rank.expect_ok(sum(numbers, numbers, rank.comm, tutti_stream_cuda(other)), "one on another stream");
  rank.expect_true(joined->record(other).is_ok() && joined->make_wait(stream).is_ok(), "a join");
  return end_capture(rank, driver, stream);
}

/// A stream of the rank's: CUDA's on a device, else blocking.
tutti_stream_t stream_of(CudaPlace* place) {
  return place != nullptr ? tutti_stream_cuda(place->stream()) : TUTTI_BLOCKING;
}

TEST(StagedTest, OperationsKeepTheirOrderAcrossStreamsOfAllKinds) {
  for (const Machine& machine : {kPair, kTwoHosts}) {
    EXPECT_EQ(run_on(machine,
                     [](Rank& rank, CudaPlace* place) {
                       Numbers numbers(place);
                       numbers.count_from(1);
                       tutti_host_stream_t* host_stream = nullptr;
                       rank.expect_ok(tutti_host_stream_create(&host_stream), "host stream");
                       cuda::Stream other;
                       if (place != nullptr) other = std::move(*cuda::Stream::create(place->context()));
                       for (int turn = 0; turn < 16; ++turn) {
                         tutti_stream_t stream = TUTTI_BLOCKING;
                         if (turn % 4 == 0) stream = tutti_stream_host(host_stream);
                         if (turn % 4 > 1 && place != nullptr)
                           stream = tutti_stream_cuda(turn % 4 == 2 ? place->stream() : other.handle());
                         rank.expect_ok(sum(numbers, numbers, rank.comm, stream), "all_reduce");
                       }
                       rank.expect_ok(tutti_host_stream_destroy(host_stream), "host stream");
                       if (place != nullptr) rank.expect_true(synchronize(*place, other.handle()), "streams");
                       rank.expect_true(numbers.holds(65536, 65536), "doubled sixteen times");
                     }),
              "")
        << machine.name;
  }
}

size_t count_of_lent(const std::string& leaks) {
  size_t count = 0;
  for (size_t at = 0; (at = leaks.find("cuMemHostRegister", at)) != std::string::npos; ++at) ++count;
  return count;
}

// Goal: what is queued needs no memory of its own, and what the stream runs next reads finished data.
TEST(StagedTest, ManyQueuedOperationsShareTheirPinnedMemory) {
  EXPECT_EQ(run_on(kPair,
                   [](Rank& rank, CudaPlace* place) {
                     Numbers numbers(place);
                     Numbers copy(place);
                     numbers.count_from(3);
                     constexpr int kTurns = 40;
                     for (int turn = 0; turn < kTurns; ++turn)
                       rank.expect_ok(sum(numbers, numbers, rank.comm, stream_of(place)), "all_reduce");
                     if (place == nullptr) return;
                     const cuda::CurrentContext current(place->context());
                     (void)place->driver().memcpy_async(reinterpret_cast<CUdeviceptr>(copy.get()),
                                                        reinterpret_cast<CUdeviceptr>(numbers.get()),
                                                        kCount * sizeof(uint64_t), place->stream());
                     rank.expect_true(synchronize(*place, place->stream()), "the stream");
                     rank.expect_true(copy.holds(1ull << kTurns, 3ull << kTurns), "the copy");
                     rank.expect_true(!fake_cuda::is_loaded() || count_of_lent(fake_cuda::leaks()) == 1,
                                      "one piece of pinned memory: " + fake_cuda::leaks());
                   }),
            "");
}

// Goal: a stream that waits for the host never stands in front of what it waits for, though the driver deals
// streams to few queues.
// Method: one queue for all streams of the device; operations on three of them, none waited for in between.
TEST(StagedTest, StreamsThatShareAQueueDoNotHoldEachOtherUp) {
  const Machine machine{"one queue", {1, 1}, {}, {0, kHost}, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}};
  EXPECT_EQ(run_on(machine,
                   [](Rank& rank, CudaPlace* place) {
                     Numbers numbers(place);
                     numbers.count_from(1);
                     std::vector<cuda::Stream> streams(3);
                     for (size_t i = 0; place != nullptr && i < streams.size(); ++i)
                       streams[i] = std::move(*cuda::Stream::create(place->context()));
                     for (size_t turn = 0; turn < 12; ++turn) {
                       const tutti_stream_t stream =
                           place != nullptr ? tutti_stream_cuda(streams[turn % streams.size()].handle())
                                            : TUTTI_BLOCKING;
                       rank.expect_ok(sum(numbers, numbers, rank.comm, stream), "all_reduce");
                     }
                     rank.expect_ok(sum(numbers, numbers, rank.comm, TUTTI_BLOCKING), "a blocking one");
                     rank.expect_true(numbers.holds(1 << 13, 1 << 13), "doubled thirteen times");
                   }),
            "");
}

// Goal: communicators come and go while a staged operation of another one waits for its peer, and none of
// that waits for the operation. Method: the fake driver waits wherever CUDA may, as in cuMemHostUnregister.
TEST(StagedTest, CommunicatorsComeAndGoWhileAnOperationOfAnotherWaits) {
  EXPECT_EQ(run_on(kPair,
                   [](Rank& rank, CudaPlace* place) {
                     tutti_config_t config = rank.config();
                     if (place != nullptr) config.device = TUTTI_CUDA_DEVICE(0);
                     tutti_comm_t* first = std::exchange(rank.comm, nullptr);
                     Numbers numbers(place);
                     Numbers others(place);
                     numbers.count_from(1);
                     others.count_from(1);
                     if (place != nullptr)
                       rank.expect_ok(sum(numbers, numbers, first, stream_of(place)), "sum");
                     for (int turn = 0; turn < 3; ++turn) {
                       if (!rank.renew(config)) return;
                       rank.expect_ok(sum(others, others, rank.comm, TUTTI_BLOCKING), "a sum of another");
                       rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy");
                     }
                     rank.expect_true(others.holds(8, 8), "three sums");
                     if (!rank.meet()) return;
                     if (place == nullptr)
                       rank.expect_ok(sum(numbers, numbers, first, TUTTI_BLOCKING), "sum");
                     if (place != nullptr) rank.expect_true(synchronize(*place, place->stream()), "streams");
                     rank.expect_true(numbers.holds(2, 2), "the sum");
                     rank.expect_ok(tutti_comm_destroy(first), "destroy the first");
                   }),
            "");
}

TEST(StagedTest, DestroyWaitsForStreamsAndGivesEverythingBack) {
  EXPECT_EQ(run_cluster(kMixedThreads.options(),
                        [](Rank& rank) {
                          tutti_config_t config = rank.config();
                          const int device = kMixedThreads.device(rank);
                          if (device != kHost) config.device = TUTTI_CUDA_DEVICE(device);
                          const auto place =
                              device != kHost ? CudaPlace::open(rank, device, Order::kBlocking) : nullptr;
                          Numbers numbers(place.get());
                          std::string before;
                          for (int turn = 0; turn < 4; ++turn) {
                            if (!rank.renew(config)) return;
                            numbers.count_from(0);
                            for (int i = 0; i < 3; ++i)
                              rank.expect_ok(sum(numbers, numbers, rank.comm, stream_of(place.get())), "sum");
                            rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                            rank.comm = nullptr;
                            rank.expect_true(numbers.holds(64, 0), "all three are done");
                            if (!rank.meet()) return;
                            if (turn == 0) before = fake_cuda::leaks();
                            if (turn > 0)
                              rank.expect_true(fake_cuda::leaks() == before, "left: " + fake_cuda::leaks());
                            if (!rank.meet()) return;
                          }
                        }),
            "");
}

// A rank that had found out early that no kernel would run closed the file of its links, which a slower one
// of its host still asked for: the set-up failed now and then.
TEST(StagedTest, RanksThatMeetOverTheNetworkOftenAllGetTheirCommunicator) {
  const Machine machine{"two of three on a host", {1, 1, 1}, {0, 0, 1}, {0, kHost, 0}};
  EXPECT_EQ(run_cluster(machine.options(),
                        [&](Rank& rank) {
                          tutti_config_t config = rank.config();
                          const int device = machine.device(rank);
                          if (device != kHost) config.device = TUTTI_CUDA_DEVICE(device);
                          for (int turn = 0; turn < 10 && rank.renew(config); ++turn)
                            rank.expect_ok(tutti_comm_destroy(std::exchange(rank.comm, nullptr)), "destroy");
                        }),
            "");
}

// Goal: a captured call runs each time its graph is launched, in order with other calls. Method: a graph of
// two calls on two streams of the capture, launched back to back, with calls outside before, between and
// behind.
TEST(StagedTest, CapturedCallsRunEachTimeTheirGraphIsLaunched) {
  for (const Machine& machine : {kPair, kTwoHosts}) {
    EXPECT_EQ(run_on(machine,
                     [](Rank& rank, CudaPlace* place) {
                       Numbers numbers(place);
                       numbers.count_from(1);
                       const auto run = [&] {
                         rank.expect_ok(sum(numbers, numbers, rank.comm, stream_of(place)), "all_reduce");
                       };
                       CUgraphExec graph = nullptr;
                       cuda::Stream other;
                       if (place != nullptr) {
                         other = std::move(*cuda::Stream::create(place->context()));
                         graph = capture_two_sums(rank, *place, other.handle(), numbers);
                         if (graph == nullptr) return;
                       }
                       const auto replay = [&] {
                         if (place == nullptr) return run(), run();
                         const cuda::CurrentContext current(place->context());
                         rank.expect_true(
                             place->driver().graph_launch(graph, place->stream()) == CUDA_SUCCESS,
                             "a launch");
                       };
                       run();
                       if (place != nullptr) (void)synchronize(*place, place->stream());
                       for (int turn = 0; turn < 5; ++turn) replay();
                       if (place != nullptr) rank.expect_true(synchronize(*place, place->stream()), "graphs");
                       run();
                       rank.expect_ok(sum(numbers, numbers, rank.comm, TUTTI_BLOCKING), "a blocking one");
                       rank.expect_true(numbers.holds(1 << 13, 1 << 13), "doubled thirteen times");
                       if (place != nullptr) (void)place->driver().graph_exec_destroy(graph);
                     }),
              "")
        << machine.name;
  }
}

TEST(StagedTest, MemoryAndStreamsOfTheWrongKindAreRefused) {
  EXPECT_EQ(run_on(kPair,
                   [](Rank& rank, CudaPlace* place) {
                     Numbers numbers(place);
                     std::vector<uint64_t> host(kCount);
                     if (place != nullptr) {
                       rank.expect(tutti_all_reduce(host.data(), numbers.get(), kCount, TUTTI_UINT64,
                                                    TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                                   TUTTI_INVALID_ARGUMENT, "host memory");
                       rank.expect_text({"argument send", "host memory", "device 0"}, "the text");
                       auto other = cuda::Context::retain(place->driver(), 1);
                       const auto stream = cuda::Stream::create(**other);
                       rank.expect(sum(numbers, numbers, rank.comm, tutti_stream_cuda(stream->handle())),
                                   TUTTI_INVALID_ARGUMENT, "a stream of another device");
                       rank.expect_text({"argument stream", "another device", "device 0"}, "the text");
                     }
                     rank.expect_ok(sum(numbers, numbers, rank.comm, TUTTI_BLOCKING),
                                    "the communicator is as it was");
                   }),
            "");
}

TEST(StagedTest, APartOfTheRanksMayReachEachOther) {
  const Machine machine{"halves", {4}, {}, {0, kHost, 0, kHost}};
  EXPECT_EQ(run_on(machine,
                   [](Rank& rank, CudaPlace* place) {
                     tutti_comm_t* const all = rank.comm;
                     tutti_comm_t* half = nullptr;
                     if (!rank.expect_ok(tutti_comm_split(all, rank.rank() % 2, 0, &half, nullptr), "split"))
                       return;
                     Numbers numbers(place);
                     numbers.count_from(static_cast<uint64_t>(rank.rank()));
                     rank.expect_ok(sum(numbers, numbers, half, TUTTI_BLOCKING), "all_reduce of a half");
                     rank.expect_true(numbers.holds(2, rank.rank() % 2 == 0 ? 2 : 4), "its result");
                     // Blocking calls of both in one group.
                     Numbers more(place);
                     more.count_from(0);
                     (void)tutti_group_start();
                     rank.expect_ok(sum(numbers, numbers, half, TUTTI_BLOCKING), "recorded");
                     rank.expect_ok(sum(more, more, all, TUTTI_BLOCKING), "recorded");
                     rank.expect_ok(tutti_group_end(), "the group");
                     rank.expect_true(numbers.holds(4, rank.rank() % 2 == 0 ? 4 : 8), "the half's");
                     rank.expect_true(more.holds(4, 0), "all ranks'");
                     std::swap(rank.comm, half);
                     const std::string text = explain(rank);
                     std::swap(rank.comm, half);
                     const bool on_device = text.find("blocks of the device") != std::string::npos;
                     rank.expect_true(on_device == (place != nullptr), text);
                     rank.expect_ok(tutti_comm_destroy(half), "destroy");
                   }),
            "");
}

}  // namespace
}  // namespace tutti::test
