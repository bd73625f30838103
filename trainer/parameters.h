// Parameters: the trained numbers. All values are in one buffer and all gradients in another, in the order in
// which the layers use them. So a bucket of gradients is a slice, and an optimizer is one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "trainer/matrix.h"
#include "trainer/memory.h"

namespace tutti::trainer {

struct Parameter {
  std::string name;
  size_t rows = 0;  ///< 1 for a vector
  size_t columns = 0;
  float deviation = 0;  ///< standard deviation of its first values
  float mean = 0;
  size_t index = 0;
  size_t offset = 0;  ///< offset of its first element in both buffers
  float* value = nullptr;
  float* gradient = nullptr;

  size_t count() const { return rows * columns; }
  Block value_block() const { return {value, rows, columns, columns}; }
  Block gradient_block() const { return {gradient, rows, columns, columns}; }
};

/// State of a model that is not trained: running statistics.
struct Buffer {
  std::string name;
  std::vector<float> values;
};

/// The parameters and buffers of one model. Layers add theirs during construction; then `allocate` gives
/// memory to all. References to entries stay valid.
class Parameters {
 public:
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  Parameter& add(const std::string& name, size_t rows, size_t columns, float deviation, float mean = 0);
  Buffer& add_buffer(const std::string& name, size_t count, float value);
  /// Draws all values. Equal seeds give equal values, whatever the number of ranks. Gradients are 0, in
  /// memory of `backend`, which reduces them.
  void allocate(uint64_t seed, const BackendPointer& backend = host_backend());

  const std::deque<Parameter>& list() const { return list_; }
  std::deque<Buffer>& buffers() { return buffers_; }
  const std::deque<Buffer>& buffers() const { return buffers_; }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }
  std::span<float> gradients() { return {gradients_.data(), gradients_.size()}; }
  /// Without the gaps between parameters.
  size_t trained_count() const;
  /// A digest of all bits of parameters and buffers: equal models have equal digests.
  uint64_t digest() const;

 private:
  std::deque<Parameter> list_;
  std::deque<Buffer> buffers_;
  std::vector<float> values_;
  BackendVector<float> gradients_;
};

/// FNV-1a, 64 bits.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = 0xcbf29ce484222325U);

}  // namespace tutti::trainer
