// TlsStream: TLS 1.3 over another stream, by OpenSSL. Both ends know a key (an external PSK, RFC 8446 section
// 2.2): no certificates; fresh Diffie-Hellman keys a connection, so that a key that becomes known later does
// not open what was recorded before.
//
// What the network has not taken of an encrypted record counts as not written: the same bytes are offered
// again, as after any short write, and whoever waits until all is written waits for the last record, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "transports/tcp/stream.h"

// OpenSSL's, whose header is large.
struct bio_method_st;
struct bio_st;
struct ssl_ctx_st;
struct ssl_st;

namespace tutti::tcp {

struct TlsOptions {
  std::array<std::byte, 32> key{};  ///< known to the two ends, of this connection alone
  bool is_client = false;           ///< the one end is, the other is not
  /// Records under one key, then the next one is derived. AES-GCM allows 2^24.5 of full size (RFC 8446
  /// section 5.5).
  uint32_t records_a_key = 1u << 23;
};

/// What connections share. Used by one thread at a time.
class TlsContext {
 public:
  /// Errors: kSystemError (an OpenSSL without TLS 1.3).
  static Result<std::shared_ptr<TlsContext>> create();
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  TlsContext() = default;
  bio_method_st* method_ = nullptr;
  ssl_ctx_st* context_ = nullptr;
};

class TlsStream final : public Stream {
 public:
  /// Takes over `inner`, on which nothing has been said. Errors: kOutOfMemory.
  static Result<std::unique_ptr<TlsStream>> open(std::shared_ptr<TlsContext> context,
                                                 std::unique_ptr<Stream> inner, const TlsOptions& options);
  ~TlsStream() override;

  /// Goes on with the handshake as far as it can without blocking; true when it is done: before that nothing
  /// can be read or written. Errors: kPeerLost: the peer does not know the key, or the connection broke.
  Result<bool> shake_hands();
  /// While the handshake goes on: what poll(2) should wait for.
  short awaited_events() const;

  ssize_t write(const iovec* pieces, size_t count, bool without_copy) override;
  ssize_t read(const iovec* pieces, size_t count) override;
  bool can_write_in_place() const override { return false; }
  uint64_t burst_bytes() const override { return 0; }  // records are cut on their own
  /// Nothing is held: of a record that has come in part nobody up there knows that it should be acknowledged.
  void hold_small(bool /*on*/) override {}
  void acknowledge() override { inner_->acknowledge(); }
  bool next_completion(Completion& /*completion*/) override { return false; }
  void finish() override;
  uint64_t silent_ms() const override { return inner_->silent_ms(); }
  uint64_t unconfirmed_bytes() const override { return inner_->unconfirmed_bytes(); }
  int descriptor() const override { return inner_->descriptor(); }
  const std::string& address() const override { return inner_->address(); }

 private:
  struct Callbacks;  ///< of OpenSSL
  friend class TlsContext;

  TlsStream(std::shared_ptr<TlsContext> context, std::unique_ptr<Stream> inner, const TlsOptions& options);
  ssize_t reason(int result);

  std::shared_ptr<TlsContext> context_;
  std::unique_ptr<Stream> inner_;
  TlsOptions options_;
  ssl_st* ssl_ = nullptr;
  int error_ = 0;             ///< errno of the last thing that `inner_` refused
  ssize_t read_failure_ = 0;  ///< to be told by the next read
  bool ended_ = false;        ///< `inner_` has nothing more to read
  uint32_t records_ = 0;
  size_t unfinished_bytes_ = 0;  ///< of the record that the network has not taken all of
  std::vector<std::byte> gathered_;
};

}  // namespace tutti::tcp
