// Exported functions that make a communicator from another one: split, shrink, grow.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/create.h"
#include "api/group.h"
#include "api/handle.h"
#include "api/work.h"
#include "bootstrap/bootstrap.h"
#include "core/clock.h"

using namespace tutti;  // NOLINT: this file is the border between the C names and ours

namespace {

/// Gathers one item of fixed size from every rank, through the communicator itself.
template <class Item>
Result<std::vector<Item>> gather_items(tutti_comm* handle, const Item& mine, uint64_t timeout_ms) {
  Communicator& comm = *handle->comm;
  std::vector<Item> all(comm.rank_count());
  Call call;
  call.shape = {.collective = Collective::kAllGather,
                .type = DataType::kUint8,
                .purpose = CallPurpose::kSplit,
                .count = sizeof(Item)};
  call.send = &mine;
  call.recv = all.data();
  handle->repeat.valid = false;
  TUTTI_TRY(take_turn(handle, timeout_ms).run(call));
  return all;
}

/// Runs the steps up to an exchange, and the exchange. The other ranks wait in the exchange, so a failure
/// here fails all ranks.
template <class Body>
Status up_to_exchange(Communicator& comm, Body&& body) {
  const Status status = contained(body);
  if (!status && !comm.has_error()) comm.fail_all(status);
  return status;
}

/// Ends a communicator that the caller will not get. Ranks that already have it see the abort, and do not
/// wait for this rank in a shrink of it.
void abandon_handle(tutti_comm* handle) {
  if (Communicator* const comm = handle->comm.get(); comm != nullptr) {
    const Status told = contained([&]() -> Status {
      comm->fail_all(
          {Code::kAborted, format("rank %u has given up this communicator, because some ranks do not have it",
                                  comm->rank())});
      return Status::ok();
    });
    if (!told) comm->abort();
    static_cast<void>(comm->leave());
  }
  recycle_handle(handle);
}

struct SplitItem {
  int32_t color = 0;
  int32_t key = 0;
};

/// The unique id that the first rank of a color made, or its error.
struct SplitId {
  int32_t code = 0;
  UniqueId id;
};

std::vector<uint32_t> members_of(int color, const std::vector<SplitItem>& items) {
  std::vector<uint32_t> members;
  for (uint32_t rank = 0; rank < items.size(); ++rank) {
    if (items[rank].color == color) members.push_back(rank);
  }
  std::sort(members.begin(), members.end(),
            [&](uint32_t a, uint32_t b) { return std::pair(items[a].key, a) < std::pair(items[b].key, b); });
  return members;
}

/// Two exchanges: first each rank's color and key, then the ids. Only the first rank of each color makes an
/// id.
Status split_comm(tutti_comm* handle, int color, int key, tutti_comm_t** result,
                  const tutti_config_t* config) {
  if (result == nullptr) return null_argument("new_comm");
  *result = nullptr;
  const HandleRef hold(handle);
  if (!hold) return no_handle(handle);
  TUTTI_TRY(check_ready(handle));
  if (color < TUTTI_NO_COLOR) {
    return {Code::kInvalidArgument,
            format("argument color is %d: it must be TUTTI_NO_COLOR or at least 0", color)};
  }
  if (in_group()) return {Code::kInvalidUsage, "tutti_comm_split cannot be called inside a group"};
  Communicator& comm = *handle->comm;
  TUTTI_TRY(check_comm_config(config, comm.process().config()));
  auto items = gather_items(handle, SplitItem{color, key}, timeout_of(handle));
  TUTTI_TRY(items.status());
  std::vector<uint32_t> members;
  std::vector<SplitId> ids;
  TUTTI_TRY(up_to_exchange(comm, [&]() -> Status {
    members = members_of(color, *items);
    SplitId mine;
    if (color != TUTTI_NO_COLOR && members[0] == comm.rank()) {
      auto id = comm.process().make_id(comm.host_count() > 1);
      mine.code = static_cast<int32_t>(id.status().code());
      if (id) mine.id = *id;
    }
    auto all = gather_items(handle, mine, timeout_of(handle));
    if (all) ids = std::move(*all);
    return all.status();
  }));
  if (color == TUTTI_NO_COLOR) return Status::ok();
  const SplitId& leader = ids[members[0]];
  if (leader.code != 0) {
    return {static_cast<Code>(leader.code),
            format("rank %u could not make the new communicator's id", members[0])};
  }
  const auto new_rank = std::find(members.begin(), members.end(), comm.rank()) - members.begin();
  const tutti_config_t inherited = inherited_config(comm);
  return create_comm(result, static_cast<int>(members.size()), leader.id, static_cast<int>(new_rank),
                     config != nullptr ? config : &inherited, handle);
}

struct Shrink {
  std::vector<bool> excluded;  ///< by rank
  CommOptions options;
  uint64_t deadline_ns = 0;
};

/// Tells the ranks in the bootstrap of the new communicator not to wait for this rank.
void decline_bootstrap(Communicator& old, const Members& members, int new_rank, const Shrink& shrink,
                       const Status& why) {
  Bootstrap::decline({.id = members.id,
                      .rank_count = static_cast<uint32_t>(members.ranks.size()),
                      .rank = static_cast<uint32_t>(new_rank),
                      .deadline_ns = shrink.deadline_ns},
                     old.process().config(), why);
}

struct Abandon {
  void operator()(tutti_comm* handle) const { abandon_handle(handle); }
};
using OwnedHandle = std::unique_ptr<tutti_comm, Abandon>;

struct Outcome {
  Status status;
  bool has_lost =
      false;  ///< a rank of the agreed list is lost; the next try agrees on a list without this rank
  bool is_agreed = false;  ///< all live ranks continue in the communicator in `held`
};

/// One try: agree on the members, then create their communicator. `held` keeps the newest ready communicator
/// until all ranks are known to have it, or a later one replaces it.
Outcome shrink_once(Communicator& old, const Shrink& shrink, OwnedHandle& held) {
  auto agreed = old.shrink().agree_on_members(shrink.excluded, shrink.deadline_ns);
  if (!agreed) return {.status = agreed.status()};
  if (!*agreed) return {.status = {}, .is_agreed = true};
  const Members& members = **agreed;
  const auto new_rank = static_cast<int>(
      std::lower_bound(members.ranks.begin(), members.ranks.end(), old.rank()) - members.ranks.begin());
  if (const Status agreeable = old.shrink().check_members(members, shrink.excluded); !agreeable) {
    if (members.contains(old.rank())) {
      old.shrink().refuse(members.id);
      decline_bootstrap(old, members, new_rank, shrink, agreeable);
    }
    return {.status = agreeable};
  }
  OwnedHandle handle(acquire_handle());
  Status created(Code::kPeerLost, "a rank was lost while the remaining ranks made their communicator");
  if (old.shrink().watch_members(&members, handle->setup_stop.get())) {
    created = create_into(handle.get(), old.process(), members.id, static_cast<int>(members.ranks.size()),
                          new_rank, shrink.options, handle->setup_stop.get());
  } else if (old.shrink().is_stopped()) {
    created = aborted_meanwhile();
    decline_bootstrap(old, members, new_rank, shrink, created);
  }
  const bool whole = old.shrink().watch_members(&members, handle->setup_stop.get());
  old.shrink().watch_members(nullptr, nullptr);
  if (!created) {
    std::string ranks;
    for (const uint32_t rank : members.ranks) add_to_list(ranks, std::to_string(rank));
    return {.status = Status(created.code(), format("the new communicator of the old ranks %s: %s",
                                                    ranks.c_str(), std::string(created.text()).c_str())),
            .has_lost = !whole};
  }
  old.shrink().hold_next(members.id);
  held = std::move(handle);
  return {};
}

/// Tries until all live ranks have the same communicator, or until a try fails without a lost rank.
Status shrink_until_whole(Communicator& old, const Shrink& shrink, tutti_comm_t** result) {
  constexpr uint64_t kReportPatienceMs = 1000;
  OwnedHandle held;
  uint64_t report_deadline_ns = 0;
  for (;;) {
    const Outcome outcome = shrink_once(old, shrink, held);
    if (outcome.is_agreed) {
      *result = held.release();
      return Status::ok();
    }
    const Code code = outcome.status.code();
    const bool is_ready = outcome.status.is_ok();
    if (!is_ready && old.shrink().is_stopped()) return aborted_meanwhile();
    if (!is_ready && (old.shrink().is_given_up() || now_ns() > shrink.deadline_ns)) return outcome.status;
    if (is_ready || outcome.has_lost) {
      report_deadline_ns = 0;
      continue;
    }
    // Another rank may already know which rank is lost.
    if (report_deadline_ns == 0) report_deadline_ns = deadline_after_ms(kReportPatienceMs);
    const bool may_be_loss = code == Code::kAborted || code == Code::kPeerLost;
    if (!may_be_loss || now_ns() > report_deadline_ns) return outcome.status;
  }
}

/// Calls of other threads, which the communicator's error has ended, may not have returned yet.
Status wait_until_alone(const tutti_comm* handle, uint64_t deadline_ns) {
  while (handle->busy.load(std::memory_order_acquire) != 0 || handle->holds.load() > 1) {
    if (handle->comm->shrink().is_stopped()) return aborted_meanwhile();
    if (now_ns() > deadline_ns) {
      return {
          Code::kTimeout,
          "another thread is in a call on the communicator: shrink with TUTTI_SHRINK_ABORT, from one thread"};
    }
    std::this_thread::yield();
  }
  wait_for_queue(handle);
  return Status::ok();
}

Status read_excluded(const Communicator& old, const int* exclude, int exclude_count,
                     std::vector<bool>& excluded) {
  excluded.assign(old.rank_count(), false);
  if (exclude_count < 0) {
    return {Code::kInvalidArgument, format("argument exclude_count is %d", exclude_count)};
  }
  if (exclude_count > 0 && exclude == nullptr) return null_argument("exclude");
  for (int i = 0; i < exclude_count; ++i) {
    if (exclude[i] < 0 || exclude[i] >= static_cast<int>(old.rank_count())) {
      return {Code::kInvalidArgument, format("argument exclude[%d] is %d: the ranks are 0 to %u", i,
                                             exclude[i], old.rank_count() - 1)};
    }
    if (exclude[i] == static_cast<int>(old.rank())) {
      return {Code::kInvalidArgument,
              format("argument exclude[%d] is this rank itself: ranks that are excluded do "
                     "not call tutti_comm_shrink",
                     i)};
    }
    excluded[static_cast<size_t>(exclude[i])] = true;
  }
  return Status::ok();
}

Status shrink_comm(tutti_comm* handle, const int* exclude, int exclude_count, int flags,
                   tutti_comm_t** result, const tutti_config_t* config) {
  if (result == nullptr) return null_argument("new_comm");
  *result = nullptr;
  const HandleRef hold(handle);
  if (!hold) return no_handle(handle);
  TUTTI_TRY(check_ready(handle));
  if (in_group()) return {Code::kInvalidUsage, "tutti_comm_shrink cannot be called inside a group"};
  if ((flags & ~TUTTI_SHRINK_ABORT) != 0) {
    return {Code::kInvalidArgument,
            format("argument flags is %d: it must be 0 or TUTTI_SHRINK_ABORT", flags)};
  }
  Communicator& old = *handle->comm;
  Shrink shrink;
  TUTTI_TRY(read_excluded(old, exclude, exclude_count, shrink.excluded));
  const tutti_config_t inherited = inherited_config(old);
  bool nonblocking = false;
  TUTTI_TRY(read_comm_config(config != nullptr ? config : &inherited, old.process().config(), shrink.options,
                             nonblocking));
  if (nonblocking) return {Code::kUnsupported, "tutti_comm_shrink blocks: config.nonblocking must be 0"};
  if ((flags & TUTTI_SHRINK_ABORT) != 0) old.abort();
  shrink.deadline_ns = deadline_after_ms(shrink.options.setup_timeout_ms);
  TUTTI_TRY(wait_until_alone(handle, shrink.deadline_ns));
  TUTTI_TRY(old.shrink().begin(shrink.deadline_ns));
  const Status status = contained([&] { return shrink_until_whole(old, shrink, result); });
  if (!status) old.shrink().give_up(status);
  return status;
}

/// One rank's part of a grow: its arguments, and the id if this rank has it.
struct GrowItem {
  int32_t has_id = 0;
  int32_t rank_count = 0;
  int32_t nonblocking = 0;
  UniqueId id;
};

/// The result of a rank's set-up of the grown communicator.
struct GrowOutcome {
  int32_t code = 0;
  std::array<char, 500> text{};
};

Status first_failure(const std::vector<GrowOutcome>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const GrowOutcome& theirs = outcomes[rank];
    if (theirs.code == 0) continue;
    return {static_cast<Code>(theirs.code), format("rank %zu: %s", rank, theirs.text.data())};
  }
  return Status::ok();
}

/// The old ranks give up the old communicator for the new one, so either all or none of them switch. A
/// joining rank sees the result in the new communicator.
Status agree_on_growth(tutti_comm* old, const Status& created, uint64_t setup_timeout_ms,
                       tutti_comm_t** result) {
  std::vector<GrowOutcome> outcomes;
  Status failed = up_to_exchange(*old->comm, [&]() -> Status {
    GrowOutcome mine{.code = static_cast<int32_t>(created.code()), .text = {}};
    created.text().copy(mine.text.data(), mine.text.size() - 1);
    // Another rank's set-up may take until its deadline.
    auto all = gather_items(old, mine, std::max(timeout_of(old), setup_timeout_ms));
    if (all) outcomes = std::move(*all);
    return all.status();
  });
  if (!created) return created;
  if (failed) failed = contained([&] { return first_failure(outcomes); });
  if (!failed) abandon_handle(std::exchange(*result, nullptr));
  return failed;
}

/// The ranks of a communicator learn the id from the ranks that have it. Each rank keeps its number.
Status grow_comm(tutti_comm* handle, int rank_count, const tutti_unique_id_t* id, int rank,
                 tutti_comm_t** result, const tutti_config_t* config) {
  if (result == nullptr) return null_argument("new_comm");
  *result = nullptr;
  GrowItem mine{.has_id = id != nullptr ? 1 : 0, .rank_count = rank_count, .nonblocking = 0, .id = {}};
  if (id != nullptr) std::memcpy(&mine.id, id->bytes, sizeof(mine.id));
  if (handle == nullptr) {
    if (id == nullptr) return null_argument("id");
    return create_comm(result, rank_count, mine.id, rank, config);
  }
  const HandleRef hold(handle);
  if (!hold) return no_handle(handle);
  TUTTI_TRY(check_ready(handle));
  if (in_group()) return {Code::kInvalidUsage, "tutti_comm_grow cannot be called inside a group"};
  Communicator& old = *handle->comm;
  const tutti_config_t inherited = inherited_config(old);
  CommOptions options;
  bool nonblocking = false;
  if (config == nullptr) config = &inherited;
  TUTTI_TRY(read_comm_config(config, old.process().config(), options, nonblocking));
  mine.nonblocking = nonblocking ? 1 : 0;
  const auto own = static_cast<int>(old.rank());
  if (rank != own && rank != -1) {
    return {Code::kInvalidArgument,
            format("argument rank is %d: a rank of the old communicator must pass its own rank, %d, or -1",
                   rank, own)};
  }
  auto items = gather_items(handle, mine, timeout_of(handle));
  TUTTI_TRY(items.status());
  const GrowItem* chosen = nullptr;
  for (const GrowItem& item : *items) {
    if (item.rank_count != (*items)[0].rank_count) {
      return {Code::kInvalidArgument,
              format("argument rank_count is %d on one rank and %d on rank 0: it must be the same on all",
                     item.rank_count, (*items)[0].rank_count)};
    }
    if (item.rank_count <= static_cast<int>(old.rank_count())) {
      return {Code::kInvalidArgument,
              format("argument rank_count is %d: there are already %u ranks, and grow adds ranks",
                     item.rank_count, old.rank_count())};
    }
    if (item.has_id != 0 && chosen == nullptr) chosen = &item;
  }
  if (chosen == nullptr)
    return {Code::kInvalidArgument, "argument id is NULL on every rank of the communicator"};
  const Status created =
      contained([&] { return create_comm(result, rank_count, chosen->id, own, config, handle); });
  // A non-blocking rank has only begun its set-up and has no result yet. The other ranks do not wait for it.
  const bool all_block =
      std::none_of(items->begin(), items->end(), [](const GrowItem& item) { return item.nonblocking != 0; });
  return all_block ? agree_on_growth(handle, created, options.setup_timeout_ms, result) : created;
}

}  // namespace

extern "C" {

TUTTI_API tutti_result_t tutti_comm_split(tutti_comm_t* comm, int color, int key, tutti_comm_t** new_comm,
                                          const tutti_config_t* config) noexcept {
  return guarded([&] { return split_comm(comm, color, key, new_comm, config); });
}

TUTTI_API tutti_result_t tutti_comm_shrink(tutti_comm_t* comm, const int* exclude, int exclude_count,
                                           int flags, tutti_comm_t** new_comm,
                                           const tutti_config_t* config) noexcept {
  return guarded([&] { return shrink_comm(comm, exclude, exclude_count, flags, new_comm, config); });
}

TUTTI_API tutti_result_t tutti_comm_grow(tutti_comm_t* comm, int rank_count, const tutti_unique_id_t* id,
                                         int rank, tutti_comm_t** new_comm,
                                         const tutti_config_t* config) noexcept {
  return guarded([&] { return grow_comm(comm, rank_count, id, rank, new_comm, config); });
}

}  // extern "C"
