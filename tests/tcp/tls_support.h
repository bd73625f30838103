// Both ends of connections with TLS over them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/tcp/connection_pair.h"
#include "transports/tcp/tls_stream.h"

namespace tutti::test {

/// TLS over both ends of a connection; the handshake is yet to come.
struct TlsPair {
  TlsPair(std::unique_ptr<tcp::Stream> client, std::unique_ptr<tcp::Stream> server,
          const tcp::TlsOptions& options = {}) {
    auto context = tcp::TlsContext::create();
    EXPECT_TRUE(context.is_ok()) << context.status().text();
    tcp::TlsOptions of_client = options;
    of_client.is_client = true;
    ends[0] = std::move(*tcp::TlsStream::open(*context, std::move(client), of_client));
    ends[1] = std::move(*tcp::TlsStream::open(*context, std::move(server), options));
  }

  /// Lets both go on in turn until both are done or one has failed: its status.
  Status shake_hands() {
    bool done[2] = {false, false};
    for (int turn = 0; turn < 1000 && !(done[0] && done[1]); ++turn) {
      for (int end = 0; end < 2; ++end) {
        const auto now = done[end] ? Result<bool>(true) : ends[end]->shake_hands();
        TUTTI_TRY(now.status());
        done[end] = *now;
      }
    }
    return done[0] && done[1] ? Status::ok() : Status(Code::kTimeout, "the handshake does not end");
  }

  std::unique_ptr<tcp::TlsStream> ends[2];
};

/// The same connections with TLS.
inline StreamPair with_tls(StreamPair plain, const tcp::TlsOptions& options) {
  StreamPair secure;
  const size_t count = plain.ends[0].size();
  for (size_t i = 0; i < count; ++i) {
    // connect_streams gives the other end of a connection in reverse order.
    TlsPair pair(std::move(plain.ends[0][i]), std::move(plain.ends[1][count - 1 - i]), options);
    const Status met = pair.shake_hands();
    EXPECT_TRUE(met.is_ok()) << met.text();
    secure.ends[0].push_back(std::move(pair.ends[0]));
    secure.ends[1].insert(secure.ends[1].begin(), std::move(pair.ends[1]));
  }
  return secure;
}

}  // namespace tutti::test
