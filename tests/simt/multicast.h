// Multicast memory of simulated devices: addresses that stand for one place in several memories (see
// engine/cuda/multimem.h). Nothing is mapped there, so whoever takes such an address for an ordinary one
// dies.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

namespace tutti::simt {

class MulticastMemory {
 public:
  using Copies = std::vector<std::byte*>;
  /// At addresses of its own. Each of `copies` has `bytes`.
  MulticastMemory(Copies copies, size_t bytes);
  /// At addresses that are reserved already and stay so. `find` is asked for the copies when a kernel first
  /// needs them.
  MulticastMemory(std::byte* begin, size_t bytes, std::function<Copies()> find);
  ~MulticastMemory();
  MulticastMemory(const MulticastMemory&) = delete;
  MulticastMemory& operator=(const MulticastMemory&) = delete;

  /// The first address.
  std::byte* begin() const { return begin_; }
  size_t bytes() const { return bytes_; }
  const Copies& copies() const;

 private:
  std::function<Copies()> find_;
  mutable std::atomic<const Copies*> copies_;  ///< own; null: not asked for yet
  size_t bytes_;
  std::byte* begin_;
};

}  // namespace tutti::simt
