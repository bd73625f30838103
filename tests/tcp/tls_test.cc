// Goal: with TLS every byte that counts as written arrives once, in order and unchanged, or the connection
// breaks; nothing of it can be read on the way; who does not know the key does not get in. Method: both ends
// over a socket pair in one thread; a stream beneath that records, cuts or changes what passes.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "tests/tcp/tls_support.h"
#include "transports/sim/sim.h"

namespace tutti::test {
namespace {

/// What passes beneath TLS, seen and changed.
struct Wiretap {
  Bytes seen;
  size_t cut_at = SIZE_MAX;   ///< from this byte on nothing passes, and the connection ends
  size_t flip_at = SIZE_MAX;  ///< this byte is changed
  size_t room = SIZE_MAX;     ///< bytes that are taken before it is full
  bool holds = false;         ///< whether small writes may wait to be acknowledged
};

class TappedStream final : public tcp::Stream {
 public:
  TappedStream(std::unique_ptr<tcp::Stream> inner, Wiretap& tap) : inner_(std::move(inner)), tap_(tap) {}

  ssize_t write(const iovec* pieces, size_t count, bool /*without_copy*/) override {
    if (count == 0) return 0;
    const auto* bytes = static_cast<const std::byte*>(pieces[0].iov_base);
    const size_t taken = std::min(pieces[0].iov_len, tap_.room);
    if (taken == 0) return -EAGAIN;
    if (tap_.room != SIZE_MAX) tap_.room -= taken;
    Bytes passed(bytes, bytes + taken);
    const size_t start = tap_.seen.size();
    tap_.seen.insert(tap_.seen.end(), passed.begin(), passed.end());
    if (tap_.flip_at - start < taken) passed[tap_.flip_at - start] ^= std::byte{1};
    if (tap_.cut_at < start + taken) {
      passed.resize(tap_.cut_at > start ? tap_.cut_at - start : 0);
    }
    const iovec piece{passed.data(), passed.size()};
    if (!passed.empty()) {
      EXPECT_EQ(inner_->write(&piece, 1, false), static_cast<ssize_t>(passed.size()));
    }
    if (tap_.cut_at < start + taken) inner_->finish();
    return static_cast<ssize_t>(taken);
  }
  ssize_t read(const iovec* pieces, size_t count) override { return inner_->read(pieces, count); }
  bool can_write_in_place() const override { return true; }
  uint64_t burst_bytes() const override { return inner_->burst_bytes(); }
  void hold_small(bool on) override { tap_.holds |= on; }
  void acknowledge() override { inner_->acknowledge(); }
  bool next_completion(tcp::Completion& /*completion*/) override { return false; }
  void finish() override { inner_->finish(); }
  uint64_t silent_ms() const override { return 0; }
  uint64_t unconfirmed_bytes() const override { return inner_->unconfirmed_bytes(); }
  uint64_t confirmed_bytes() override { return inner_->confirmed_bytes(); }
  bool is_loopback() const override { return inner_->is_loopback(); }
  void close() override { inner_->close(); }
  void forget() override { inner_->forget(); }
  Result<bool> shake_hands() override { return inner_->shake_hands(); }
  short awaited_events() const override { return inner_->awaited_events(); }
  int descriptor() const override { return inner_->descriptor(); }
  const std::string& address() const override { return inner_->address(); }
  const std::string& own_address() const override { return inner_->own_address(); }

 private:
  std::unique_ptr<tcp::Stream> inner_;
  Wiretap& tap_;
};

/// A connection whose first end's writes are tapped.
struct Tapped {
  explicit Tapped(const tcp::TlsOptions& options = {}, uint32_t buffer_bytes = 0)
      : Tapped(connect_streams(Wire::kUnix, 1, buffer_bytes), options) {}
  Tapped(StreamPair streams, const tcp::TlsOptions& options)
      : pair(std::make_unique<TappedStream>(std::move(streams.ends[0][0]), tap),
             std::move(streams.ends[1][0]), options) {}

  void meet() {
    const Status met = pair.shake_hands();
    ASSERT_TRUE(met.is_ok()) << met.text();
    tap.seen.clear();
  }
  ssize_t write(const Bytes& bytes, size_t from = 0) {
    const iovec piece{const_cast<std::byte*>(bytes.data()) + from, bytes.size() - from};
    return pair.ends[0]->write(&piece, 1, false);
  }
  /// All that can be read now; `end`: what came instead of more.
  Bytes read(ssize_t* end = nullptr) {
    Bytes all;
    for (;;) {
      std::byte buffer[5000];
      const iovec piece{buffer, sizeof(buffer)};
      const ssize_t got = pair.ends[1]->read(&piece, 1);
      if (got <= 0) {
        if (end != nullptr) *end = got;
        return all;
      }
      all.insert(all.end(), buffer, buffer + got);
    }
  }

  Wiretap tap;
  TlsPair pair;
};

Bytes pattern(size_t bytes) {
  SimRandom random(bytes);
  Bytes result(bytes);
  for (std::byte& byte : result) byte = static_cast<std::byte>(random.below(256));
  return result;
}

TEST(TlsTest, SizesAroundARecordPassInAnyPieces) {
  Tapped link;
  link.meet();
  for (const size_t bytes : {1, 16, 16383, 16384, 16385, 32767, 32768, 32769, 50'000}) {
    for (const size_t piece_bytes : {size_t{1000}, size_t{16384}, size_t{20'000}, size_t{100'000}}) {
      const Bytes sent = pattern(bytes);
      std::vector<iovec> pieces;
      for (size_t at = 0; at < bytes; at += piece_bytes) {
        pieces.push_back({const_cast<std::byte*>(sent.data()) + at, std::min(piece_bytes, bytes - at)});
      }
      ASSERT_EQ(link.pair.ends[0]->write(pieces.data(), pieces.size(), false), static_cast<ssize_t>(bytes));
      EXPECT_EQ(link.read(), sent) << bytes << " bytes in pieces of " << piece_bytes;
    }
  }
}

TEST(TlsTest, NothingIsReadableOnTheWay) {
  Tapped link;
  link.meet();
  const Bytes secret = pattern(64);
  Bytes sent;
  for (int i = 0; i < 1000; ++i) sent.insert(sent.end(), secret.begin(), secret.end());
  ASSERT_EQ(link.write(sent), static_cast<ssize_t>(sent.size()));
  EXPECT_EQ(link.read(), sent);
  EXPECT_GT(link.tap.seen.size(), sent.size());
  // Not even a part of it.
  EXPECT_EQ(std::search(link.tap.seen.begin(), link.tap.seen.end(), secret.begin(), secret.begin() + 8),
            link.tap.seen.end());
}

// A record of which only a part had come was not acknowledged, and the peer's kernel held the rest of it, up
// to the 40 ms after which the reader's acknowledges by itself.
TEST(TlsTest, NoPartOfARecordIsHeldBack) {
  Tapped link;
  link.meet();
  link.pair.ends[0]->hold_small(true);
  EXPECT_FALSE(link.tap.holds);
}

// Goal: what counts as written can be read, whole, without another write: a rank may compute after it.
// Method: the network takes any number of bytes and is full.
TEST(TlsTest, WhatTheNetworkHasNotTakenIsNotWritten) {
  const Bytes sent = pattern(40'000);
  for (size_t room = 0; room < 41'000; room = room < 60 ? room + 1 : room + 977) {
    Tapped link;
    link.meet();
    link.tap.room = room;
    size_t written = 0;
    const ssize_t first = link.write(sent);
    ASSERT_TRUE(first > 0 || first == -EAGAIN) << first;
    if (first > 0) written = static_cast<size_t>(first);
    Bytes came = link.read();
    ASSERT_EQ(came.size(), written) << "room for " << room;
    for (link.tap.room = SIZE_MAX; written < sent.size();) {
      const ssize_t more = link.write(sent, written);
      ASSERT_GT(more, 0);
      written += static_cast<size_t>(more);
    }
    const Bytes rest = link.read();
    came.insert(came.end(), rest.begin(), rest.end());
    ASSERT_EQ(came, sent) << "room for " << room;
  }
}

// Goal: a change of one bit anywhere, or an end anywhere, delivers a beginning of what was sent, or nothing.
TEST(TlsTest, ChangedOrCutBytesAreNeverDelivered) {
  constexpr size_t kRecords = 2;
  const Bytes sent = pattern(40);
  Tapped whole;
  whole.meet();
  for (size_t i = 0; i < kRecords; ++i) ASSERT_EQ(whole.write(sent), 40);
  const size_t on_the_way = whole.tap.seen.size();
  size_t waits = 0;
  for (size_t at = 0; at < on_the_way; ++at) {
    for (const bool cuts : {false, true}) {
      Tapped link;
      link.meet();
      (cuts ? link.tap.cut_at : link.tap.flip_at) = at;
      for (size_t i = 0; i < kRecords; ++i) link.write(sent);
      ssize_t end = 0;
      const Bytes came = link.read(&end);
      EXPECT_EQ(came.size(), 40 * (kRecords * at / on_the_way)) << at;
      for (size_t i = 0; i < came.size(); ++i) ASSERT_EQ(came[i], sent[i % 40]);
      // A record that was made to look longer is waited for.
      EXPECT_TRUE(cuts ? end == 0 : end == -EBADMSG || end == -EAGAIN) << at << ": " << end;
      waits += end == -EAGAIN ? 1 : 0;
    }
  }
  EXPECT_LE(waits, kRecords * 2) << "the bytes that say how long a record is";
}

TEST(TlsTest, AFinishedEndIsSeenAfterTheLastByte) {
  Tapped link;
  link.meet();
  const Bytes sent = pattern(100);
  ASSERT_EQ(link.write(sent), 100);
  link.pair.ends[0]->finish();
  ssize_t end = -1;
  EXPECT_EQ(link.read(&end), sent);
  EXPECT_EQ(end, 0);
}

// Goal: keys are renewed on the way, also where the network is full just then.
TEST(TlsTest, KeysAreRenewed) {
  Tapped link({.records_a_key = 3});
  link.meet();
  const Bytes sent = pattern(1000);
  for (int i = 0; i < 50; ++i) {
    link.tap.room = static_cast<size_t>(i) * 25;
    size_t written = 0;
    while (written < sent.size()) {
      const ssize_t more = link.write(sent, written);
      if (more == -EAGAIN) {
        link.tap.room = SIZE_MAX;
        continue;
      }
      ASSERT_GT(more, 0) << i;
      written += static_cast<size_t>(more);
    }
    ASSERT_EQ(link.read(), sent) << i;
  }
}

TEST(TlsTest, WhoDoesNotKnowTheKeyIsRefusedByBoth) {
  StreamPair streams = connect_streams(Wire::kUnix, 1);
  auto context = *tcp::TlsContext::create();
  tcp::TlsOptions options{.is_client = true};
  auto client = std::move(*tcp::TlsStream::open(context, std::move(streams.ends[0][0]), options));
  options.key[0] = std::byte{1};
  options.is_client = false;
  auto server = std::move(*tcp::TlsStream::open(context, std::move(streams.ends[1][0]), options));
  Result<bool> of_client = false;
  Result<bool> of_server = false;
  for (int turn = 0; turn < 10 && of_client && of_server; ++turn) {
    of_client = client->shake_hands();
    of_server = server->shake_hands();
  }
  EXPECT_FALSE(of_server.is_ok());
  EXPECT_FALSE(client->shake_hands().is_ok());
  EXPECT_NE(of_server.status().text().find("TLS"), std::string_view::npos) << of_server.status().text();
}

TEST(TlsTest, WhoSpeaksNoTlsIsRefused) {
  StreamPair streams = connect_streams(Wire::kUnix, 1);
  auto server =
      std::move(*tcp::TlsStream::open(*tcp::TlsContext::create(), std::move(streams.ends[0][0]), {}));
  const Bytes noise = pattern(300);
  const iovec piece{const_cast<std::byte*>(noise.data()), noise.size()};
  ASSERT_EQ(streams.ends[1][0]->write(&piece, 1, false), 300);
  Result<bool> met = false;
  for (int turn = 0; turn < 10 && met && !*met; ++turn) met = server->shake_hands();
  EXPECT_FALSE(met.is_ok());
}

}  // namespace
}  // namespace tutti::test
