// UniqueId: 128 bytes by which ranks find each other: the rendezvous, and the key that proves membership.
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
  PackedEndpoints endpoints{};  ///< of the rendezvous; none: for this host only
};
static_assert(sizeof(UniqueId) == 128);

/// A new id with a random key. Errors: kSystemError.
Result<UniqueId> make_unique_id(const std::vector<Endpoint>& endpoints);

/// Errors: kInvalidArgument (not an id), kVersionMismatch.
Status check_unique_id(const UniqueId& id);

Credentials credentials_of(const UniqueId& id);

/// All frames of the id's communicator carry this number. Frames with another number are refused.
uint16_t epoch_of(const UniqueId& id);

/// The name of the rendezvous's Unix socket, in the abstract name space.
std::string local_name_of(const UniqueId& id);

}  // namespace tutti
