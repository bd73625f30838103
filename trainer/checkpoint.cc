#include "trainer/checkpoint.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/file.h"
#include "trainer/parameters.h"

namespace tutti::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kMagic = "tutti trainer checkpoint 2\n";

using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;
using Spans = std::vector<std::span<float>>;

Json json_of(const Spans& list) {
  Json tensors = Json::array();
  for (const std::span<float> values : list) {
    const auto* first = reinterpret_cast<const uint8_t*>(values.data());
    tensors.push_back(Json::binary(Bytes(first, first + values.size_bytes())));
  }
  return tensors;
}

void expect(const std::string& found, const std::string& wanted, const char* what) {
  if (found != wanted) throw Error(std::string("it has ") + what + " '" + found + "', not '" + wanted + "'");
}

/// The caller copies the tensors after all checks.
void match(const Json& tensors, const Spans& list, const char* what) {
  if (tensors.size() != list.size())
    throw Error(std::string("its ") + what + " has a wrong number of tensors");
  for (size_t i = 0; i < list.size(); ++i)
    if (const size_t bytes = tensors.at(i).get_binary().size(); bytes != list[i].size_bytes())
      throw Error(std::string("its ") + what + " has a tensor of " + std::to_string(bytes / sizeof(float)) +
                  " numbers where " + std::to_string(list[i].size()) + " are needed");
}

void copy(const Json& tensors, const Spans& list) {
  for (size_t i = 0; i < list.size(); ++i)
    if (!list[i].empty()) std::memcpy(list[i].data(), tensors[i].get_binary().data(), list[i].size_bytes());
}

uint64_t parse(std::span<const std::byte> bytes, const TrainingState& state, const Team& team) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw Error("it is not a checkpoint of this trainer");
  uint64_t hash = 0;
  if (bytes.size() < kMagic.size() + sizeof(hash)) throw Error("it is cut short");
  const auto content = bytes.first(bytes.size() - sizeof(hash));
  std::memcpy(&hash, content.data() + content.size(), sizeof(hash));
  if (hash != hash_bytes(content)) throw Error("it is damaged: its hash does not fit its content");
  const auto* first = reinterpret_cast<const uint8_t*>(content.data());
  const Json all = Json::from_cbor(first + kMagic.size(), first + content.size());
  expect(all.at("model").get<std::string>(), state.model, "the model");
  expect(all.at("optimizer").get<std::string>(), state.optimizer, "the optimizer");
  expect(all.at("compression").get<std::string>(), state.compression, "the compression");
  match(all.at("shared"), state.shared, "common part");
  const Json& parts = all.at("ranks");
  const auto rank_count = static_cast<size_t>(team.count());
  Json own = Json::array();
  if (!state.of_rank.empty()) {
    if (parts.size() != rank_count)
      throw Error("it has error feedback of " + std::to_string(parts.size()) + " ranks; these are " +
                  std::to_string(rank_count));
    own = Json::from_cbor(parts.at(static_cast<size_t>(team.rank())).get_binary());
    match(own, state.of_rank, "part of a rank");
  }
  const auto step = all.at("step").get<uint64_t>();
  copy(all.at("shared"), state.shared);
  copy(own, state.of_rank);
  return step;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const TrainingState& state, uint64_t step,
                     Team& team) {
  const Bytes own = Json::to_cbor(json_of(state.of_rank));
  const auto parts = team.gather(std::as_bytes(std::span(own)));
  together(team, [&] {
    if (team.rank() != 0) return;
    Json all = {{"step", step},
                {"model", state.model},
                {"optimizer", state.optimizer},
                {"compression", state.compression},
                {"shared", json_of(state.shared)},
                {"ranks", Json::array()}};
    for (const auto& part : parts) {
      const auto* first = reinterpret_cast<const uint8_t*>(part.data());
      all["ranks"].push_back(Json::binary(Bytes(first, first + part.size())));
    }
    Bytes bytes(kMagic.begin(), kMagic.end());
    Json::to_cbor(all, bytes);
    const uint64_t hash = hash_bytes(std::as_bytes(std::span(bytes)));
    const auto* first = reinterpret_cast<const uint8_t*>(&hash);
    bytes.insert(bytes.end(), first, first + sizeof(hash));
    write_file(path, std::as_bytes(std::span(bytes)));
  });
}

uint64_t load_checkpoint(const std::filesystem::path& path, const TrainingState& state, Team& team) {
  std::vector<std::byte> bytes;
  together(team, [&] {
    if (team.rank() == 0) bytes = read_file(path);
  });
  team.broadcast(&bytes);
  uint64_t step = 0;
  together(team, [&] {
    try {
      step = parse(bytes, state, team);
    } catch (const Json::exception& error) {
      throw Error("cannot resume from " + path.string() + ": it is damaged: " + error.what());
    } catch (const Error& error) {
      throw Error("cannot resume from " + path.string() + ": " + error.what());
    }
  });
  return step;
}

}  // namespace tutti::trainer
