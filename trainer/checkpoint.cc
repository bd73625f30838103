#include "trainer/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "trainer/file.h"
#include "trainer/parameters.h"

namespace tutti::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kMagic = "tutti trainer checkpoint 1\n";
constexpr uint64_t kTextBytes = 1000;  // bytes of a description

using Bytes = std::vector<std::byte>;
using Spans = std::vector<std::span<float>>;

void put_bytes(Bytes& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}
void put_number(Bytes& to, uint64_t number) {
  put_bytes(to, std::as_bytes(std::span(&number, 1)));
}
void put_text(Bytes& to, std::string_view text) {
  put_number(to, text.size());
  put_bytes(to, std::as_bytes(std::span(text)));
}
void put_floats(Bytes& to, const Spans& list) {
  put_number(to, list.size());
  for (const std::span<float> values : list) {
    put_number(to, values.size());
    put_bytes(to, std::as_bytes(values));
  }
}

/// Reads values in the order of writing. Throws Error at the end of the bytes.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  std::span<const std::byte> bytes(uint64_t count) {
    if (count > left_.size()) throw Error("it is cut short");
    const auto part = left_.first(count);
    left_ = left_.subspan(count);
    return part;
  }
  uint64_t number() {
    uint64_t number = 0;
    std::memcpy(&number, bytes(sizeof(number)).data(), sizeof(number));
    return number;
  }
  std::string text() {
    const uint64_t count = number();
    if (count > kTextBytes)
      throw Error("it is damaged: a description of " + std::to_string(count) + " bytes");
    const auto part = bytes(count);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

void expect(const std::string& found, const std::string& wanted, const char* what) {
  if (found != wanted) throw Error(std::string("it has ") + what + " '" + found + "', not '" + wanted + "'");
}

/// Returns the bytes for each span in `list`. The caller copies them after all checks.
std::vector<std::span<const std::byte>> match(Reader& reader, const Spans& list, const char* what) {
  std::vector<std::span<const std::byte>> parts;
  if (reader.number() != list.size())
    throw Error(std::string("its ") + what + " has a wrong number of tensors");
  for (const std::span<float> values : list) {
    if (const uint64_t count = reader.number(); count != values.size())
      throw Error(std::string("its ") + what + " has a tensor of " + std::to_string(count) +
                  " numbers where " + std::to_string(values.size()) + " are needed");
    parts.push_back(reader.bytes(values.size_bytes()));
  }
  return parts;
}

void copy(const std::vector<std::span<const std::byte>>& parts, const Spans& list) {
  for (size_t i = 0; i < list.size(); ++i)
    if (!parts[i].empty()) std::memcpy(list[i].data(), parts[i].data(), parts[i].size());
}

uint64_t parse(std::span<const std::byte> bytes, const TrainingState& state, const Team& team) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw Error("it is not a checkpoint of this trainer");
  if (bytes.size() < kMagic.size() + sizeof(uint64_t)) throw Error("it is cut short");
  const auto content = bytes.first(bytes.size() - sizeof(uint64_t));
  if (Reader(bytes.subspan(content.size())).number() != hash_bytes(content))
    throw Error("it is damaged: its hash does not fit its content");
  Reader reader(content.subspan(kMagic.size()));
  const uint64_t step = reader.number();
  expect(reader.text(), state.model, "the model");
  expect(reader.text(), state.optimizer, "the optimizer");
  expect(reader.text(), state.compression, "the compression");
  const auto shared = match(reader, state.shared, "common part");
  const uint64_t rank_count = reader.number();
  const auto own_count = static_cast<uint64_t>(team.count());
  if (!state.of_rank.empty() && rank_count != own_count)
    throw Error("it has error feedback of " + std::to_string(rank_count) + " ranks; these are " +
                std::to_string(own_count));
  std::vector<std::span<const std::byte>> of_rank;
  for (uint64_t rank = 0; rank < rank_count; ++rank) {
    Reader part(reader.bytes(reader.number()));
    if (rank == static_cast<uint64_t>(team.rank())) of_rank = match(part, state.of_rank, "part of a rank");
  }
  if (!reader.at_end()) throw Error("it is too long");
  copy(shared, state.shared);
  if (!state.of_rank.empty()) copy(of_rank, state.of_rank);
  return step;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const TrainingState& state, uint64_t step,
                     Team& team) {
  Bytes own;
  put_floats(own, state.of_rank);
  const std::vector<Bytes> parts = team.gather(own);
  together(team, [&] {
    if (team.rank() != 0) return;
    Bytes bytes;
    put_bytes(bytes, std::as_bytes(std::span(kMagic)));
    put_number(bytes, step);
    for (const std::string& text : {state.model, state.optimizer, state.compression}) put_text(bytes, text);
    put_floats(bytes, state.shared);
    put_number(bytes, parts.size());
    for (const Bytes& part : parts) {
      put_number(bytes, part.size());
      put_bytes(bytes, part);
    }
    put_number(bytes, hash_bytes(bytes));
    write_file(path, bytes);
  });
}

uint64_t load_checkpoint(const std::filesystem::path& path, const TrainingState& state, Team& team) {
  Bytes bytes;
  together(team, [&] {
    if (team.rank() == 0) bytes = read_file(path);
  });
  team.broadcast(&bytes);
  uint64_t step = 0;
  together(team, [&] {
    try {
      step = parse(bytes, state, team);
    } catch (const Error& error) {
      throw Error("cannot resume from " + path.string() + ": " + error.what());
    }
  });
  return step;
}

}  // namespace tutti::trainer
