// Parameters: what is trained. All values lie in one buffer and all gradients in another, in the order in
// which the layers use them; so a bucket of gradients is a slice, and an optimizer is one loop.
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
  float deviation = 0;  ///< of the normal distribution of its first values
  float mean = 0;
  size_t index = 0;
  size_t offset = 0;  ///< of its first element in both buffers
  float* value = nullptr;
  float* gradient = nullptr;

  size_t count() const { return rows * columns; }
  Block value_block() const { return {value, rows, columns, columns}; }
  Block gradient_block() const { return {gradient, rows, columns, columns}; }
};

/// State that is no parameter but belongs to the model: running statistics.
struct Buffer {
  std::string name;
  std::vector<float> values;
};

/// The parameters and buffers of one model. Layers add theirs while they are made, then `allocate` gives all
/// of them memory; references to entries stay valid.
class Parameters {
 public:
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  Parameter& add(const std::string& name, size_t rows, size_t columns, float deviation, float mean = 0);
  Buffer& add_buffer(const std::string& name, size_t count, float value);
  /// Draws all values: the same for the same seed, whatever the number of ranks. Gradients are 0, in memory
  /// of `place`, where they are reduced.
  void allocate(uint64_t seed, const PlacePointer& place = host_place());

  const std::deque<Parameter>& list() const { return list_; }
  std::deque<Buffer>& buffers() { return buffers_; }
  const std::deque<Buffer>& buffers() const { return buffers_; }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }
  std::span<float> gradients() { return {gradients_.data(), gradients_.size()}; }
  /// Without the gaps between parameters.
  size_t trained_count() const;
  /// Of all bits of parameters and buffers: equal models have equal digests.
  uint64_t digest() const;

 private:
  std::deque<Parameter> list_;
  std::deque<Buffer> buffers_;
  std::vector<float> values_;
  PlacedVector<float> gradients_;
};

/// FNV-1a, 64 bits.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = 0xcbf29ce484222325U);

}  // namespace tutti::trainer
