#include "transports/tcp/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace tutti::tcp {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
/// Several records at once.
constexpr size_t kReadBytes = 4 * (kRecordBytes + 256);
/// The key identifies the peer. The name only has to be equal.
constexpr std::string_view kIdentity = "tutti";
/// One suite, so nothing is negotiated. The key is bound to its hash.
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteNumber[] = {0x13, 0x01};

std::string openssl_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "the connection broke" : text;
}

class Cursor {
 public:
  Cursor(const iovec* pieces, size_t count) : pieces_(pieces), end_(pieces + count) {}

  /// The next `most` bytes or fewer: in their place, or copied to `gathered`.
  std::pair<const std::byte*, size_t> next(size_t most, std::vector<std::byte>& gathered) {
    while (pieces_ != end_ && done_ == pieces_->iov_len) step();
    if (pieces_ == end_) return {nullptr, 0};
    const std::byte* start = static_cast<const std::byte*>(pieces_->iov_base) + done_;
    const bool is_last = pieces_ + 1 == end_;
    if (is_last || pieces_->iov_len - done_ >= most) {
      const size_t bytes = std::min(most, pieces_->iov_len - done_);
      done_ += bytes;
      return {start, bytes};
    }
    size_t bytes = 0;
    for (; pieces_ != end_ && bytes < most; step()) {
      const size_t part = std::min(most - bytes, pieces_->iov_len - done_);
      std::memcpy(gathered.data() + bytes, static_cast<const std::byte*>(pieces_->iov_base) + done_, part);
      bytes += part;
      done_ += part;
      if (done_ < pieces_->iov_len) break;
    }
    return {gathered.data(), bytes};
  }

 private:
  void step() {
    ++pieces_;
    done_ = 0;
  }
  const iovec* pieces_;
  const iovec* end_;
  size_t done_ = 0;
};

}  // namespace

struct TlsStream::Callbacks {
  static TlsStream* stream(BIO* bio) { return static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int result(BIO* bio, ssize_t done, void (*set_retry)(BIO*)) {
    if (done >= 0) return static_cast<int>(done);
    TlsStream* self = stream(bio);
    self->error_ = static_cast<int>(-done);
    if (self->error_ == EAGAIN || self->error_ == EINTR || self->error_ == ENOBUFS) set_retry(bio);
    return -1;
  }

  static int write(BIO* bio, const char* data, int bytes) {
    BIO_clear_retry_flags(bio);
    const iovec piece{const_cast<char*>(data), static_cast<size_t>(bytes)};
    const ssize_t done = stream(bio)->inner_->write(&piece, 1, false);
    if (done > 0) stream(bio)->encrypted_bytes_ += static_cast<uint64_t>(done);
    return result(bio, done, [](BIO* full) { BIO_set_retry_write(full); });
  }

  static int read(BIO* bio, char* data, int bytes) {
    BIO_clear_retry_flags(bio);
    const iovec piece{data, static_cast<size_t>(bytes)};
    const ssize_t done = stream(bio)->inner_->read(&piece, 1);
    stream(bio)->ended_ = done == 0;
    return result(bio, done, [](BIO* empty) { BIO_set_retry_read(empty); });
  }

  static long control(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
    if (command == BIO_CTRL_EOF) return stream(bio)->ended_ ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  /// The session for the key. OpenSSL takes ownership.
  static SSL_SESSION* session(SSL* ssl) {
    const TlsStream* self = static_cast<TlsStream*>(SSL_get_app_data(ssl));
    SSL_SESSION* session = SSL_SESSION_new();
    const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, kSuiteNumber);
    const auto* key = reinterpret_cast<const unsigned char*>(self->options_.key.data());
    if (session != nullptr && suite != nullptr &&
        SSL_SESSION_set1_master_key(session, key, self->options_.key.size()) == 1 &&
        SSL_SESSION_set_cipher(session, suite) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
      return session;
    }
    SSL_SESSION_free(session);
    return nullptr;
  }

  static int offer_key(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity,
                       size_t* identity_bytes, SSL_SESSION** offered) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *identity_bytes = kIdentity.size();
    *offered = session(ssl);
    return *offered != nullptr ? 1 : 0;
  }

  static int find_key(SSL* ssl, const unsigned char* identity, size_t identity_bytes, SSL_SESSION** found) {
    const bool is_ours =
        std::string_view(reinterpret_cast<const char*>(identity), identity_bytes) == kIdentity;
    *found = is_ours ? session(ssl) : nullptr;
    return is_ours && *found == nullptr ? 0 : 1;
  }
};

Result<std::shared_ptr<TlsContext>> TlsContext::create() {
  std::shared_ptr<TlsContext> context(new TlsContext);
  // No type number of its own: OpenSSL has 127 per process.
  context->method_ = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tutti stream");
  context->context_ = SSL_CTX_new(TLS_method());
  BIO_METHOD* method = context->method_;
  SSL_CTX* ssl = context->context_;
  const bool is_made = method != nullptr && ssl != nullptr &&
                       BIO_meth_set_write(method, TlsStream::Callbacks::write) == 1 &&
                       BIO_meth_set_read(method, TlsStream::Callbacks::read) == 1 &&
                       BIO_meth_set_ctrl(method, TlsStream::Callbacks::control) == 1 &&
                       SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) == 1 &&
                       SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) == 1 &&
                       SSL_CTX_set_ciphersuites(ssl, kSuite) == 1 && SSL_CTX_set_num_tickets(ssl, 0) == 1;
  if (!is_made) return Status(Code::kSystemError, "OpenSSL offers no TLS 1.3: " + openssl_reason());
  SSL_CTX_set_psk_use_session_callback(ssl, TlsStream::Callbacks::offer_key);
  SSL_CTX_set_psk_find_session_callback(ssl, TlsStream::Callbacks::find_key);
  SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(ssl, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Frames carry their lengths, so a forged end of the stream cannot hide a loss.
  SSL_CTX_set_options(ssl, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_read_ahead(ssl, 1);
  SSL_CTX_set_default_read_buffer_len(ssl, kReadBytes);
  return context;
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
  BIO_meth_free(method_);
}

TlsStream::TlsStream(std::shared_ptr<TlsContext> context, std::unique_ptr<Stream> inner,
                     const TlsOptions& options)
    : context_(std::move(context)), inner_(std::move(inner)), options_(options), gathered_(kRecordBytes) {}

Result<std::unique_ptr<TlsStream>> TlsStream::open(std::shared_ptr<TlsContext> context,
                                                   std::unique_ptr<Stream> inner, const TlsOptions& options) {
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(context), std::move(inner), options));
  stream->ssl_ = SSL_new(stream->context_->context_);
  BIO* bio = BIO_new(stream->context_->method_);
  if (stream->ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return Status(Code::kOutOfMemory, "no memory for a TLS connection");
  }
  BIO_set_data(bio, stream.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(stream->ssl_, bio, bio);
  SSL_set_app_data(stream->ssl_, stream.get());
  if (options.is_client) {
    // Refuse a listener that shows a certificate instead of the key.
    SSL_set_verify(stream->ssl_, SSL_VERIFY_PEER, nullptr);
    SSL_set_connect_state(stream->ssl_);
  } else {
    SSL_set_accept_state(stream->ssl_);
  }
  return stream;
}

TlsStream::~TlsStream() {
  SSL_free(ssl_);
}

Result<bool> TlsStream::shake_hands() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1 && SSL_session_reused(ssl_) == 1) return true;
  if (result != 1) {
    const int error = SSL_get_error(ssl_, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return false;
  }
  return Status(Code::kPeerLost, format("the TLS handshake with %s failed: %s", address().c_str(),
                                        result == 1 ? "it does not know the key" : openssl_reason().c_str()));
}

short TlsStream::awaited_events() const {
  return SSL_want_write(ssl_) ? POLLOUT : POLLIN;
}

/// Turns a failed call into a result of Stream.
ssize_t TlsStream::reason(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: return error_ != 0 ? -error_ : -ECONNRESET;
    default: return -EBADMSG;
  }
}

ssize_t TlsStream::write(const iovec* pieces, size_t count, bool /*without_copy*/) {
  Cursor cursor(pieces, count);
  size_t taken = 0;
  for (;;) {
    const bool goes_on = unfinished_bytes_ > 0;
    const auto [data, bytes] = cursor.next(goes_on ? unfinished_bytes_ : kRecordBytes, gathered_);
    if (bytes == 0) {
      mark(taken);
      return static_cast<ssize_t>(taken);
    }
    if (!goes_on && ++records_ > options_.records_a_key) {
      SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
      records_ = 1;
    }
    ERR_clear_error();
    error_ = 0;
    size_t written = 0;
    const int result = SSL_write_ex(ssl_, data, bytes, &written);
    if (result != 1) {
      const ssize_t why = reason(result);
      if (why == -EAGAIN) unfinished_bytes_ = bytes;
      mark(taken);
      if (taken > 0) return static_cast<ssize_t>(taken);
      return why == 0 ? -EPIPE : why;
    }
    unfinished_bytes_ = 0;
    taken += written;
  }
}

/// So many more bytes have been written.
void TlsStream::mark(uint64_t taken) {
  constexpr size_t kMarksMost = 256;
  if (taken == 0) return;
  plain_bytes_ += taken;
  if (marks_.size() == kMarksMost) marks_.pop_back();
  marks_.push_back({.encrypted = encrypted_bytes_, .plain = plain_bytes_});
}

uint64_t TlsStream::confirmed_bytes() {
  const uint64_t encrypted = inner_->confirmed_bytes();
  size_t count = 0;
  while (count < marks_.size() && marks_[count].encrypted <= encrypted) ++count;
  if (count > 0) confirmed_bytes_ = marks_[count - 1].plain;
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<ptrdiff_t>(count));
  return confirmed_bytes_;
}

ssize_t TlsStream::read(const iovec* pieces, size_t count) {
  if (read_failure_ != 0) return read_failure_;
  size_t came = 0;
  for (const iovec* piece = pieces; piece != pieces + count; ++piece) {
    for (size_t done = 0; done < piece->iov_len;) {
      ERR_clear_error();
      error_ = 0;
      size_t got = 0;
      const int result =
          SSL_read_ex(ssl_, static_cast<std::byte*>(piece->iov_base) + done, piece->iov_len - done, &got);
      if (result != 1) {
        const ssize_t why = reason(result);
        if (came == 0) return why;
        // Report the failure with the next read: OpenSSL reports it only once.
        if (why != -EAGAIN && why != 0) read_failure_ = why;
        return static_cast<ssize_t>(came);
      }
      done += got;
      came += got;
    }
  }
  return static_cast<ssize_t>(came);
}

void TlsStream::finish() {
  ERR_clear_error();
  SSL_shutdown(ssl_);
  inner_->finish();
}

}  // namespace tutti::tcp
