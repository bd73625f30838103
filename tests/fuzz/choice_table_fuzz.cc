// Fuzz target: the table that chooses algorithms. Any text is refused with a line, or read; a table that was
// read answers every request with an algorithm that supports it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "algorithms/choice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), data_bytes);
  const auto table = tutti::ChoiceTable::parse(text);
  if (!table) {
    if (table.status().text().find("line ") == std::string_view::npos) std::abort();
    return 0;
  }
  const tutti::Request request{.rank_count = 3, .block_bytes = 4096};
  const tutti::Facts facts;
  const tutti::Algorithm* algorithm = table->choose(request, facts);
  if (algorithm == nullptr || !algorithm->supports(request, facts)) std::abort();
  return 0;
}
