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

/// The part of a tensor that a rank holds: one of `count` equal parts of the rows, or of every one of
/// `groups` equal groups of columns (query, key and value are three groups).
struct Cut {
  size_t part = 0;
  size_t count = 1;
  bool of_rows = false;
  size_t groups = 1;

  enum class Held {
    kCopy,        ///< every rank's gradient is whole for its samples
    kPartialSum,  ///< the gradient is the sum over the ranks of the cut
    kAlone,       ///< only this rank holds the tensor
    kNothing,     ///< only another rank holds the tensor
  };
  Held held = Held::kCopy;
};

struct Parameter {
  std::string name;
  size_t rows = 0;  ///< 1 for a vector; of this rank's part, as `columns`
  size_t columns = 0;
  float deviation = 0;  ///< standard deviation of its first values
  float mean = 0;
  Cut cut = {};
  size_t index = 0;         ///< in the whole model
  size_t offset = 0;        ///< offset of its first element in both buffers
  size_t whole_offset = 0;  ///< the same in the whole model's buffers
  float* value = nullptr;
  float* gradient = nullptr;

  size_t count() const { return rows * columns; }
  size_t whole_rows() const { return cut.of_rows ? rows * cut.count : rows; }
  /// Elements of the whole tensor.
  size_t whole_count() const { return count() * cut.count; }
  /// The position of element i of this rank's part in the whole tensor.
  size_t whole_position(size_t i) const;
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

  /// `rows` and `columns` are the whole tensor's; this rank holds the part that `cut` names.
  Parameter& add(const std::string& name, size_t rows, size_t columns, float deviation, float mean = 0,
                 const Cut& cut = {});
  Buffer& add_buffer(const std::string& name, size_t count, float value);
  /// Draws all values. Equal seeds give equal values, whatever the number of ranks. Gradients are 0, in
  /// memory of `backend`, which reduces them.
  void allocate(uint64_t seed, const BackendPointer& backend = host_backend());
  /// Before `allocate`: forgets all parameters but those with an index in [begin, end). References to the
  /// other parameters stay valid.
  void keep(size_t begin, size_t end);
  /// Draws the first values of this rank's part of one parameter.
  static void draw(const Parameter& parameter, uint64_t seed, float* values);

  const std::deque<Parameter>& list() const { return list_; }
  /// For owners of other memory (modes/zero.cc, pipeline.cc), who set `value` and `gradient` themselves.
  std::deque<Parameter>& list() { return list_; }
  std::deque<Buffer>& buffers() { return buffers_; }
  const std::deque<Buffer>& buffers() const { return buffers_; }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }
  std::span<float> gradients() { return {gradients_.data(), gradients_.size()}; }
  /// Without the gaps between parameters.
  size_t trained_count() const;
  /// Elements of the whole model's buffers, of which this may be a part.
  size_t whole_count() const { return whole_count_; }
  /// Copies this rank's values to their places in the whole model's buffer.
  void copy_to(std::span<float> whole) const;
  /// A digest of all bits of parameters and buffers: equal models have equal digests.
  uint64_t digest() const;

 private:
  std::deque<Parameter> list_;
  size_t whole_count_ = 0;
  std::deque<Buffer> buffers_;
  std::vector<float> values_;
  BackendVector<float> gradients_;
};

/// FNV-1a, 64 bits.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = 0xcbf29ce484222325U);

}  // namespace tutti::trainer
