// Fuzz target: what a peer sends over the socket that takes a torn one's place. Any bytes, in any pieces, end
// the exchange, break it, or make it complete with an answer within what was sent and kept.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tests/tcp/scripted_stream.h"
#include "transports/tcp/resume.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  using tutti::tcp::Greeting;
  constexpr uint64_t kKept = 140;
  const tutti::tcp::Resume mine{.from = 4, .to = 9, .epoch = 3, .stream = 1, .received = 100, .sent = 200};
  // The first byte says what is changed of a right answer; without this few inputs pass the first word.
  const tutti::tcp::Resume right{.from = 9, .to = 4, .epoch = 3, .stream = 1, .received = 150, .sent = 130};
  const auto good = encode(right);
  tutti::test::ScriptedStream stream;
  stream.at_end = -ECONNRESET;
  std::vector<std::byte> bytes;
  if (data_bytes > 0 && data[0] % 2 == 0) bytes.assign(good.begin(), good.end());
  for (size_t i = 1; i + 1 < data_bytes && data[0] % 2 == 0; i += 2)
    bytes[data[i] % bytes.size()] = static_cast<std::byte>(data[i + 1]);
  const auto* raw = reinterpret_cast<const std::byte*>(data);
  if (data_bytes > 0 && data[0] % 2 != 0) bytes.assign(raw + 1, raw + data_bytes);
  constexpr char kReady[] = "tuttirdy";
  if (data_bytes > 0 && data[0] % 4 < 2)
    std::transform(kReady, kReady + 8, std::back_inserter(bytes),
                   [](char letter) { return static_cast<std::byte>(letter); });
  stream.feed(bytes);
  for (size_t i = 0; i < data_bytes; ++i) stream.read_answers.push_back(1 + data[i] % 16);
  Greeting greeting(mine, kKept);
  Greeting::Outcome outcome = Greeting::Outcome::kGoesOn;
  for (size_t turn = 0; outcome == Greeting::Outcome::kGoesOn; ++turn) {
    if (turn > 1000) std::abort();
    outcome = greeting.advance(stream);
  }
  if (outcome != Greeting::Outcome::kDone) {
    if (greeting.failure().is_ok()) std::abort();
    return 0;
  }
  const tutti::tcp::Resume& theirs = greeting.theirs();
  if (theirs.received < kKept || theirs.received > mine.sent || theirs.sent < mine.received) std::abort();
  return 0;
}
