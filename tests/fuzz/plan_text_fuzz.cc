// Fuzz target: the parser of plan files. Any text is refused with a line, or read; what was read is printed
// and read again to the same plans; the verifier survives them.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plan/text.h"
#include "plan/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), data_bytes);
  const auto plans = tutti::parse_plans(text);
  if (!plans) {
    if (plans.status().text().find("line ") == std::string_view::npos) std::abort();
    return 0;
  }
  const auto again = tutti::parse_plans(tutti::print_plans(*plans));
  if (!again || *again != *plans) std::abort();
  (void)tutti::verify_plans(*plans).is_ok();
  return 0;
}
