// TlsStream: TLS 1.3 over another stream, by OpenSSL. Both ends know a key (an external PSK, RFC 8446 section
// 2.2), so there are no certificates. Fresh Diffie-Hellman keys for each connection: knowing the key later
// does not open recorded traffic.
//
// A record's bytes count as written when the network has taken the whole record. Until then the caller offers
// them again, as after any short write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "transports/tcp/stream.h"

// OpenSSL's types; its header is large.
struct bio_method_st;
struct bio_st;
struct ssl_ctx_st;
struct ssl_st;

namespace tutti::tcp {

struct TlsOptions {
  std::array<std::byte, 32> key{};  ///< known to both ends only
  bool is_client = false;           ///< exactly one of the two ends
  /// After so many records the next key is derived. AES-GCM allows 2^24.5 full records under one key (RFC
  /// 8446 section 5.5).
  uint32_t records_a_key = 1u << 23;
};

/// Shared by connections. One thread at a time.
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
  /// Takes over `inner`, which must be unused. Errors: kOutOfMemory.
  static Result<std::unique_ptr<TlsStream>> open(std::shared_ptr<TlsContext> context,
                                                 std::unique_ptr<Stream> inner, const TlsOptions& options);
  ~TlsStream() override;

  /// Continues the handshake without blocking. True when it is done: only then read and write work. Errors:
  /// kPeerLost (the peer does not know the key, or the connection broke).
  Result<bool> shake_hands() override;
  /// During the handshake: what poll(2) should wait for.
  short awaited_events() const override;

  ssize_t write(const iovec* pieces, size_t count, bool without_copy) override;
  ssize_t read(const iovec* pieces, size_t count) override;
  bool can_write_in_place() const override { return false; }
  uint64_t burst_bytes() const override { return 0; }  // records have their own sizes
  /// Holds nothing: the layers above cannot tell when to acknowledge a partial record.
  void hold_small(bool /*on*/) override {}
  void acknowledge() override { inner_->acknowledge(); }
  bool next_completion(Completion& /*completion*/) override { return false; }
  void finish() override;
  void close() override { inner_->close(); }
  void forget() override { inner_->forget(); }
  uint64_t silent_ms() const override { return inner_->silent_ms(); }
  uint64_t unconfirmed_bytes() const override { return inner_->unconfirmed_bytes(); }
  uint64_t confirmed_bytes() override;
  bool is_loopback() const override { return inner_->is_loopback(); }
  int descriptor() const override { return inner_->descriptor(); }
  const std::string& address() const override { return inner_->address(); }
  const std::string& own_address() const override { return inner_->own_address(); }

 private:
  struct Callbacks;
  friend class TlsContext;

  TlsStream(std::shared_ptr<TlsContext> context, std::unique_ptr<Stream> inner, const TlsOptions& options);
  ssize_t reason(int result);
  void mark(uint64_t taken);

  std::shared_ptr<TlsContext> context_;
  std::unique_ptr<Stream> inner_;
  TlsOptions options_;
  ssl_st* ssl_ = nullptr;
  int error_ = 0;             ///< errno of `inner_`
  ssize_t read_failure_ = 0;  ///< for the next read to report
  bool ended_ = false;
  uint32_t records_ = 0;
  size_t unfinished_bytes_ = 0;  ///< of a partly sent record
  /// All records of the first `plain` bytes lie in the first `encrypted` bytes.
  struct Mark {
    uint64_t encrypted = 0;
    uint64_t plain = 0;
  };
  std::vector<Mark> marks_;       ///< later than what is known to be confirmed
  uint64_t encrypted_bytes_ = 0;  ///< written to `inner_`
  uint64_t plain_bytes_ = 0;
  uint64_t confirmed_bytes_ = 0;
  std::vector<std::byte> gathered_;
};

}  // namespace tutti::tcp
