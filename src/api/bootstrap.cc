// Exported functions for the bootstrap: how a unique id reaches the ranks, and which rank this process is.
#include <cstring>
#include <string>
#include <string_view>

#include "api/create.h"
#include "api/handle.h"
#include "bootstrap/launcher.h"
#include "bootstrap/share.h"
#include "core/clock.h"

using namespace tutti;  // NOLINT: this file is the border between the C names and ours

namespace {

constexpr std::string_view kFile = "file:";
constexpr std::string_view kUrl = "tutti://";
constexpr std::string_view kLauncher = "launcher";

IdBytes bytes_of(tutti_unique_id_t* id) {
  return IdBytes(reinterpret_cast<std::byte*>(id->bytes), sizeof(id->bytes));
}

uint64_t deadline_of(const Config& config, uint64_t timeout_ms) {
  return deadline_after_ms(timeout_ms > 0 ? timeout_ms : config.setup_timeout_ms);
}

Status check_place(int rank, int rank_count) {
  if (rank_count < 1 || rank < 0 || rank >= rank_count) {
    return {Code::kInvalidArgument,
            format("argument rank is %d of %d: it must be at least 0 and less than the number of ranks", rank,
                   rank_count)};
  }
  return Status::ok();
}

bool is_unique_id(const tutti_unique_id_t& id) {
  UniqueId own;
  std::memcpy(static_cast<void*>(&own), id.bytes, sizeof(own));
  return check_unique_id(own).is_ok();
}

/// Checks the id that rank 0 shares.
Status check_own_id(const tutti_unique_id_t& id) {
  if (is_unique_id(id)) return Status::ok();
  return {Code::kInvalidArgument,
          "argument id of rank 0 holds no unique id: call tutti_get_unique_id on rank 0 first"};
}

/// Shares the id by way of the launcher that started the ranks.
Status share_by_its_launcher(Process& process, int rank, int rank_count, IdBytes id, uint64_t deadline_ns) {
  const auto place = find_launch_context(process_environment());
  TUTTI_TRY(place.status());
  if (!*place) {
    if (rank_count == 1) return Status::ok();
    return {Code::kInvalidUsage, format("argument where is \"launcher\", but no launcher has started this "
                                        "process, so it is alone and not "
                                        "one of %d ranks",
                                        rank_count)};
  }
  if ((*place)->rank != static_cast<uint32_t>(rank) ||
      (*place)->rank_count != static_cast<uint32_t>(rank_count)) {
    return {Code::kInvalidArgument,
            format("argument rank is %d of %d; %s has started this process as rank %u of %u", rank,
                   rank_count, (*place)->launcher.c_str(), (*place)->rank, (*place)->rank_count)};
  }
  TUTTI_TRY(
      share_by_launcher(**place, process.shares(), process_environment(), process.config(), id, deadline_ns));
  process.count_share();
  return Status::ok();
}

/// Removes the file of each share of this process.
Status forget_files_of_launcher() {
  const char* file = process_environment()("TUTTI_ID_FILE");
  if (file == nullptr || *file == '\0') return Status::ok();
  const auto process = bootstrap_process();
  TUTTI_TRY(process.status());
  // The last one may be of a share that failed.
  for (uint32_t round = 0; round <= (*process)->shares(); ++round) forget_file(id_file_of_round(file, round));
  return Status::ok();
}

Status share(tutti_unique_id_t* id, const char* where, int rank, int rank_count, uint64_t timeout_ms) {
  if (id == nullptr) return null_argument("id");
  if (where == nullptr) return null_argument("where");
  TUTTI_TRY(check_place(rank, rank_count));
  if (rank == 0) TUTTI_TRY(check_own_id(*id));
  auto process = bootstrap_process();
  TUTTI_TRY(process.status());
  const Config& config = (*process)->config();
  const uint64_t deadline_ns = deadline_of(config, timeout_ms);
  const std::string_view way = where;
  const auto own = static_cast<uint32_t>(rank);
  if (way == kLauncher) return share_by_its_launcher(**process, rank, rank_count, bytes_of(id), deadline_ns);
  if (way == kFile) return {Code::kInvalidArgument, "argument where is \"file:\", without a path"};
  if (way.starts_with(kFile)) {
    return share_by_file(std::string(way.substr(kFile.size())), own, bytes_of(id), deadline_ns);
  }
  if (way.starts_with(kUrl)) {
    // If the key is missing because the settings were refused, that refusal is the error.
    if (config.key.empty()) TUTTI_TRY(read_config(process_environment()).status());
    return share_by_url(std::string(way), own, static_cast<uint32_t>(rank_count), config, bytes_of(id),
                        deadline_ns);
  }
  return {Code::kInvalidArgument,
          format("argument where is \"%s\": it must be launcher, tutti://HOST:PORT or file:PATH", where)};
}

KeyValueStore adapt(const tutti_store_t& store) {
  KeyValueStore result;
  result.set = [&store](const std::string& key, std::span<const std::byte> value) -> Status {
    const int error = store.set(store.context, key.c_str(), value.data(), value.size());
    if (error == 0) return Status::ok();
    return {Code::kSystemError, format("the store's set(\"%s\") returned %d", key.c_str(), error)};
  };
  result.get = [&store](const std::string& key, uint64_t deadline_ns) -> Result<std::vector<std::byte>> {
    std::vector<std::byte> value(sizeof(UniqueId));
    const uint64_t now = now_ns();
    const uint64_t left_ms = deadline_ns > now ? (deadline_ns - now) / 1'000'000 + 1 : 0;
    const int error = store.get(store.context, key.c_str(), value.data(), value.size(), left_ms);
    if (error == 0) return value;
    return Status(Code::kSystemError, format("the store's get(\"%s\") returned %d", key.c_str(), error));
  };
  return result;
}

Status share_by(const tutti_store_t* store, tutti_unique_id_t* id, const char* key, int rank,
                uint64_t timeout_ms) {
  if (id == nullptr) return null_argument("id");
  if (store == nullptr) return null_argument("store");
  if (store->set == nullptr || store->get == nullptr) return null_argument("store->set or store->get");
  if (key == nullptr) return null_argument("key");
  if (rank < 0) return {Code::kInvalidArgument, format("argument rank is %d", rank)};
  if (rank == 0) TUTTI_TRY(check_own_id(*id));
  auto process = bootstrap_process();
  TUTTI_TRY(process.status());
  TUTTI_TRY(share_by_store(adapt(*store), key, static_cast<uint32_t>(rank), bytes_of(id),
                           deadline_of((*process)->config(), timeout_ms)));
  if (is_unique_id(*id)) return Status::ok();
  return {Code::kMismatch, format("the key %s of the store holds no unique id", key)};
}

}  // namespace

extern "C" {

TUTTI_API tutti_result_t tutti_share_unique_id(tutti_unique_id_t* id, const char* where, int rank,
                                               int rank_count, uint64_t timeout_ms) noexcept {
  return guarded([&] { return share(id, where, rank, rank_count, timeout_ms); });
}

TUTTI_API tutti_result_t tutti_share_unique_id_by_store(tutti_unique_id_t* id, const tutti_store_t* store,
                                                        const char* key, int rank,
                                                        uint64_t timeout_ms) noexcept {
  return guarded([&] { return share_by(store, id, key, rank, timeout_ms); });
}

TUTTI_API tutti_result_t tutti_forget_file(const char* where, int rank) noexcept {
  return guarded([&]() -> Status {
    if (where == nullptr) return null_argument("where");
    const std::string_view way = where;
    if (way != kLauncher && !way.starts_with(kFile)) {
      return {Code::kInvalidArgument,
              format("argument where is \"%s\": it must be launcher or file:PATH", where)};
    }
    if (rank != 0) return Status::ok();
    if (way == kLauncher) return forget_files_of_launcher();
    forget_file(std::string(way.substr(kFile.size())));
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_launcher_context(int* rank, int* rank_count, int* local_rank,
                                                int* local_count) noexcept {
  return guarded([&]() -> Status {
    const auto place = find_launch_context(process_environment());
    TUTTI_TRY(place.status());
    LaunchContext alone;
    alone.local_rank = 0;
    alone.local_count = 1;
    const LaunchContext found = place->value_or(alone);
    const auto put = [](int* to, std::optional<uint32_t> value) {
      if (to != nullptr) *to = value ? static_cast<int>(*value) : -1;
    };
    put(rank, found.rank);
    put(rank_count, found.rank_count);
    put(local_rank, found.local_rank);
    put(local_count, found.local_count);
    return Status::ok();
  });
}

}  // extern "C"
