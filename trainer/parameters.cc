#include "trainer/parameters.h"

#include "trainer/random.h"

namespace tutti::trainer {
namespace {

// Each parameter begins a cache line.
constexpr size_t kAlignment = 64 / sizeof(float);

size_t aligned(size_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Parameter& Parameters::add(const std::string& name, size_t rows, size_t columns, float deviation,
                           float mean) {
  Parameter parameter{.name = name, .rows = rows, .columns = columns, .deviation = deviation, .mean = mean};
  parameter.index = list_.size();
  if (!list_.empty()) parameter.offset = list_.back().offset + aligned(list_.back().count());
  return list_.emplace_back(std::move(parameter));
}

Buffer& Parameters::add_buffer(const std::string& name, size_t count, float value) {
  return buffers_.emplace_back(Buffer{name, std::vector<float>(count, value)});
}

void Parameters::allocate(uint64_t seed, const BackendPointer& backend) {
  const size_t count = list_.empty() ? 0 : list_.back().offset + aligned(list_.back().count());
  values_.assign(count, 0);
  gradients_ = BackendVector<float>(count, backend);
  for (Parameter& parameter : list_) {
    parameter.value = values_.data() + parameter.offset;
    parameter.gradient = gradients_.data() + parameter.offset;
    Random random(seed, parameter.index);
    for (size_t i = 0; i < parameter.count(); ++i)
      parameter.value[i] = parameter.mean + parameter.deviation * static_cast<float>(random.normal());
  }
}

size_t Parameters::trained_count() const {
  size_t count = 0;
  for (const Parameter& parameter : list_) count += parameter.count();
  return count;
}

uint64_t Parameters::digest() const {
  uint64_t hash = hash_bytes(std::as_bytes(std::span(values_)));
  for (const Buffer& buffer : buffers_) hash = hash_bytes(std::as_bytes(std::span(buffer.values)), hash);
  return hash;
}

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash) {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

}  // namespace tutti::trainer
