// Share: ways to bring the unique id from the rank that made it to the others.
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

/// Rank 0 passes the id, the others receive it.
using IdBytes = std::span<std::byte, sizeof(UniqueId)>;

/// A rank in one of its job's shares. Ranks that share several ids in a row must not mix them up: rank 0
/// serves a round only to ranks of that round.
struct Sharer {
  uint32_t rank = 0;
  uint32_t rank_count = 1;
  uint32_t round = 0;  ///< this process's shares before this one; equal on all ranks
};

/// The caller's store, as frameworks have. Called only from the sharing thread.
struct KeyValueStore {
  std::function<Status(const std::string& key, std::span<const std::byte> value)> set;
  /// Blocks until the key exists or the deadline passes.
  std::function<Result<std::vector<std::byte>>(const std::string& key, uint64_t deadline_ns)> get;
};

/// Rank 0 sets `key`, the others read it. Use a key once. Errors: of the store; kMismatch for other content.
Status share_by_store(const KeyValueStore& store, const std::string& key, uint32_t rank, IdBytes id,
                      uint64_t deadline_ns);

/// Rank 0 creates the file `path` exclusively. The others wait for it and check that its id is served. Rank 0
/// removes it after all have joined (forget_file). Errors: kInvalidUsage (a file of an earlier run, or no id
/// in it), kTimeout, kSystemError.
Status share_by_file(const std::string& path, uint32_t rank, IdBytes id, uint64_t deadline_ns);
void forget_file(const std::string& path);
/// The file of a round where TUTTI_ID_FILE is `path`: `path`, then "`path`-2" and so on.
std::string id_file_of_round(const std::string& path, uint32_t round);

/// Uses a bootstrap at "tutti://host:port", where rank 0 listens, with the key of `config`. Errors: as
/// bootstrap_address_of_url and BootstrapClient.
Status share_by_url(const std::string& url, uint32_t rank, uint32_t rank_count, const Config& config,
                    IdBytes id, uint64_t deadline_ns);

/// Uses a Unix socket, which leaves nothing behind. For ranks of one host and user that know a name unique to
/// the job. Errors: kInvalidUsage (the name is taken), kTimeout, kSystemError.
Status share_on_host(const std::string& name, const Sharer& sharer, IdBytes id, uint64_t deadline_ns);

/// Chooses the way: the file of the round, if TUTTI_ID_FILE is set; the launcher's process manager; a socket,
/// on one host; else a bootstrap at the launcher's address, with the key of `config`. All ranks call it, with
/// the same `round`. Errors: of the way; kInvalidUsage if there is none, with what to set.
Status share_by_launcher(const LaunchContext& context, uint32_t round, const Environment& environment,
                         const Config& config, IdBytes id, uint64_t deadline_ns);

}  // namespace tutti
