#include "tests/cards/hosts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cuda/memory.h"
#include "tests/rdma/provider/control.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

/// A file of its own, so that the loader takes it for another library.
std::string copy_library(int number) {
  const int source = open(TUTTI_LIBRARY, O_RDONLY | O_CLOEXEC);
  const int copy = memfd_create(("host-" + std::to_string(number)).c_str(), MFD_CLOEXEC);
  struct stat facts {};
  if (source < 0 || copy < 0 || fstat(source, &facts) != 0) std::abort();
  for (off_t done = 0; done < facts.st_size;) {
    if (sendfile(copy, source, &done, static_cast<size_t>(facts.st_size - done)) <= 0) std::abort();
  }
  close(source);
  return "/proc/self/fd/" + std::to_string(copy);
}

void set(const Variables& variables, bool on) {
  for (const auto& [name, value] : variables)
    on ? setenv(name.c_str(), value.c_str(), 1) : unsetenv(name.c_str());
}

std::string run(World& world, const std::function<void(HostRank&)>& body) {
  fake_verbs::reset(world.options.seed);
  fake_verbs::set_dmabuf_error(world.options.dmabuf_error);
  // Loaded here, so that the copies find the fake one.
  if (dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL) == nullptr) return "no fake driver";
  std::vector<std::unique_ptr<Library>> libraries;
  const int per_host = world.options.ranks_per_host;
  for (int host = 0; host < world.options.ranks / per_host; ++host) {
    const bool is_odd = host == world.options.odd_host;
    if (is_odd) set(world.options.odd_environment, true);
    libraries.push_back(Library::load(host));
    if (is_odd) set(world.options.odd_environment, false);
  }
  libraries[0]->get_unique_id(&world.id);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.options.ranks; ++rank) {
    threads.emplace_back([&world, &body, &library = *libraries[static_cast<size_t>(rank / per_host)], rank] {
      HostRank own(world, library, rank);
      if (own.create()) body(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const fake_verbs::Seen seen = fake_verbs::seen();
  if (!seen.misuse.empty()) world.failures += "misuse of verbs: " + seen.misuse + "\n";
  if (seen.open_objects != 0 || seen.dmabuf_regions != 0)
    world.failures += "RDMA objects are left open: " + std::to_string(seen.open_objects) + "\n";
  return world.failures;
}

}  // namespace

std::unique_ptr<Library> Library::load(int number) {
  setenv("TUTTI_HOSTID", std::to_string(number).c_str(), 1);
  setenv("TUTTI_SOCKET_IFNAME", "=lo", 1);
  void* const handle = dlopen(copy_library(number).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  auto library = std::make_unique<Library>();
#define TUTTI_HOST_FIND(name) \
  library->name = reinterpret_cast<decltype(library->name)>(dlsym(handle, "tutti_" #name));
  TUTTI_HOST_FUNCTIONS(TUTTI_HOST_FIND)
#undef TUTTI_HOST_FIND
  tutti_unique_id_t unused;
  if (library->get_unique_id == nullptr || library->get_unique_id(&unused) != TUTTI_SUCCESS) std::abort();
  return library;
}

std::string run_world(const WorldOptions& options, const std::function<void(HostRank&)>& body) {
  Variables environment = options.environment;
  environment.emplace_back("FAKE_CUDA_DEVICES", std::to_string(options.ranks));
  testing::internal::CaptureStderr();
  const std::string failures = run_child(
      [&] {
        World world(options);
        return run(world, body);
      },
      environment, 120);
  const std::string log = testing::internal::GetCapturedStderr();
  return failures.empty() ? "" : failures + log;
}

HostRank::HostRank(World& world, const Library& library, int rank)
    : api(library), world_(world), rank_(rank) {
  if (rank == world.options.host_rank) return;
  const Status opened = open_device();
  if (!opened) fail(std::string(opened.text()));
}

Status HostRank::open_device() {
  auto driver = cuda::Driver::find();
  TUTTI_TRY(driver.status());
  driver_ = std::move(*driver);
  auto context = cuda::Context::retain(*driver_, rank_);
  TUTTI_TRY(context.status());
  context_ = std::move(*context);
  auto stream = cuda::Stream::create(*context_);
  TUTTI_TRY(stream.status());
  stream_ = std::move(*stream);
  return Status::ok();
}

HostRank::~HostRank() {
  if (comm != nullptr) expect_ok(api.comm_destroy(comm), "destroy");
  while (!memory_.empty()) free(memory_.back());
}

bool HostRank::create() {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.timeout_ms = world_.options.timeout_ms;
  if (is_on_device()) config.device = TUTTI_CUDA_DEVICE(rank_);
  return expect_ok(api.comm_create(&comm, count(), world_.id, rank_, &config), "create");
}

std::byte* HostRank::allocate(uint64_t bytes, unsigned char fill) {
  if (!is_on_device()) {
    host_memory_.push_back(std::make_unique<std::byte[]>(bytes));
    std::memset(host_memory_.back().get(), fill, bytes);
    return host_memory_.back().get();
  }
  const cuda::CurrentContext current(*context_);
  CUdeviceptr address = 0;
  expect(driver_->mem_alloc(&address, bytes) == CUDA_SUCCESS, "cuMemAlloc");
  memory_.push_back(reinterpret_cast<std::byte*>(address));
  if (!cuda::fill_now(*context_, memory_.back(), fill, bytes)) fail("cuMemset");
  return memory_.back();
}

void HostRank::free(std::byte* address) {
  const cuda::CurrentContext current(*context_);
  std::erase(memory_, address);
  expect(driver_->mem_free(reinterpret_cast<CUdeviceptr>(address)) == CUDA_SUCCESS, "cuMemFree");
}

void HostRank::write(std::byte* to, const std::vector<unsigned char>& bytes) {
  if (!is_on_device()) {
    std::memcpy(to, bytes.data(), bytes.size());
  } else if (!bytes.empty()) {
    expect(cuda::copy_now(*context_, to, bytes.data(), bytes.size()).is_ok(), "write");
  }
}

std::vector<unsigned char> HostRank::read(const std::byte* from, uint64_t count) {
  std::vector<unsigned char> bytes(count);
  if (!is_on_device()) {
    std::memcpy(bytes.data(), from, count);
  } else if (count > 0) {
    expect(cuda::copy_now(*context_, bytes.data(), from, count).is_ok(), "read");
  }
  return bytes;
}

void HostRank::synchronize() {
  if (is_on_device()) expect(stream_.synchronize().is_ok(), "cuStreamSynchronize");
}

std::string HostRank::explain() {
  std::array<char, 2048> text{};
  expect_ok(api.comm_explain(comm, text.data(), text.size()), "explain");
  return text.data();
}

void HostRank::fail(const std::string& text) {
  const std::scoped_lock lock(world_.mutex);
  world_.failures += "rank " + std::to_string(rank_) + ": " + text + "\n";
}

bool HostRank::expect(bool condition, const std::string& what) {
  if (!condition) fail(what);
  return condition;
}

bool HostRank::expect_ok(tutti_result_t result, const std::string& what) {
  return expect(result == TUTTI_SUCCESS, what + ": " + (result == TUTTI_SUCCESS ? "" : api.last_error()));
}

void HostRank::meet() {
  std::unique_lock lock(world_.mutex);
  const uint64_t meeting = world_.meetings;
  if (++world_.arrived == world_.options.ranks) {
    world_.arrived = 0;
    ++world_.meetings;
    world_.changed.notify_all();
  }
  world_.changed.wait(lock, [&] { return world_.meetings != meeting; });
}

unsigned char byte_of(int call, int from, int to, uint64_t index) {
  uint64_t mix = index + 1 + (static_cast<uint64_t>(call) << 40) + (static_cast<uint64_t>(from) << 50) +
                 (static_cast<uint64_t>(to) << 56);
  mix *= 0x9e3779b97f4a7c15ull;
  return static_cast<unsigned char>(mix >> 53);
}

std::vector<unsigned char> bytes_of(int call, int from, int to, uint64_t count) {
  std::vector<unsigned char> bytes(count);
  for (uint64_t i = 0; i < count; ++i) bytes[i] = byte_of(call, from, to, i);
  return bytes;
}

}  // namespace tutti::test
