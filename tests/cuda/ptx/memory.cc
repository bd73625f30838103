// Loads and stores.
#include <algorithm>

#include "tests/cuda/ptx/lanes.h"

namespace fake_cuda::ptx {
namespace {

constexpr uint8_t kSigned = 1;  ///< `kind`: the element's sign fills the register

template <class T>
T load_element(const unsigned char* from, bool ordered) {
  if (ordered) return __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_ACQUIRE);
  return *reinterpret_cast<const T*>(from);
}

/// One element of a whole register, not ordered: the most frequent load.
template <class T>
void load_plain(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  std::array<unsigned char*, kLanes> at;
  warp.addresses(instruction, lanes, sizeof(T), at);
  T* const d = warp.at<T>(instruction.d);
  each(lanes, [&](uint32_t lane) { d[lane] = *reinterpret_cast<const T*>(at[lane]); });
}

template <class T>
void store_plain(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  std::array<unsigned char*, kLanes> at;
  warp.addresses(instruction, lanes, sizeof(T), at);
  const T* const b = warp.at<T>(instruction.b);
  // In order: of lanes that write to one place the last one wins.
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    *reinterpret_cast<T*>(at[lane]) = b[lane];
  }
}

/// Any other. `bytes` of an element, `target` 1: ordered; places: the registers.
void load_any(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& places = instruction.extra->places;
  const bool ordered = instruction.target != 0;
  const uint32_t bytes = instruction.bytes;
  std::array<unsigned char*, kLanes> at;
  warp.addresses(instruction, lanes, bytes * static_cast<uint32_t>(places.size()), at);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    std::array<uint64_t, 8> values;
    for (size_t i = 0; i < places.size(); ++i) {
      const unsigned char* from = at[lane] + i * bytes;
      switch (bytes) {
        case 1: values[i] = load_element<uint8_t>(from, ordered); break;
        case 2: values[i] = load_element<uint16_t>(from, ordered); break;
        case 4: values[i] = load_element<uint32_t>(from, ordered); break;
        default: values[i] = load_element<uint64_t>(from, ordered); break;
      }
      if ((instruction.kind & kSigned) != 0 && bytes < 8) {
        const uint32_t unused = 64 - bytes * 8;
        values[i] = static_cast<uint64_t>(static_cast<int64_t>(values[i] << unused) >> unused);
      }
    }
    for (size_t i = 0; i < places.size(); ++i) {
      switch (places[i].bits) {
        case 16: warp.at<uint16_t>(places[i].offset)[lane] = static_cast<uint16_t>(values[i]); break;
        case 32: warp.at<uint32_t>(places[i].offset)[lane] = static_cast<uint32_t>(values[i]); break;
        default: warp.at<uint64_t>(places[i].offset)[lane] = values[i]; break;
      }
    }
  }
}

void store_any(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& places = instruction.extra->places;
  const bool ordered = instruction.target != 0;
  const uint32_t bytes = instruction.bytes;
  std::array<unsigned char*, kLanes> at;
  warp.addresses(instruction, lanes, bytes * static_cast<uint32_t>(places.size()), at);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    for (size_t i = 0; i < places.size(); ++i) {
      unsigned char* const to = at[lane] + i * bytes;
      uint64_t value = 0;
      switch (places[i].bits) {
        case 16: value = warp.at<uint16_t>(places[i].offset)[lane]; break;
        case 32: value = warp.at<uint32_t>(places[i].offset)[lane]; break;
        default: value = warp.at<uint64_t>(places[i].offset)[lane]; break;
      }
      const int order = ordered ? __ATOMIC_RELEASE : __ATOMIC_RELAXED;
      switch (bytes) {
        case 1: __atomic_store_n(to, static_cast<uint8_t>(value), order); break;
        case 2: __atomic_store_n(reinterpret_cast<uint16_t*>(to), static_cast<uint16_t>(value), order); break;
        case 4: __atomic_store_n(reinterpret_cast<uint32_t*>(to), static_cast<uint32_t>(value), order); break;
        default: __atomic_store_n(reinterpret_cast<uint64_t*>(to), value, order); break;
      }
    }
  }
}

bool take_order(Decoder& decoder) {
  const bool ordered = !decoder.take_one({"acquire", "release", "relaxed", "volatile", "mmio"}).empty();
  decoder.take_one({"sys", "gpu", "cta", "cluster"});
  decoder.take("nc");
  return ordered;
}

/// Hints that change nothing here.
void drop_hints(Decoder& decoder) {
  auto& all = decoder.modifiers;
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const std::string& word) {
                             return word.find("L1::") == 0 || word.find("L2::") == 0 || word == "ca" ||
                                    word == "cg" || word == "cs" || word == "lu" || word == "cv" ||
                                    word == "wb" || word == "wt";
                           }),
            all.end());
}

std::string take_space(Decoder& decoder) {
  std::string space = decoder.take_one({"global", "shared", "shared::cta", "shared::cluster", "local",
                                        "const", "param", "param::entry", "param::func"});
  return space.find("shared") == 0 ? "shared" : space;
}

void decode_access(Decoder& decoder, bool loads) {
  drop_hints(decoder);
  const bool ordered = take_order(decoder);
  const std::string space = take_space(decoder);
  const std::string vector = decoder.take_one({"v2", "v4", "v8"});
  const std::string type = decoder.take_type();
  if (type == "pred" || type == "b128") decoder.unknown();
  const auto bytes = static_cast<uint32_t>(type_bytes(type));
  const std::string& registers = decoder.operands.at(loads ? 0 : 1);
  Instruction made = decoder.make(nullptr);
  std::vector<std::string> names = {registers};
  if (registers[0] == '{') names = split_operands(registers.substr(1, registers.size() - 2));
  if (names.size() != (vector.empty() ? 1 : static_cast<size_t>(vector[1] - '0'))) decoder.unknown();
  std::vector<Place> places;
  for (const std::string& name : names) {
    places.push_back(loads ? decoder.target_place(name, register_bits(type))
                           : decoder.source_place(name, register_bits(type)));
  }
  decoder.address(made, decoder.operands.at(loads ? 1 : 0), space);
  if (places.size() == 1 && places[0].bits == bytes * 8 && !ordered) {
    if (loads) {
      made.run = bytes == 2 ? load_plain<uint16_t> : bytes == 4 ? load_plain<uint32_t> : load_plain<uint64_t>;
      made.d = places[0].offset;
    } else {
      made.run = bytes == 2   ? store_plain<uint16_t>
                 : bytes == 4 ? store_plain<uint32_t>
                              : store_plain<uint64_t>;
      made.b = places[0].offset;
    }
    decoder.emit(made);
    return;
  }
  made.run = loads ? load_any : store_any;
  made.bytes = static_cast<uint8_t>(bytes);
  made.kind = is_signed(type) ? kSigned : 0;
  made.target = ordered ? 1 : 0;
  Extra* extra = decoder.extra();
  extra->places = places;
  made.extra = extra;
  decoder.emit(made);
}

void decode_ld(Decoder& decoder) {
  decode_access(decoder, true);
}
void decode_st(Decoder& decoder) {
  decode_access(decoder, false);
}

void decode_nothing(Decoder& decoder) {
  decoder.modifiers.clear();
}

/// cp.async: copies at once. `bytes`, and `b`: how many of them are read (the rest is zero).
void copy_async(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  std::array<unsigned char*, kLanes> to;
  warp.addresses(instruction, lanes, instruction.bytes, to);
  const auto* from = warp.at<uint64_t>(instruction.c);
  const auto* count = instruction.b == kNone ? nullptr : warp.at<uint32_t>(instruction.b);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const uint32_t bytes =
        count == nullptr ? instruction.bytes : std::min<uint32_t>(count[lane], instruction.bytes);
    std::memset(to[lane], 0, instruction.bytes);
    std::memcpy(to[lane],
                reinterpret_cast<const void*>(from[lane] + static_cast<uint64_t>(instruction.target)), bytes);
  }
}

void decode_cp(Decoder& decoder) {
  if (!decoder.take("async")) decoder.unknown();
  if (decoder.take("commit_group") || decoder.take("wait_group") || decoder.take("wait_all")) return;
  drop_hints(decoder);
  if (decoder.modifiers.size() != 2 || decoder.modifiers[0].find("shared") != 0 ||
      decoder.modifiers[1] != "global")
    decoder.unknown();
  decoder.modifiers.clear();
  Instruction made = decoder.make(copy_async);
  Instruction source = made;
  decoder.address(made, decoder.operands.at(0), "shared");
  decoder.address(source, decoder.operands.at(1), "global");
  if (source.base != Base::kRegister64) decoder.unknown();
  made.c = source.a;
  made.target = static_cast<uint32_t>(source.offset);
  made.bytes = static_cast<uint8_t>(std::stoul(decoder.operands.at(2), nullptr, 0));
  made.b = decoder.has_operand(3) ? decoder.source(decoder.operands[3], 32) : kNone;
  decoder.emit(made);
}

}  // namespace

void add_memory(DecodeTable& table) {
  table["ld"] = table["ldu"] = decode_ld;
  table["st"] = decode_st;
  table["cp"] = decode_cp;
  for (const char* name : {"prefetch", "prefetchu", "applypriority", "discard", "createpolicy"})
    table[name] = decode_nothing;
}

}  // namespace fake_cuda::ptx
