// Multicast: what cuMulticastCreate makes. Its file holds who has been added and bound, so that it is one
// object in all processes; kernels find the members' memory through the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/simt/multicast.h"

namespace fake_cuda {

struct Physical;

class Multicast {
 public:
  static constexpr uint32_t kMostDevices = 16;

  /// Null: the system has no file for it.
  static std::shared_ptr<Physical> create(uint32_t device_count, size_t bytes);
  /// The object of a file that another process exported; null: it is none.
  static std::shared_ptr<Physical> import(int fd);
  ~Multicast();
  Multicast(const Multicast&) = delete;
  Multicast& operator=(const Multicast&) = delete;

  /// False: it is a member, or there is no room.
  bool add(int device);
  bool has(int device) const { return find(device) != nullptr; }
  bool is_complete() const;
  /// `device` must be a member. False: it has bound memory.
  bool bind(int device, std::shared_ptr<Physical> memory);

  void map(void* address, size_t bytes);
  void unmap(void* address);

 private:
  struct BootstrapNode {
    int32_t device;   ///< plus 1; 0: free
    int32_t process;  ///< where the bound memory's file is open
    int32_t fd;       ///< plus 1; 0: nothing is bound
  };
  struct Record {
    uint32_t device_count;
    uint64_t bytes;
    BootstrapNode members[kMostDevices];
  };

  explicit Multicast(Record* record) : record_(record) {}
  static std::shared_ptr<Physical> hold(int fd);
  BootstrapNode* find(int device) const;
  tutti::simt::MulticastMemory::Copies open_copies();

  Record* record_;
  std::map<int, std::shared_ptr<Physical>> bound_;  ///< by this process
  std::map<void*, std::unique_ptr<tutti::simt::MulticastMemory>> mapped_;
  std::mutex mutex_;                ///< guards what follows
  std::vector<std::byte*> copies_;  ///< the members' memory, as kernels of this process reach it
};

}  // namespace fake_cuda
