// Fuzz target: TLS under the data connections. Whoever does not know the key gets no further than the
// handshake, whatever it sends, at either end; and behind a handshake nothing is delivered but what was
// written, in order.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/tcp/scripted_stream.h"
#include "transports/tcp/tls_stream.h"

namespace {

using tutti::tcp::TlsContext;
using tutti::tcp::TlsStream;
using tutti::test::ScriptedStream;

/// One end of a connection, and what has gone and comes under its TLS.
struct End {
  explicit End(bool is_client) {
    static const auto kContext = std::move(*TlsContext::create());
    auto inner = std::make_unique<ScriptedStream>();
    wire = inner.get();
    tutti::tcp::TlsOptions options;
    options.key.fill(std::byte{7});
    options.is_client = is_client;
    tls = std::move(*TlsStream::open(kContext, std::move(inner), options));
  }

  /// Everything that can be read now.
  std::vector<std::byte> read_all() {
    std::vector<std::byte> all;
    std::vector<std::byte> buffer(3000);
    const iovec piece{buffer.data(), buffer.size()};
    for (;;) {
      const ssize_t got = tls->read(&piece, 1);
      if (got <= 0) return all;
      all.insert(all.end(), buffer.begin(), buffer.begin() + got);
    }
  }

  ScriptedStream* wire;
  std::unique_ptr<TlsStream> tls;
};

/// Bytes of somebody without the key, in pieces.
void meet_stranger(std::span<const std::byte> bytes, bool is_client) {
  End end(is_client);
  bool failed = false;
  while (!failed && !bytes.empty()) {
    const size_t piece = std::min(bytes.size(), std::to_integer<size_t>(bytes[0]) * 4 + 1);
    end.wire->feed({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(piece)});
    bytes = bytes.subspan(piece);
    const auto done = end.tls->shake_hands();
    if (done && *done) std::abort();
    failed = !done;
  }
  end.wire->at_end = 0;
  // A peer that is gone ends the handshake: nobody waits for it.
  if (!failed && end.tls->shake_hands()) std::abort();
  if (!end.read_all().empty()) std::abort();
}

/// What one end has sent reaches the other.
void carry(End& from, End& to) {
  to.wire->feed(from.wire->written);
  from.wire->written.clear();
}

void shake_hands(End& client, End& server) {
  bool done = false;
  for (int turn = 0; turn < 10 && !done; ++turn) {
    const auto of_client = client.tls->shake_hands();
    carry(client, server);
    const auto of_server = server.tls->shake_hands();
    carry(server, client);
    if (!of_client || !of_server) std::abort();
    done = *of_client && *of_server;
  }
  if (!done) std::abort();
  // What the server sends behind its handshake.
  if (!client.read_all().empty()) std::abort();
}

/// Changes records on their way: the input is a list of (where, how).
void change_records(std::span<const std::byte> edits) {
  End client(true);
  End server(false);
  shake_hands(client, server);
  std::vector<std::byte> said(700);
  for (size_t i = 0; i < said.size(); ++i) said[i] = static_cast<std::byte>(i * 31 >> 3);
  for (size_t at = 0; at < said.size(); at += 100) {
    const iovec piece{said.data() + at, 100};
    if (client.tls->write(&piece, 1, false) != 100) std::abort();
  }
  std::vector<std::byte> sent = std::exchange(client.wire->written, {});
  const std::vector<std::byte> original = sent;
  for (; edits.size() >= 3 && !sent.empty(); edits = edits.subspan(3)) {
    const size_t where =
        (std::to_integer<size_t>(edits[0]) * 256 + std::to_integer<size_t>(edits[1])) % sent.size();
    const auto at = sent.begin() + static_cast<ptrdiff_t>(where);
    const auto how = std::to_integer<unsigned>(edits[2]);
    if (how == 0) {
      sent.resize(where);
    } else if (how == 1) {
      sent.erase(at);
    } else if (how == 2) {
      sent.insert(at, sent.begin(), sent.begin() + static_cast<ptrdiff_t>(std::min<size_t>(where, 200)));
    } else {
      *at ^= edits[2];
    }
  }
  server.wire->feed(sent);
  server.wire->at_end = 0;
  const auto got = server.read_all();
  if (got.size() > said.size() || !std::equal(got.begin(), got.end(), said.begin())) std::abort();
  if (sent == original && got.size() != said.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  if (data_bytes == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, data_bytes)).subspan(1);
  switch (data[0] % 4) {
    case 0: change_records(bytes); break;
    case 1: meet_stranger(bytes, true); break;
    default: meet_stranger(bytes, false); break;
  }
  return 0;
}
