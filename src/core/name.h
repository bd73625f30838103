// Name: a text as a template argument.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tutti {

template <size_t kSize>
struct Name {
  constexpr Name(const char (&text)[kSize]) { std::copy_n(text, kSize, characters); }  // NOLINT: implicit
  constexpr std::string_view view() const { return {characters, kSize - 1}; }

  char characters[kSize];
};

}  // namespace tutti
