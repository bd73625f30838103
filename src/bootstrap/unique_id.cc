#include "bootstrap/unique_id.h"

#include <cstring>

#include "core/random.h"
#include "core/version.h"

namespace tutti {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'U', 'T', 'T', 'I', '-', 'I', 'D'};

}  // namespace

Result<UniqueId> make_unique_id(const std::vector<Endpoint>& endpoints) {
  UniqueId id;
  id.magic = kMagic;
  id.version = kVersionCode;
  TUTTI_TRY(fill_random(id.key));
  TUTTI_TRY(fill_random(id.nonce));
  id.endpoints = pack_endpoints(endpoints);
  return id;
}

Status check_unique_id(const UniqueId& id) {
  if (id.magic != kMagic || id.reserved != 0 || !unpack_endpoints(id.endpoints)) {
    return {Code::kInvalidArgument, "argument id is not a unique id made by tutti_get_unique_id"};
  }
  if (id.version != kVersionCode) {
    return {Code::kVersionMismatch,
            format("the unique id was made by tutti version %u, this is version %u: run "
                   "one version on all ranks",
                   id.version, kVersionCode)};
  }
  return Status::ok();
}

Credentials credentials_of(const UniqueId& id) {
  return {id.key, id.nonce};
}

uint16_t epoch_of(const UniqueId& id) {
  uint16_t epoch;
  static_assert(sizeof(epoch) <= sizeof(id.nonce));
  std::memcpy(&epoch, id.nonce.data(), sizeof(epoch));
  return epoch;
}

std::string local_name_of(const UniqueId& id) {
  std::string name = "tutti-";
  for (const std::byte byte : id.nonce) name += format("%02x", std::to_integer<unsigned>(byte));
  return name;
}

}  // namespace tutti
