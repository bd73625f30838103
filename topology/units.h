// Numbers with units, exact in both directions: speeds, times, sizes. Decimal units: 1 GB/s is 10^9 bytes in
// a second. Also the scanner of one line, which the text forms of this folder share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::topology {

/// "450 GB/s"; parsed back exactly.
std::string print_speed(uint64_t bytes_per_s);
/// "60 ns", "1.5 us".
std::string print_time(uint64_t nanoseconds);
/// "64 GB".
std::string print_bytes(uint64_t bytes);
/// As print_speed with at most 3 digits, for people: "63 GB/s".
std::string round_speed(uint64_t bytes_per_s);

/// The unread rest of one line.
class Scanner {
 public:
  explicit Scanner(std::string_view line) : rest_(line) { skip_blanks(); }

  bool at_end() const { return rest_.empty(); }
  /// Takes `symbol` if `symbol` comes next. A word must end there.
  bool take(std::string_view symbol);
  /// Takes the longest run of characters that a name may have. Empty if something else comes next.
  std::string_view word();
  /// A text in double quotes, on this line.
  std::optional<std::string_view> quoted();
  /// A whole number from `least` to `most`.
  std::optional<uint64_t> number(uint64_t least, uint64_t most);
  /// A positive decimal number and a unit: B/s, kB/s, MB/s, GB/s, TB/s, or Mbit/s, Gbit/s.
  std::optional<uint64_t> speed();
  /// A decimal number and ns, us, ms or s.
  std::optional<uint64_t> time();
  /// A decimal number and B, kB, MB, GB, TB, or KiB, MiB, GiB, TiB.
  std::optional<uint64_t> bytes();
  /// The next characters, printable and short, for messages.
  std::string quote() const;

 private:
  struct Unit {
    std::string_view name;
    uint64_t factor;
    uint64_t divisor;
  };
  template <size_t N>
  std::optional<uint64_t> quantity(const Unit (&units)[N]);
  void skip_blanks();

  std::string_view rest_;
};

}  // namespace tutti::topology
