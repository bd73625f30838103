// Fuzz target: the port of tutti-inspect. A stranger gets nothing, whatever it sends; who knows the key gets
// the report, or as much of it as it stays for; the door stands all the time.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "health/inspector_server.h"
#include "tests/fuzz/visitor.h"

namespace {

using namespace tutti;

constexpr std::string_view kReport = "the report of the fuzzed process";

const Credentials& credentials() {
  static const Credentials kCredentials = credentials_from_text("a secret of the fuzzer", "fuzz");
  return kCredentials;
}

/// One door for all runs, served by a thread, as in a process.
Endpoint door() {
  static auto* const kControl = ControlThread::start()->release();
  static auto* const kDoor = InspectorServer::open(*kControl, {.interfaces = "=lo"}, credentials(), [] {
                               return std::string(kReport);
                             })->release();
  return test::loopback_of(kDoor->endpoint().port);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  if (data_bytes == 0) return 0;
  const bool knows_key = data[0] % 2 == 0;
  auto bytes = std::as_bytes(std::span(data, data_bytes)).subspan(1);
  test::Visitor visitor(door(), [] {});
  const Claim claim{.purpose = Purpose::kInspect, .from = kBootstrapServer, .to = kBootstrapServer};
  if (knows_key && !visitor.prove(credentials(), claim)) std::abort();
  const bool speaks = !bytes.empty();
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), std::to_integer<size_t>(bytes[0]) + 1);
    visitor.send(bytes.first(piece));
    bytes = bytes.subspan(piece);
  }
  if (speaks || !knows_key) visitor.finish();
  FrameReader reader(0);
  std::vector<Frame> frames;
  std::string all;
  bool good = true;
  while (frames.empty() && good) {
    const auto part = visitor.receive(1000);
    if (part.empty()) break;
    all.append(reinterpret_cast<const char*>(part.data()), part.size());
    good = !knows_key || reader.feed(part, frames).is_ok();
  }
  if (!knows_key) return all.find(kReport) == std::string::npos ? 0 : (std::abort(), 0);
  if (!good || (!speaks && frames.empty())) std::abort();
  if (!frames.empty() && frames[0].text() != kReport) std::abort();
  return 0;
}
