// Every call that only moves bytes, with checked contents.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/cards/hosts.h"

namespace tutti::test {

/// One call on all ranks.
struct Move {
  const char* name;
  /// Fills the buffers, and returns what the check expects: for each received part its place and its bytes.
  struct Part {
    uint64_t offset = 0;
    std::vector<unsigned char> bytes = {};
  };
  struct Buffers {
    std::byte* send = nullptr;
    std::byte* recv = nullptr;
    std::vector<Part> expected = {};
  };
  std::function<Buffers(HostRank&, uint64_t bytes, int call)> prepare;
  std::function<tutti_result_t(HostRank&, const Buffers&, uint64_t bytes, tutti_stream_t)> make;
};

const std::vector<Move>& moves();

/// Makes a call on the rank's stream, or blocking, and checks every byte that has come.
void check_move(HostRank& rank, const Move& move, uint64_t bytes, int call, bool on_stream);

}  // namespace tutti::test
