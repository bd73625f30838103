// Fuzz target: a bootstrap, whose rendezvous and rank 0 hear what holders of the key may send in any order:
// before they join, when they have joined, and as a child in the tree. Whatever it is, rank 0 has an error by
// its deadline, and nobody waits for ever.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/node.h"
#include "bootstrap/rendezvous.h"
#include "tests/fuzz/visitor.h"

namespace {

using namespace tutti;
using test::Visitor;

constexpr uint32_t kRanks = 4;
constexpr uint64_t kSecondNs = 1'000'000'000;

/// Where the parent of rank 1 listens, as the rendezvous says.
std::optional<Endpoint> parent_of(Visitor& visitor) {
  FrameReader reader(0);
  std::vector<Frame> frames;
  while (frames.empty()) {
    const auto bytes = visitor.receive(kFrameHeaderBytes + kPackedEndpointsBytes);
    if (bytes.empty() || !reader.feed(bytes, frames)) return std::nullopt;
  }
  if (frames[0].header.kind != FrameKind::kParent || frames[0].body.size() != kPackedEndpointsBytes) {
    return std::nullopt;
  }
  const auto endpoints = unpack_endpoints(
      std::span<const std::byte, kPackedEndpointsBytes>(frames[0].body.data(), kPackedEndpointsBytes));
  if (!endpoints || endpoints->empty()) return std::nullopt;
  return test::loopback_of(endpoints->front().port);
}

/// The input: a byte that says who speaks, and whether a frame or any bytes: their number and those, or the
/// fields of a header and a body; and so on.
void say_next(std::vector<std::unique_ptr<Visitor>>& visitors, std::span<const std::byte>& bytes) {
  const auto take = [&bytes]() -> uint32_t {
    if (bytes.empty()) return 0;
    const auto value = std::to_integer<uint32_t>(bytes[0]);
    bytes = bytes.subspan(1);
    return value;
  };
  const uint32_t choice = take();
  Visitor& visitor = *visitors[choice % visitors.size()];
  FrameHeader header;
  if (choice < 192) {
    header.kind = static_cast<FrameKind>(take() % (static_cast<uint32_t>(FrameKind::kText) + 2));
    header.first = take() % (kRanks + 2);
    header.count = take() % (kRanks + 2);
    header.number = take() % 4;
    header.code = take();
  }
  const size_t count = take();
  const auto body = bytes.first(std::min(count, bytes.size()));
  bytes = bytes.subspan(body.size());
  choice < 192 ? visitor.send(header, body) : visitor.send(body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  const Credentials credentials = credentials_from_text("a secret of the fuzzer", "fuzz");
  uint64_t now = kSecondNs;
  auto loop = std::move(*EventLoop::create([&now] { return now; }));
  const auto turn = [&loop] {
    while (loop->run_ready()) {
    }
  };
  auto listener = listen_at({.interfaces = "=lo"});
  if (!listener) return 0;
  const Endpoint where = test::loopback_of(listener->endpoints[0].port);
  RendezvousOptions serve;
  serve.credentials = credentials;
  serve.listener = std::move(*listener);
  serve.on_stranger = {};
  const auto rendezvous = std::move(*Rendezvous::open(*loop, std::move(serve)));
  NodeOptions options;
  options.credentials = credentials;
  options.rendezvous = {where};
  options.rank_count = kRanks;
  options.deadline_ns = now + 100 * kSecondNs;
  options.listen.interfaces = "=lo";
  const auto member = std::move(*BootstrapNode::start(*loop, options));
  std::optional<Status> end;
  member->all_gather(std::vector<std::byte>(24), false,
                     [&end](const Result<BootstrapNode::Table>& table) { end = table.status(); });
  while (!member->has_joined()) turn();

  std::vector<std::unique_ptr<Visitor>> visitors;
  const auto visit = [&](const Endpoint& to, const Claim& claim) {
    visitors.push_back(std::make_unique<Visitor>(to, turn));
    if (!visitors.back()->prove(credentials, claim)) std::abort();
  };
  visit(where, {.purpose = Purpose::kRendezvous, .from = 1, .to = kBootstrapServer});
  visitors[0]->send({.kind = FrameKind::kJoin, .first = 1, .count = kRanks},
                    pack_endpoints(std::vector<Endpoint>{where}));
  const auto parent = parent_of(*visitors[0]);
  if (!parent) std::abort();
  visit(where, {.purpose = Purpose::kRendezvous, .from = 2, .to = kBootstrapServer});
  visit(*parent, {.purpose = Purpose::kTree, .from = 1, .to = 0});
  auto bytes = std::as_bytes(std::span(data, data_bytes));
  while (!bytes.empty()) say_next(visitors, bytes);
  // With the deadline behind it a bootstrap that lacks ranks has failed.
  for (const uint64_t seconds : {101, 2, 2, 2}) {
    now += seconds * kSecondNs;
    turn();
  }
  if (!end || end->is_ok() || end->text().empty()) std::abort();
  return 0;
}
