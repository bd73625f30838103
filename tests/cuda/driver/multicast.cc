#include "tests/cuda/driver/multicast.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tests/cuda/driver/memory.h"

namespace fake_cuda {
namespace {

constexpr const char* kFileName = "fake-cuda-multicast";

bool is_multicast(int fd) {
  std::array<char, 128> target{};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return readlink(path.c_str(), target.data(), target.size() - 1) > 0 &&
         std::strstr(target.data(), kFileName) != nullptr;
}

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "fake driver: multicast memory is used %s\n", why);
  std::abort();
}

}  // namespace

/// Takes the descriptor.
std::shared_ptr<Physical> Multicast::hold(int fd) {
  void* const record = mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (record == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  auto* const shared = static_cast<Record*>(record);
  auto physical = std::make_shared<Physical>(fd, shared->bytes, -1, true);
  physical->multicast.reset(new Multicast(shared));
  return physical;
}

std::shared_ptr<Physical> Multicast::create(uint32_t device_count, size_t bytes) {
  const int fd = memfd_create(kFileName, MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  const Record record = {.device_count = device_count, .bytes = bytes, .members = {}};
  if (pwrite(fd, &record, sizeof(record), 0) == sizeof(record)) return hold(fd);
  close(fd);
  return nullptr;
}

std::shared_ptr<Physical> Multicast::import(int fd) {
  if (!is_multicast(fd)) return nullptr;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return own < 0 ? nullptr : hold(own);
}

Multicast::~Multicast() {
  for (const auto& [device, memory] : bound_) __atomic_store_n(&find(device)->fd, 0, __ATOMIC_RELEASE);
  for (std::byte* const copy : copies_) munmap(copy, record_->bytes);
  munmap(record_, sizeof(Record));
}

Multicast::BootstrapNode* Multicast::find(int device) const {
  for (uint32_t i = 0; i < record_->device_count; ++i) {
    BootstrapNode& member = record_->members[i];
    if (__atomic_load_n(&member.device, __ATOMIC_ACQUIRE) == device + 1) return &member;
  }
  return nullptr;
}

bool Multicast::add(int device) {
  if (has(device)) return false;
  for (uint32_t i = 0; i < record_->device_count; ++i) {
    int32_t nobody = 0;
    if (__atomic_compare_exchange_n(&record_->members[i].device, &nobody, device + 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return true;
  }
  return false;
}

bool Multicast::is_complete() const {
  return __atomic_load_n(&record_->members[record_->device_count - 1].device, __ATOMIC_ACQUIRE) != 0;
}

bool Multicast::bind(int device, std::shared_ptr<Physical> memory) {
  BootstrapNode& member = *find(device);
  if (__atomic_load_n(&member.fd, __ATOMIC_ACQUIRE) != 0) return false;
  member.process = getpid();
  __atomic_store_n(&member.fd, memory->fd + 1, __ATOMIC_RELEASE);
  bound_[device] = std::move(memory);
  return true;
}

void Multicast::map(void* address, size_t bytes) {
  mapped_[address] = std::make_unique<tutti::simt::MulticastMemory>(static_cast<std::byte*>(address), bytes,
                                                                    [this] { return open_copies(); });
}

void Multicast::unmap(void* address) {
  mapped_.erase(address);
}

/// Memory of all members, at addresses that no protection key guards: hardware asks for no access to peers
/// here.
tutti::simt::MulticastMemory::Copies Multicast::open_copies() {
  const std::scoped_lock lock(mutex_);
  for (uint32_t i = static_cast<uint32_t>(copies_.size()); i < record_->device_count; ++i) {
    const BootstrapNode& member = record_->members[i];
    const int number = __atomic_load_n(&member.fd, __ATOMIC_ACQUIRE) - 1;
    if (number < 0) die("before all devices have bound memory");
    const std::string path = "/proc/" + std::to_string(member.process) + "/fd/" + std::to_string(number);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) die("after the process of a member has ended");
    void* const copy = mmap(nullptr, record_->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (copy == MAP_FAILED) die("and cannot be mapped");
    copies_.push_back(static_cast<std::byte*>(copy));
  }
  return copies_;
}

}  // namespace fake_cuda
