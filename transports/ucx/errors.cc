#include "transports/ucx/errors.h"

namespace tutti::ucx {
namespace {

/// What the code means for a connection between ranks, and what to try. Null: nothing to add to UCX's words.
const char* words_of(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_CONNECTION_RESET: return "the peer's process has ended, or it has closed the connection";
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
      return "the peer's host does not answer; check that both hosts reach each other over the devices that "
             "UCX uses (ucx_info -d; UCX_NET_DEVICES chooses them), and that firewalls let it pass";
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NO_DEVICE:
      return "UCX has no transport that both ranks share and that reports lost peers; compare UCX_TLS, "
             "UCX_NET_DEVICES and the output of ucx_info -d on both hosts";
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
      return "the peer has not taken the connection; it has ended, or a firewall is in between";
    case UCS_ERR_IO_ERROR: return "a device has failed; see the kernel's log and UCX_LOG_LEVEL=info";
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_EXCEEDS_LIMIT:
      return "memory or the limit of locked memory is used up; see ulimit -l and /dev/shm";
    case UCS_ERR_CANCELED: return "the connection was closed meanwhile";
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return "the peer's address or an argument was refused; both ranks need the same major version of UCX";
    case UCS_ERR_MESSAGE_TRUNCATED: return "a message was longer than its frame says";
    case UCS_ERR_UNSUPPORTED:
      return "UCX's transports on this host lack what tutti needs; UCX_TLS=all lets UCX use all of them";
    default: return nullptr;
  }
}

}  // namespace

std::string describe(const Ucp& ucp, ucs_status_t status) {
  const char* const name = ucp.status_string(status);
  const char* const words = words_of(status);
  return words == nullptr ? format("UCX: %s (status %d)", name, static_cast<int>(status))
                          : format("UCX: %s: %s", name, words);
}

Status ucx_error(const Ucp& ucp, const char* doing, ucs_status_t status) {
  const Code code = status == UCS_ERR_NO_MEMORY ? Code::kOutOfMemory : Code::kSystemError;
  return {code, std::string(doing) + ": " + describe(ucp, status)};
}

}  // namespace tutti::ucx
