// Ranks on devices of several hosts, as threads of one process. Each rank has a device of its own.
//
// The fake RDMA devices join queue pairs of one process only, and a process is one host to tutti. So each
// host is a copy of libtutti.so with an environment of its own. All copies share the fake driver and the fake
// devices.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "tutti/tutti.h"

namespace tutti::test {

// F(name): the functions that tests call.
// clang-format off
#define TUTTI_HOST_FUNCTIONS(F)                                                                                \
  F(get_unique_id) F(comm_create) F(comm_destroy) F(comm_abort) F(comm_explain) F(last_error) F(all_reduce)    \
  F(broadcast) F(all_gather) F(all_to_all) F(gather) F(scatter) F(all_gather_v) F(all_to_all_v) F(send)        \
  F(recv) F(group_start) F(group_end)
// clang-format on

/// The library of one host.
struct Library {
#define TUTTI_HOST_MEMBER(name) decltype(&::tutti_##name) name = nullptr;
  TUTTI_HOST_FUNCTIONS(TUTTI_HOST_MEMBER)
#undef TUTTI_HOST_MEMBER

  /// Loads a copy, and lets it read the environment.
  static std::unique_ptr<Library> load(int number);
};

using Variables = std::vector<std::pair<std::string, std::string>>;

struct WorldOptions {
  int ranks = 2;
  int ranks_per_host = 1;
  Variables environment = {};
  int odd_host = -1;  ///< this host alone sees `odd_environment`
  Variables odd_environment = {};
  int host_rank = -1;  ///< this rank is in host memory
  uint64_t seed = 1;
  uint64_t timeout_ms = 60'000;
  int dmabuf_error = 0;  ///< from the beginning: fake_verbs::set_dmabuf_error
};

class HostRank;
/// Runs `body` on every rank, in a process of their own. Returns the failures, one on each line, or "".
std::string run_world(const WorldOptions& options, const std::function<void(HostRank&)>& body);

/// What the threads of a world share.
struct World {
  explicit World(const WorldOptions& its_options) : options(its_options) {}
  WorldOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  uint64_t meetings = 0;
  std::string failures;
  tutti_unique_id_t id{};
};

class HostRank {
 public:
  HostRank(World& world, const Library& library, int rank);
  ~HostRank();
  HostRank(const HostRank&) = delete;
  HostRank& operator=(const HostRank&) = delete;

  const Library& api;
  tutti_comm_t* comm = nullptr;

  int rank() const { return rank_; }
  int count() const { return world_.options.ranks; }
  tutti_stream_t stream() const { return tutti_stream_cuda(stream_.handle()); }
  const cuda::Context& context() const { return *context_; }
  bool is_on_device() const { return context_ != nullptr; }

  bool create();
  /// Memory of the device, filled with `fill`; of the host for the rank there.
  std::byte* allocate(uint64_t bytes, unsigned char fill = 0);
  void free(std::byte* address);
  void write(std::byte* to, const std::vector<unsigned char>& bytes);
  std::vector<unsigned char> read(const std::byte* from, uint64_t bytes);
  /// Waits for all work on the stream.
  void synchronize();
  std::string explain();

  void fail(const std::string& text);
  bool expect(bool condition, const std::string& what);
  bool expect_ok(tutti_result_t result, const std::string& what);
  /// A barrier of all ranks, without tutti.
  void meet();

 private:
  Status open_device();

  World& world_;
  int rank_;
  std::unique_ptr<const cuda::Driver> driver_;
  std::unique_ptr<cuda::Context> context_;
  cuda::Stream stream_;
  std::vector<std::unique_ptr<std::byte[]>> host_memory_;
  std::vector<std::byte*> memory_;
};

/// The byte at `index` of what rank `from` gives rank `to`, in one call of a test.
unsigned char byte_of(int call, int from, int to, uint64_t index);
std::vector<unsigned char> bytes_of(int call, int from, int to, uint64_t count);

}  // namespace tutti::test
