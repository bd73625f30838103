#include "tests/cuda/driver/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/cuda/driver/multicast.h"
#include "tests/cuda/driver/settings.h"

namespace fake_cuda {
namespace {

constexpr size_t kPage = 4096;
/// Fresh memory holds this, as far as it is cheap.
constexpr unsigned char kGarbage = 0xA5;
constexpr size_t kGarbageBytes = size_t{1} << 20;
constexpr const char* kFileName = "fake-cuda-device-";
/// Devices beyond share the last key but one; the processor has fifteen.
constexpr size_t kMostKeys = 10;

size_t whole_pages(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

int create_file(int device, size_t bytes) {
  const int fd = memfd_create((kFileName + std::to_string(device)).c_str(), MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void fill_with_garbage(int fd, size_t bytes) {
  const std::vector<unsigned char> garbage(std::min(bytes, kGarbageBytes), kGarbage);
  if (pwrite(fd, garbage.data(), garbage.size(), 0) < 0) abort();
}

/// The device of a file that create_file made; -1: another kind of file.
int device_of_file(int fd) {
  std::array<char, 128> target{};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (readlink(path.c_str(), target.data(), target.size() - 1) <= 0) return -1;
  const char* name = std::strstr(target.data(), kFileName);
  return name != nullptr ? std::atoi(name + std::strlen(kFileName)) : -1;
}

/// What a CUipcMemHandle of the fake driver holds.
struct IpcHandle {
  std::array<char, 8> magic;
  pid_t process;
  int fd;
  int device;
  uint64_t bytes;
  uint64_t id;  ///< of the range in its process
};
constexpr std::array<char, 8> kMagic = {'f', 'a', 'k', 'e', 'c', 'u', 'd', 'a'};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

}  // namespace

Physical::Physical(int file, size_t bytes, int device, bool exportable)
    : fd(file), byte_count(bytes), owner(device), shareable(exportable) {}

Physical::~Physical() {
  if (counter != nullptr) *counter -= byte_count;
  if (view != nullptr) munmap(view, byte_count);
  close(fd);
}

AddressSpace::AddressSpace() {
  size_t devices = 1;
  for (const int device : settings().devices) devices = std::max(devices, static_cast<size_t>(device) + 1);
  for (size_t key = 0; key < std::min(devices, kMostKeys) + 1; ++key) {
    const int made = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (made < 0) {
      for (const int other : keys_) pkey_free(other);
      keys_.clear();
      return;
    }
    keys_.push_back(made);
  }
}

int AddressSpace::key_of(const Range& range) const {
  if (range.origin == Origin::kMapped && range.accessible != std::vector<int>{range.device})
    return keys_.back();
  return keys_[std::min(static_cast<size_t>(range.device), keys_.size() - 2)];
}

void AddressSpace::let_in(const std::vector<int>& devices) const {
  if (keys_.empty()) return;
  for (size_t key = 0; key + 1 < keys_.size(); ++key) pkey_set(keys_[key], PKEY_DISABLE_ACCESS);
  for (const int device : devices)
    pkey_set(keys_[std::min(static_cast<size_t>(device), keys_.size() - 2)], 0);
  pkey_set(keys_.back(), 0);
}

void AddressSpace::let_in_everywhere(bool yes) const {
  for (const int key : keys_) pkey_set(key, yes ? 0 : PKEY_DISABLE_ACCESS);
}

void AddressSpace::protect(Range& range) {
  if (range.physical != nullptr && range.physical->multicast != nullptr) return;  // nothing is mapped there
  void* address = reinterpret_cast<void*>(range.base);
  const size_t bytes = whole_pages(range.bytes);
  const bool is_hidden = range.physical != nullptr && range.physical->view != nullptr;
  if (is_hidden || (range.origin == Origin::kMapped && range.accessible.empty())) {
    mprotect(address, bytes, PROT_NONE);
  } else if (keys_.empty()) {
    mprotect(address, bytes, PROT_READ | PROT_WRITE);
  } else {
    pkey_mprotect(address, bytes, PROT_READ | PROT_WRITE, key_of(range));
  }
}

Range* AddressSpace::add(Range range) {
  range.id = ++ids_;
  const uintptr_t base = range.base;
  return &(ranges_[base] = std::move(range));
}

/// Maps the range's file between guard pages.
Range* AddressSpace::map_file(Range range) {
  const size_t bytes = whole_pages(range.bytes);
  constexpr int kGuards = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* around = mmap(nullptr, bytes + 2 * kPage, PROT_NONE, kGuards, -1, 0);
  if (around == MAP_FAILED) return nullptr;
  void* inside = static_cast<char*>(around) + kPage;
  if (mmap(inside, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, range.physical->fd, 0) ==
      MAP_FAILED) {
    munmap(around, bytes + 2 * kPage);
    return nullptr;
  }
  range.base = reinterpret_cast<uintptr_t>(inside);
  Range* added = add(std::move(range));
  protect(*added);
  return added;
}

size_t AddressSpace::used_bytes(int device) const {
  const auto found = used_.find(device);
  return found == used_.end() ? 0 : found->second;
}

std::shared_ptr<Physical> AddressSpace::create(int device, size_t bytes, bool shareable) {
  if (used_bytes(device) + bytes > settings().memory_bytes) return nullptr;
  const int fd = create_file(device, bytes);
  if (fd < 0) return nullptr;
  fill_with_garbage(fd, bytes);
  auto physical = std::make_shared<Physical>(fd, bytes, device, shareable);
  physical->counter = &used_[device];
  *physical->counter += bytes;
  return physical;
}

std::shared_ptr<Physical> AddressSpace::import(int fd) {
  struct stat facts {};
  const int device = device_of_file(fd);
  if (device < 0) return Multicast::import(fd);
  if (fstat(fd, &facts) != 0) return nullptr;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  return std::make_shared<Physical>(own, static_cast<size_t>(facts.st_size), device, true);
}

Range* AddressSpace::allocate(int device, size_t bytes, void* context, Origin origin) {
  auto physical = create(device, whole_pages(bytes), false);
  if (physical == nullptr) return nullptr;
  Range range;
  range.bytes = bytes;
  range.origin = origin;
  range.device = device;
  range.context = context;
  if (settings().hidden && origin == Origin::kAlloc) {
    void* view = mmap(nullptr, physical->byte_count, PROT_READ | PROT_WRITE, MAP_SHARED, physical->fd, 0);
    if (view == MAP_FAILED) return nullptr;
    physical->view = static_cast<unsigned char*>(view);
  }
  range.physical = std::move(physical);
  return map_file(std::move(range));
}

uintptr_t AddressSpace::view(uintptr_t address) {
  const Range* range = find(address);
  if (range == nullptr || range->physical == nullptr || range->physical->view == nullptr) return address;
  return reinterpret_cast<uintptr_t>(range->physical->view) + (address - range->base);
}

namespace {

uintptr_t map_plain(size_t bytes) {
  constexpr int kKind = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
  void* address = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, kKind, -1, 0);
  return address == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(address);
}

}  // namespace

Range* AddressSpace::allocate_managed(int device, size_t bytes, void* context) {
  Range range;
  range.base = map_plain(bytes);
  range.bytes = bytes;
  range.origin = Origin::kManaged;
  range.device = device;
  range.context = context;
  return range.base != 0 ? add(std::move(range)) : nullptr;
}

Range* AddressSpace::allocate_host(size_t bytes, void* context) {
  Range range;
  range.base = map_plain(bytes);
  range.bytes = bytes;
  range.origin = Origin::kHost;
  range.context = context;
  return range.base != 0 ? add(std::move(range)) : nullptr;
}

Range* AddressSpace::register_host(void* address, size_t bytes, void* context) {
  const auto base = reinterpret_cast<uintptr_t>(address);
  const auto next = ranges_.lower_bound(base);
  if (next != ranges_.end() && next->first < base + bytes) return nullptr;
  if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > base)
    return nullptr;
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.origin = Origin::kRegistered;
  range.context = context;
  return add(std::move(range));
}

Range* AddressSpace::reserve(size_t bytes, size_t alignment) {
  alignment = std::max(alignment, kGranularity);
  constexpr int kKind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* around = mmap(nullptr, bytes + alignment, PROT_NONE, kKind, -1, 0);
  if (around == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(around);
  const uintptr_t base = (start + alignment - 1) / alignment * alignment;
  if (base > start) munmap(around, base - start);
  munmap(reinterpret_cast<void*>(base + bytes), start + alignment - base);
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.origin = Origin::kReserved;
  return &(reservations_[base] = std::move(range));
}

Range* AddressSpace::map(uintptr_t address, size_t bytes, std::shared_ptr<Physical> physical) {
  const auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return nullptr;
  const Range& reserved = std::prev(after)->second;
  if (address + bytes > reserved.base + reserved.bytes) return nullptr;
  const auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first < address + bytes) return nullptr;
  if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address)
    return nullptr;
  void* where = reinterpret_cast<void*>(address);
  if (physical->multicast != nullptr) {
    physical->multicast->map(where, bytes);
  } else if (mmap(where, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->fd, 0) ==
             MAP_FAILED) {
    return nullptr;
  }
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.origin = Origin::kMapped;
  range.device = physical->owner;
  range.physical = std::move(physical);
  return add(std::move(range));
}

CUipcMemHandle AddressSpace::export_handle(const Range& range) {
  const IpcHandle content = {kMagic, getpid(), range.physical->fd, range.device, range.bytes, range.id};
  CUipcMemHandle handle{};
  std::memcpy(&handle, &content, sizeof(content));
  return handle;
}

Range* AddressSpace::open_handle(const CUipcMemHandle& handle, void* context) {
  IpcHandle content{};
  std::memcpy(&content, &handle, sizeof(content));
  if (content.magic != kMagic || content.process == getpid()) return nullptr;
  const std::string key(reinterpret_cast<const char*>(&content), sizeof(content));
  for (auto& [base, range] : ranges_) {
    if (range.origin != Origin::kImported || range.handle != key || range.context != context) continue;
    ++range.opened;
    return &range;
  }
  const std::string path = "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  auto physical = std::make_shared<Physical>(fd, whole_pages(content.bytes), content.device, false);
  if (device_of_file(fd) != content.device) return nullptr;
  Range range;
  range.bytes = content.bytes;
  range.origin = Origin::kImported;
  range.device = content.device;
  range.context = context;
  range.physical = std::move(physical);
  range.opened = 1;
  range.handle = key;
  return map_file(std::move(range));
}

Range* AddressSpace::find(uintptr_t address) {
  for (auto* map : {&ranges_, &reservations_}) {
    const auto after = map->upper_bound(address);
    if (after == map->begin()) continue;
    Range& range = std::prev(after)->second;
    if (address < range.base + range.bytes) return &range;
  }
  return nullptr;
}

Range* AddressSpace::find_base(uintptr_t address, std::initializer_list<Origin> origins) {
  for (auto* map : {&ranges_, &reservations_}) {
    const auto found = map->find(address);
    if (found == map->end()) continue;
    if (std::find(origins.begin(), origins.end(), found->second.origin) != origins.end())
      return &found->second;
  }
  return nullptr;
}

bool AddressSpace::covers(uintptr_t address, size_t bytes) {
  const uintptr_t end = address + bytes;
  while (address < end) {
    const Range* range = find(address);
    if (range == nullptr || range->origin == Origin::kReserved) return false;
    address = range->base + range->bytes;
  }
  return true;
}

void AddressSpace::release(Range& range) {
  void* address = reinterpret_cast<void*>(range.base);
  const size_t bytes = whole_pages(range.bytes);
  const uintptr_t base = range.base;
  switch (range.origin) {
    case Origin::kAlloc:
    case Origin::kModule:
    case Origin::kPool:
    case Origin::kImported: munmap(static_cast<char*>(address) - kPage, bytes + 2 * kPage); break;
    case Origin::kManaged:
    case Origin::kHost: munmap(address, bytes); break;
    case Origin::kRegistered: break;
    case Origin::kMapped: {
      if (range.physical->multicast != nullptr) range.physical->multicast->unmap(address);
      // The addresses stay reserved.
      constexpr int kKind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
      if (mmap(address, bytes, PROT_NONE, kKind, -1, 0) == MAP_FAILED) abort();
      break;
    }
    case Origin::kReserved:
      munmap(address, range.bytes);
      reservations_.erase(base);
      return;
  }
  ranges_.erase(base);
}

}  // namespace fake_cuda
