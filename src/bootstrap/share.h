// Share: how the unique id that one rank has made reaches the others: by a store that the caller gives, a
// file that all can reach, the launcher's process manager, a socket of this host, or a bootstrap at a known
// address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/launcher.h"
#include "bootstrap/unique_id.h"
#include "core/config.h"
#include "core/result.h"

namespace tutti {

/// The bytes of an id, whole: written on rank 0's behalf, read by the others.
using IdBytes = std::span<std::byte, sizeof(UniqueId)>;

/// A key-value store of the caller: what frameworks have. Both may be called from the thread that shares
/// only.
struct KeyValueStore {
  std::function<Status(const std::string& key, std::span<const std::byte> value)> set;
  /// Blocks until the key is there, at most until the deadline.
  std::function<Result<std::vector<std::byte>>(const std::string& key, uint64_t deadline_ns)> get;
};

/// Rank 0 sets `key` to its id, the others read it from there. A key serves once. Errors: of the store;
/// kMismatch: the key holds something else.
Status share_by_store(const KeyValueStore& store, const std::string& key, uint32_t rank, IdBytes id,
                      uint64_t deadline_ns);

/// Rank 0 creates the file `path` exclusively, the others wait for it and look whether the id that it holds
/// is served; rank 0 removes it (forget_file) when all have joined. Errors: kInvalidUsage (the file is of an
/// earlier run, or holds something else), kTimeout, kSystemError.
Status share_by_file(const std::string& path, uint32_t rank, IdBytes id, uint64_t deadline_ns);
void forget_file(const std::string& path);

/// A bootstrap at "tutti://host:port", where rank 0 listens, with the key of `config`. Errors: as
/// bootstrap_address_of_url and NetworkBootstrap.
Status share_by_url(const std::string& url, uint32_t rank, uint32_t rank_count, const Config& config,
                    IdBytes id, uint64_t deadline_ns);

/// Ranks of one host and one user, that know a name which is theirs alone: rank 0 hands its id over a Unix
/// socket, which leaves nothing behind. Errors: kInvalidUsage (the name is taken), kTimeout, kSystemError.
Status share_on_host(const std::string& name, uint32_t rank, uint32_t rank_count, IdBytes id,
                     uint64_t deadline_ns);

/// The way that fits the launcher: the file TUTTI_ID_FILE, where that is set; its process manager; one host:
/// a socket named after the job; else a bootstrap at the address it gives, with the key of `config`.
/// Collective. Errors: of the way; kInvalidUsage: none is left, and what to set.
Status share_by_launcher(const LaunchContext& context, const Environment& environment, const Config& config,
                         IdBytes id, uint64_t deadline_ns);

}  // namespace tutti
