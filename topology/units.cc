#include "topology/units.h"

#include <array>
#include <charconv>
#include <utility>

namespace tutti::topology {
namespace {

constexpr size_t kQuoteBytes = 24;
__extension__ typedef unsigned __int128 Wide;

struct PrintUnit {
  std::string_view name;
  uint64_t factor;
};
constexpr std::array<PrintUnit, 5> kDecimal = {
    {{"TB", 1'000'000'000'000}, {"GB", 1'000'000'000}, {"MB", 1'000'000}, {"kB", 1000}, {"B", 1}}};
constexpr std::array<PrintUnit, 4> kTimes = {
    {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1000}, {"ns", 1}}};

template <size_t N>
std::string print_exact(uint64_t value, const std::array<PrintUnit, N>& units) {
  size_t i = 0;
  while (i + 1 < N && value < units[i].factor) ++i;
  const uint64_t factor = units[i].factor;
  std::string text = std::to_string(value / factor);
  if (uint64_t rest = value % factor; rest != 0) {
    text += '.';
    for (uint64_t digit = factor / 10; rest != 0; digit /= 10) {
      text += static_cast<char>('0' + rest / digit);
      rest %= digit;
    }
  }
  return text + " " + std::string(units[i].name);
}

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.:+/-").find(c) != std::string_view::npos;
}

/// `digits` times factor over divisor, if the result fits.
std::optional<uint64_t> scaled(Wide digits, uint64_t factor, uint64_t divisor) {
  const Wide value = digits * factor / divisor;
  if (value > INT64_MAX) return std::nullopt;
  return static_cast<uint64_t>(value);
}

}  // namespace

// A terabyte per second is rare, and "0.9 TB/s" beside "450 GB/s" is hard to compare.
std::string print_speed(uint64_t bytes_per_s) {
  constexpr std::array<PrintUnit, 4> units = {kDecimal[1], kDecimal[2], kDecimal[3], kDecimal[4]};
  return print_exact(bytes_per_s, units) + "/s";
}
std::string print_time(uint64_t nanoseconds) {
  return print_exact(nanoseconds, kTimes);
}
std::string print_bytes(uint64_t bytes) {
  return print_exact(bytes, kDecimal);
}

std::string round_speed(uint64_t bytes_per_s) {
  uint64_t step = 1;
  while (bytes_per_s / step >= 1000) step *= 10;
  const uint64_t digits = bytes_per_s / step + (bytes_per_s % step * 2 >= step && step > 1 ? 1 : 0);
  return print_speed(digits * step);
}

bool Scanner::take(std::string_view symbol) {
  if (rest_.substr(0, symbol.size()) != symbol) return false;
  if (is_word_character(symbol.back()) && rest_.size() > symbol.size() &&
      is_word_character(rest_[symbol.size()])) {
    return false;
  }
  rest_.remove_prefix(symbol.size());
  skip_blanks();
  return true;
}

std::string_view Scanner::word() {
  size_t length = 0;
  while (length < rest_.size() && is_word_character(rest_[length])) ++length;
  const std::string_view result = rest_.substr(0, length);
  rest_.remove_prefix(length);
  skip_blanks();
  return result;
}

std::optional<std::string_view> Scanner::quoted() {
  if (rest_.empty() || rest_.front() != '"') return std::nullopt;
  const size_t end = rest_.find('"', 1);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view result = rest_.substr(1, end - 1);
  rest_.remove_prefix(end + 1);
  skip_blanks();
  return result;
}

std::optional<uint64_t> Scanner::number(uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const char* end = rest_.data() + rest_.size();
  const auto [stop, error] = std::from_chars(rest_.data(), end, value);
  if (error != std::errc() || value < least || value > most) return std::nullopt;
  if (stop != end && is_word_character(*stop)) return std::nullopt;
  rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
  skip_blanks();
  return value;
}

template <size_t N>
std::optional<uint64_t> Scanner::quantity(const Unit (&units)[N]) {
  constexpr int kDigitsMax = 24;
  std::string_view rest = rest_;
  Wide digits = 0;
  uint64_t divisor = 1;
  int taken = 0;
  bool after_point = false;
  for (; !rest.empty(); rest.remove_prefix(1)) {
    const char c = rest.front();
    if (c == '.' && !after_point && taken > 0) {
      after_point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    if (++taken > kDigitsMax) return std::nullopt;
    if (after_point && divisor >= 1'000'000'000'000) continue;  // below one unit's smallest part
    digits = digits * 10 + static_cast<unsigned>(c - '0');
    if (after_point) divisor *= 10;
  }
  if (taken == 0) return std::nullopt;
  Scanner after(rest);
  for (const Unit& unit : units) {
    if (!after.take(unit.name)) continue;
    if (digits > UINT64_MAX) return std::nullopt;
    const auto value = scaled(digits, unit.factor, divisor * unit.divisor);
    if (value) *this = after;
    return value;
  }
  return std::nullopt;
}

std::optional<uint64_t> Scanner::speed() {
  static constexpr Unit kUnits[] = {{"B/s", 1, 1},
                                    {"kB/s", 1000, 1},
                                    {"MB/s", 1'000'000, 1},
                                    {"GB/s", 1'000'000'000, 1},
                                    {"Mbit/s", 1'000'000, 8},
                                    {"Gbit/s", 1'000'000'000, 8},
                                    {"TB/s", 1'000'000'000'000, 1}};
  return quantity(kUnits);
}

std::optional<uint64_t> Scanner::time() {
  static constexpr Unit kUnits[] = {
      {"ns", 1, 1}, {"us", 1000, 1}, {"ms", 1'000'000, 1}, {"s", 1'000'000'000, 1}};
  return quantity(kUnits);
}

std::optional<uint64_t> Scanner::bytes() {
  static constexpr Unit kUnits[] = {{"B", 1, 1},
                                    {"kB", 1000, 1},
                                    {"MB", 1'000'000, 1},
                                    {"GB", 1'000'000'000, 1},
                                    {"TB", 1'000'000'000'000, 1},
                                    {"KiB", 1u << 10, 1},
                                    {"MiB", 1u << 20, 1},
                                    {"GiB", 1u << 30, 1},
                                    {"TiB", uint64_t{1} << 40, 1}};
  return quantity(kUnits);
}

std::string Scanner::quote() const {
  if (rest_.empty()) return "the end of the line";
  std::string text = "'";
  for (const char c : rest_.substr(0, kQuoteBytes)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (rest_.size() > kQuoteBytes ? "...'" : "'");
}

void Scanner::skip_blanks() {
  const size_t start = rest_.find_first_not_of(" \t\r");
  rest_ = start == std::string_view::npos ? std::string_view() : rest_.substr(start);
}

}  // namespace tutti::topology
