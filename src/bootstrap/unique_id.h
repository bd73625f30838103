// UniqueId: the 128 bytes by which ranks find each other: where to meet, and the key that proves that they
// may.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "net/crypto.h"
#include "net/endpoint.h"

namespace tutti {

struct UniqueId {
  std::array<char, 8> magic{};
  uint32_t version = 0;  ///< kVersionCode of the maker
  uint32_t reserved = 0;
  Key key{};
  BootstrapTag nonce{};
  PackedEndpoints endpoints{};  ///< of the rendezvous; none: it serves this host only
};
static_assert(sizeof(UniqueId) == 128);

/// A new id with a random key. Errors: kSystemError.
Result<UniqueId> make_unique_id(const std::vector<Endpoint>& endpoints);

/// Errors: kInvalidArgument: not an id; kVersionMismatch: of another version.
Status check_unique_id(const UniqueId& id);

/// What a rank that holds the id proves itself with.
Credentials credentials_of(const UniqueId& id);

/// What the frames of the communicator that is made with the id carry: no other's are taken for them.
uint16_t epoch_of(const UniqueId& id);

/// Name of the rendezvous's Unix socket on its host, in the abstract name space.
std::string local_name_of(const UniqueId& id);

}  // namespace tutti
