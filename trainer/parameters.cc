#include "trainer/parameters.h"

#include "trainer/error.h"
#include "trainer/random.h"

namespace tutti::trainer {
namespace {

// Each parameter begins a cache line.
constexpr size_t kAlignment = 64 / sizeof(float);

size_t aligned(size_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

size_t Parameter::whole_position(size_t i) const {
  const size_t row = i / columns;
  const size_t column = i % columns;
  if (cut.of_rows) return (cut.part * rows + row) * columns + column;
  const size_t width = columns / cut.groups;
  return row * columns * cut.count + (column / width * cut.count + cut.part) * width + column % width;
}

Parameter& Parameters::add(const std::string& name, size_t rows, size_t columns, float deviation, float mean,
                           const Cut& cut) {
  Parameter parameter{
      .name = name, .rows = rows, .columns = columns, .deviation = deviation, .mean = mean, .cut = cut};
  parameter.index = list_.size();
  parameter.whole_offset = whole_count_;
  whole_count_ += aligned(rows * columns);
  if ((cut.of_rows ? rows : columns / cut.groups) % cut.count != 0)
    throw Error(name + " of " + std::to_string(rows) + " x " + std::to_string(columns) +
                " does not divide into " + std::to_string(cut.count) + " parts");
  (cut.of_rows ? parameter.rows : parameter.columns) /= cut.count;
  if (cut.held == Cut::Held::kNothing) parameter.rows = parameter.columns = 0;
  if (!list_.empty()) parameter.offset = list_.back().offset + aligned(list_.back().count());
  return list_.emplace_back(std::move(parameter));
}

void Parameters::keep(size_t begin, size_t end) {
  while (!list_.empty() && list_.back().index >= end) list_.pop_back();
  while (!list_.empty() && list_.front().index < begin) list_.pop_front();
  if (list_.empty()) return;
  const size_t first = list_.front().offset;
  for (Parameter& parameter : list_) parameter.offset -= first;
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
    draw(parameter, seed, parameter.value);
  }
}

void Parameters::draw(const Parameter& parameter, uint64_t seed, float* values) {
  Random random(seed, parameter.index);
  std::vector<float> whole(parameter.whole_count());
  for (float& value : whole)
    value = parameter.mean + parameter.deviation * static_cast<float>(random.normal());
  for (size_t i = 0; i < parameter.count(); ++i) values[i] = whole[parameter.whole_position(i)];
}

void Parameters::copy_to(std::span<float> whole) const {
  for (const Parameter& parameter : list_)
    for (size_t i = 0; i < parameter.count(); ++i)
      whole[parameter.whole_offset + parameter.whole_position(i)] = parameter.value[i];
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
