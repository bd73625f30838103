// How a unique id reaches the ranks: by a store, a file, an address, a launcher.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

/// A store in the bytes that all ranks share: one key.
struct SharedStore {
  Rank* rank;

  static int set(void* context, const char* key, const void* value, size_t bytes) {
    auto& self = *static_cast<SharedStore*>(context);
    if (std::string(key) != "job/id") return 1;
    std::memcpy(self.rank->shared_bytes(), value, bytes);
    self.rank->add(0);
    return 0;
  }
  static int get(void* context, const char* /*key*/, void* value, size_t bytes, uint64_t timeout_ms) {
    auto& self = *static_cast<SharedStore*>(context);
    if (timeout_ms == 0 || !self.rank->wait_value(0, 1)) return 2;
    std::memcpy(value, self.rank->shared_bytes(), bytes);
    return 0;
  }
};

/// A sum over a communicator under this id.
void expect_meeting(Rank& rank, const tutti_unique_id_t& id) {
  if (!rank.expect_ok(tutti_comm_create(&rank.comm, rank.count(), id, rank.rank(), nullptr), "create"))
    return;
  int value = 1;
  rank.expect_ok(tutti_all_reduce(&value, &value, 1, TUTTI_INT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
                 "sum");
  rank.expect_true(value == rank.count(), "the sum is " + std::to_string(value));
}

ClusterOptions without_comm(std::vector<int> layout) {
  ClusterOptions options;
  options.layout = std::move(layout);
  options.create = false;
  return options;
}

TEST(ShareTest, ByAStoreOfTheCaller) {
  EXPECT_EQ(run_cluster(without_comm(processes(3)),
                        [](Rank& rank) {
                          SharedStore context{&rank};
                          const tutti_store_t store{&context, SharedStore::set, SharedStore::get};
                          tutti_unique_id_t id{};
                          if (rank.rank() == 0) rank.expect_ok(tutti_get_unique_id(&id), "id");
                          rank.expect_ok(
                              tutti_share_unique_id_by_store(&id, &store, "job/id", rank.rank(), 0), "share");
                          expect_meeting(rank, id);
                        }),
            "");
}

TEST(ShareTest, AStoreThatFailsOrHoldsSomethingElseIsNamed) {
  EXPECT_EQ(run_cluster(without_comm(processes(1)),
                        [](Rank& rank) {
                          SharedStore context{&rank};
                          tutti_store_t store{&context, SharedStore::set, SharedStore::get};
                          tutti_unique_id_t id;
                          rank.expect_ok(tutti_get_unique_id(&id), "id");
                          rank.expect(tutti_share_unique_id_by_store(&id, &store, "other", 0, 0),
                                      TUTTI_SYSTEM_ERROR, "set");
                          rank.expect_text({"set(\"other\") returned 1"}, "set");
                          rank.add(0);
                          rank.expect(tutti_share_unique_id_by_store(&id, &store, "job/id", 1, 0),
                                      TUTTI_MISMATCH, "get of nothing");
                          store.get = nullptr;
                          rank.expect(tutti_share_unique_id_by_store(&id, &store, "job/id", 1, 0),
                                      TUTTI_INVALID_ARGUMENT, "null");
                        }),
            "");
}

TEST(ShareTest, AFileCarriesTheId) {
  const std::string where = "file:" + testing::TempDir() + "tutti-share-" + std::to_string(getpid());
  EXPECT_EQ(run_cluster(without_comm(processes(3)),
                        [&where](Rank& rank) {
                          tutti_unique_id_t id{};
                          if (rank.rank() == 0) rank.expect_ok(tutti_get_unique_id(&id), "id");
                          rank.expect_ok(tutti_share_unique_id(&id, where.c_str(), rank.rank(), 3, 0),
                                         "share");
                          expect_meeting(rank, id);
                          rank.expect_ok(tutti_forget_file(where.c_str(), rank.rank()), "forget");
                        }),
            "");
  EXPECT_NE(access(where.c_str() + std::strlen("file:"), F_OK), 0) << "the file is still there";
}

// Goal: ranks on several hosts need to know nothing but an address and a key.
TEST(ShareTest, AnAddressCarriesTheIdBetweenHosts) {
  ClusterOptions options = without_comm(processes(3));
  options.hosts = {0, 1, 2};
  options.environment = {{"TUTTI_KEY", "a key of sixteen characters or more"}};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          tutti_unique_id_t id{};
                          if (rank.rank() == 0) {
                            rank.expect_ok(tutti_get_unique_id(&id), "id");
                            const int port = free_port();
                            std::memcpy(rank.shared_bytes(), &port, sizeof(port));
                          }
                          rank.meet();
                          int port = 0;
                          std::memcpy(&port, rank.shared_bytes(), sizeof(port));
                          const std::string where = "tutti://127.0.0.1:" + std::to_string(port);
                          rank.expect_ok(tutti_share_unique_id(&id, where.c_str(), rank.rank(), 3, 0),
                                         "share");
                          expect_meeting(rank, id);
                        }),
            "");
}

// Goal: ranks share two ids in a row by their launcher, and each rank gets the first and then the second: by
// the host's socket, or by the files of TUTTI_ID_FILE, which are gone afterwards. A share that found nobody
// in time is tried again.
TEST(ShareTest, TwoIdsInARowByALauncher) {
  const std::string path = testing::TempDir() + "tutti-share-rounds-" + std::to_string(getpid());
  for (const bool by_file : {false, true}) {
    EXPECT_EQ(run_cluster(without_comm(processes(3)),
                          [&](Rank& rank) {
                            const std::string own = std::to_string(rank.rank());
                            setenv("RANK", own.c_str(), 1);
                            setenv("LOCAL_RANK", own.c_str(), 1);
                            setenv("WORLD_SIZE", "3", 1);
                            setenv("LOCAL_WORLD_SIZE", "3", 1);
                            setenv("TORCHELASTIC_RUN_ID", path.c_str(), 1);
                            if (by_file) setenv("TUTTI_ID_FILE", path.c_str(), 1);
                            std::array<tutti_unique_id_t, 2> ids{};
                            if (!by_file && rank.rank() == 0) {
                              rank.expect_ok(tutti_get_unique_id(&ids[0]), "id");
                              const int early = tutti_share_unique_id(&ids[0], "launcher", 0, 3, 1);
                              rank.expect_true(early == TUTTI_TIMEOUT, "a share before the others begin");
                            }
                            if (!rank.meet()) return;
                            for (tutti_unique_id_t& id : ids) {
                              if (rank.rank() == 0) rank.expect_ok(tutti_get_unique_id(&id), "id");
                              rank.expect_ok(tutti_share_unique_id(&id, "launcher", rank.rank(), 3, 0),
                                             "share");
                            }
                            if (rank.rank() == 0) std::memcpy(rank.shared_bytes(), &ids, sizeof(ids));
                            if (!rank.meet()) return;
                            rank.expect_true(std::memcmp(rank.shared_bytes(), &ids, sizeof(ids)) == 0, "ids");
                            rank.expect_ok(tutti_forget_file("launcher", rank.rank()), "forget");
                          }),
              "")
        << by_file;
  }
  for (const char* end : {"", "-2"}) EXPECT_NE(access((path + end).c_str(), F_OK), 0) << end;
}

// Goal: a rank whose settings are refused gets the id all the same, and by it tells the others why it takes
// no part.
void expect_bad_setting_heard(const std::string& where, int bad, const char* name, const char* value,
                              const char* text) {
  EXPECT_EQ(run_cluster(without_comm(processes(4)),
                        [&](Rank& cluster_rank) {
                          // The cluster's rank 0 has called tutti already.
                          const int rank = cluster_rank.rank() - 1;
                          if (rank < 0) return;
                          setenv("TUTTI_KEY", "a key of sixteen characters or more", 1);
                          if (rank == bad) setenv(name, value, 1);
                          tutti_unique_id_t id{};
                          if (rank == 0) cluster_rank.expect_ok(tutti_get_unique_id(&id), "id");
                          cluster_rank.expect_ok(tutti_share_unique_id(&id, where.c_str(), rank, 3, 0),
                                                 "share");
                          cluster_rank.expect(tutti_comm_create(&cluster_rank.comm, 3, id, rank, nullptr),
                                              TUTTI_INVALID_ARGUMENT, "create");
                          cluster_rank.expect_text({text}, "create");
                          if (rank != bad) cluster_rank.expect_text({"cannot take part"}, "create");
                          if (where.starts_with("file:"))
                            cluster_rank.expect_ok(tutti_forget_file(where.c_str(), rank), "forget");
                        }),
            "")
      << "rank " << bad << " with " << name << " at " << where;
}

TEST(ShareTest, ARankWithABadSettingIsHeardOfByAllWays) {
  const std::string file = "file:" + testing::TempDir() + "tutti-share-bad-" + std::to_string(getpid());
  for (const int bad : {0, 1}) {
    for (const bool by_address : {false, true}) {
      const std::string where = by_address ? "tutti://127.0.0.1:" + std::to_string(free_port()) : file;
      expect_bad_setting_heard(where, bad, "TUTTI_SLOT_BYTES", "5000", "TUTTI_SLOT_BYTES is \"5000\"");
    }
    // The maker of the id failed at once, and who waited for it at the deadline.
    expect_bad_setting_heard("tutti://127.0.0.1:" + std::to_string(free_port()), bad, "TUTTI_SOCKET_IFNAME",
                             "=none", "fits the filter \"=none\"");
  }
}

TEST(ShareTest, WrongWaysAreRefused) {
  EXPECT_EQ(run_child([] {
              tutti_unique_id_t id{};
              std::string failures;
              const auto refused = [&](const char* where, int rank, tutti_result_t wanted, const char* part) {
                const tutti_result_t result = tutti_share_unique_id(&id, where, rank, 2, 50);
                if (result != wanted || std::string(tutti_last_error()).find(part) == std::string::npos) {
                  failures += std::string(where) + ": " + tutti_error_string(result) + ": " +
                              tutti_last_error() + "\n";
                }
              };
              refused("file:/tmp/id", 0, TUTTI_INVALID_ARGUMENT, "call tutti_get_unique_id on rank 0 first");
              (void)tutti_get_unique_id(&id);
              refused("carrier pigeon", 0, TUTTI_INVALID_ARGUMENT, "carrier pigeon");
              refused("file:", 0, TUTTI_INVALID_ARGUMENT, "without a path");
              refused("launcher", 0, TUTTI_INVALID_USAGE, "no launcher");
              refused("launcher", 2, TUTTI_INVALID_ARGUMENT, "rank is 2");
              refused("tutti://127.0.0.1:4711", 1, TUTTI_INVALID_ARGUMENT, "TUTTI_KEY");
              refused("file:/no/such/folder/id", 0, TUTTI_SYSTEM_ERROR, "/no/such/folder/id");
              if (tutti_share_unique_id(&id, "launcher", 0, 1, 50) != TUTTI_SUCCESS)
                failures += "a process alone is a job of one rank\n";
              int rank = -1;
              int count = -1;
              if (tutti_launcher_context(&rank, &count, nullptr, nullptr) != TUTTI_SUCCESS || rank != 0 ||
                  count != 1) {
                failures += "the place of a process that no launcher has started\n";
              }
              return failures;
            }),
            "");
}

// The process may still be closing the rendezvous, or has closed it.
TEST(UniqueIdTest, MakesOneCommunicator) {
  EXPECT_EQ(run_cluster(without_comm(processes(1)),
                        [](Rank& rank) {
                          tutti_unique_id_t id{};
                          rank.expect_ok(tutti_get_unique_id(&id), "id");
                          expect_meeting(rank, id);
                          tutti_comm_t* second = nullptr;
                          const tutti_result_t result = tutti_comm_create(&second, 1, id, 0, nullptr);
                          rank.expect_true(result == TUTTI_PEER_LOST && second == nullptr,
                                           "a second communicator: " + std::to_string(result));
                          const std::string text = tutti_last_error();
                          rank.expect_true(text.find("is used up") != std::string::npos ||
                                               text.find("is the id an old one") != std::string::npos,
                                           text);
                        }),
            "");
}

TEST(LauncherPlaceTest, IsFoundInTheEnvironment) {
  EXPECT_EQ(run_child(
                [] {
                  int rank = -1;
                  int count = -1;
                  int local = -1;
                  int local_count = -1;
                  if (tutti_launcher_context(&rank, &count, &local, &local_count) != TUTTI_SUCCESS) {
                    return std::string(tutti_last_error());
                  }
                  const bool right = rank == 3 && count == 4 && local == 1;
                  return right ? std::string()
                               : "rank " + std::to_string(rank) + " of " + std::to_string(count);
                },
                {{"RANK", "3"},
                 {"WORLD_SIZE", "4"},
                 {"LOCAL_RANK", "1"},
                 {"MASTER_ADDR", "h"},
                 {"MASTER_PORT", "99"}}),
            "");
}

}  // namespace
}  // namespace tutti::test
