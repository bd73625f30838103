// Sizes on command lines.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::tool {

/// "4096", "64K", "1.5M", "2G" (powers of 1024). nullopt for any other text, and above 2^50: what is
/// derived from a size must fit in 64 bits, and a number of rounds in 32.
inline std::optional<uint64_t> parse_bytes(const std::string& text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  constexpr auto kBytesMost = static_cast<double>(uint64_t{1} << 50);
  double value = 0;
  // from_chars reads no locale, no sign and no hexadecimal.
  const char* end =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed).ptr;
  constexpr std::string_view kSuffixes = "KkMmGg";
  if (const size_t suffix = kSuffixes.find(*end); *end != '\0' && suffix != std::string_view::npos) {
    value = std::ldexp(value, static_cast<int>(10 * (suffix / 2 + 1)));
    ++end;
  }
  if (*end != '\0' || !(value <= kBytesMost)) return std::nullopt;
  return static_cast<uint64_t>(value);
}

}  // namespace tutti::tool
