// The text of algorithms/choice.txt, embedded at build time (embed_text.py).
#pragma once

#include <string_view>

namespace tutti {

std::string_view built_in_choice_text();

}  // namespace tutti
