// The ways of an id from rank 0 to the others: store, file, host socket, process manager, bootstrap.
#include "bootstrap/share.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "bootstrap/client.h"
#include "bootstrap/pmi.h"
#include "core/clock.h"
#include "core/file_descriptor.h"
#include "net/local_socket.h"
#include "tests/bootstrap/loop_support.h"
#include "tests/support/free_port.h"

namespace tutti::test {
namespace {

using Id = std::array<std::byte, sizeof(UniqueId)>;

Id sample_id() {
  Id id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(i * 7 + 1);
  return id;
}

/// An id that a process of this host serves.
class ServedId {
 public:
  ServedId() : listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = local_name_of(id_);
    name.copy(address.sun_path + 1, name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
  }
  Id bytes() const {
    Id bytes;
    std::memcpy(bytes.data(), &id_, sizeof(id_));
    return bytes;
  }

 private:
  UniqueId id_ = *make_unique_id({});
  FileDescriptor listener_;
};

uint64_t soon() {
  return deadline_after_ms(60'000);
}

/// Runs all ranks on threads; every rank must end with rank 0's id.
void expect_shared(uint32_t rank_count, const std::function<Status(uint32_t rank, IdBytes id)>& share,
                   const Id& shared = sample_id()) {
  std::vector<Id> ids(rank_count);
  std::vector<Status> statuses(rank_count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    threads.emplace_back([&, rank] {
      if (rank == 0) ids[rank] = shared;
      statuses[rank] = share(rank, ids[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    EXPECT_TRUE(statuses[rank].is_ok()) << "rank " << rank << ": " << statuses[rank].text();
    EXPECT_EQ(ids[rank], shared) << "rank " << rank;
  }
}

class MemoryStore {
 public:
  KeyValueStore functions() {
    return {.set =
                [this](const std::string& key, std::span<const std::byte> value) {
                  const std::scoped_lock lock(mutex_);
                  values_[key].assign(value.begin(), value.end());
                  changed_.notify_all();
                  return Status::ok();
                },
            .get = [this](const std::string& key, uint64_t) -> Result<std::vector<std::byte>> {
              std::unique_lock lock(mutex_);
              changed_.wait(lock, [&] { return values_.contains(key); });
              return values_[key];
            }};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>> values_;
};

TEST(ShareTest, ACallersStoreCarriesTheId) {
  MemoryStore store;
  const KeyValueStore functions = store.functions();
  expect_shared(
      4, [&](uint32_t rank, IdBytes id) { return share_by_store(functions, "job7", rank, id, soon()); });
  ASSERT_TRUE(functions.set("other", std::as_bytes(std::span("short"))).is_ok());
  Id id{};
  const Status wrong = share_by_store(functions, "other", 1, id, soon());
  EXPECT_EQ(wrong.code(), Code::kMismatch);
  EXPECT_NE(wrong.text().find("other"), std::string_view::npos);
}

class ShareFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tutti_share_test.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "id").string(); }

  std::filesystem::path folder_;
};

TEST_F(ShareFileTest, AFileCarriesTheIdAndGoesWhenForgotten) {
  const ServedId served;
  expect_shared(
      3, [&](uint32_t rank, IdBytes id) { return share_by_file(path(), rank, id, soon()); }, served.bytes());
  forget_file(path());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ShareFileTest, TheFileOfTheEnvironmentComesBeforeTheLaunchersWays) {
  const ServedId served;
  expect_shared(
      3,
      [&](uint32_t rank, IdBytes id) {
        LaunchContext place;
        place.launcher = "torchrun";
        place.rank = rank;
        place.rank_count = 3;
        const std::string file = path();
        return share_by_launcher(
            place, 0,
            [&](const char* name) {
              return std::string_view(name) == "TUTTI_ID_FILE" ? file.c_str() : nullptr;
            },
            Config{}, id, soon());
      },
      served.bytes());
  EXPECT_TRUE(std::filesystem::exists(path()));
}

// Goal: a rank that finds the file of a run that is over says so at once, with the file's name and what to
// do.
TEST_F(ShareFileTest, AStaleIdIsFoundByTheOtherRanks) {
  Endpoint nobody;
  { nobody = loopback_listener().endpoints[0]; }
  for (const std::vector<Endpoint>& endpoints : {std::vector<Endpoint>{}, std::vector<Endpoint>{nobody}}) {
    const UniqueId stale = *make_unique_id(endpoints);
    std::ofstream(path(), std::ios::binary).write(reinterpret_cast<const char*>(&stale), sizeof(stale));
    Id id{};
    const Status status = share_by_file(path(), 1, id, soon());
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    for (const std::string& part : {path(), std::string("earlier run"), std::string("remove the file")}) {
      EXPECT_NE(status.text().find(part), std::string_view::npos) << status.text();
    }
  }
}

// Goal: the id of an earlier run is never taken for this run's.
TEST_F(ShareFileTest, AFileOfAnEarlierRunIsRefusedByRankZero) {
  std::ofstream(path()) << "old";
  Id id = sample_id();
  const Status status = share_by_file(path(), 0, id, soon());
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_NE(status.text().find("remove it"), std::string_view::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_EQ(share_by_file(path(), 1, id, soon()).code(), Code::kInvalidUsage) << "too short";
}

TEST_F(ShareFileTest, AFileThatNeverComesIsATimeout) {
  Id id{};
  EXPECT_EQ(share_by_file(path(), 1, id, 0).code(), Code::kTimeout);
}

TEST(ShareOnHostTest, ASocketCarriesTheId) {
  const std::string name = "tutti-share-test-" + std::to_string(getpid());
  expect_shared(5, [&](uint32_t rank, IdBytes id) {
    return share_on_host(name, {.rank = rank, .rank_count = 5}, id, soon());
  });
  // Nothing is left: the name is free for the next.
  expect_shared(2, [&](uint32_t rank, IdBytes id) {
    return share_on_host(name, {.rank = rank, .rank_count = 2}, id, soon());
  });
}

// Goal: ranks that share two ids in a row get the first and then the second, however late one of them is. A
// fast rank once took the first id for the second, and the late rank the second id for both.
// Method: rank 2 comes after rank 1 has asked for the second id in vain.
TEST(ShareOnHostTest, TwoRoundsInARowAreNotMixedUp) {
  const std::string name = "tutti-share-test-rounds-" + std::to_string(getpid());
  const Id first = sample_id();
  Id second = sample_id();
  second[0] = std::byte{0};
  const auto expect_id = [&](uint32_t rank, uint32_t round) {
    Id id = {};
    if (rank == 0) id = round == 0 ? first : second;
    const Status status = share_on_host(name, {.rank = rank, .rank_count = 3, .round = round}, id, soon());
    EXPECT_TRUE(status.is_ok()) << "rank " << rank << " round " << round << ": " << status.text();
    EXPECT_EQ(id == first, round == 0) << "rank " << rank << " round " << round;
    EXPECT_EQ(id == second, round == 1) << "rank " << rank << " round " << round;
  };
  const auto both_rounds = [&](uint32_t rank) {
    for (const uint32_t round : {0u, 1u}) expect_id(rank, round);
  };
  std::thread rank_0(both_rounds, 0);
  expect_id(1, 0);
  Id early = {};
  EXPECT_EQ(
      share_on_host(name, {.rank = 1, .rank_count = 3, .round = 1}, early, deadline_after_ms(50)).code(),
      Code::kTimeout);
  std::thread rank_1(expect_id, 1, 1);
  both_rounds(2);
  rank_0.join();
  rank_1.join();
}

// Goal: a process that connects and says nothing keeps nobody waiting, and a rank that asks twice is one
// rank.
TEST(ShareOnHostTest, RanksAreCountedByWhatTheySay) {
  const std::string name = "tutti-share-test-silent-" + std::to_string(getpid());
  FileDescriptor connection;
  std::thread rank_0([&] {
    Id id = sample_id();
    EXPECT_TRUE(share_on_host(name, {.rank = 0, .rank_count = 3}, id, soon()).is_ok());
  });
  while (!connection.is_open()) {
    auto connected = local_connect(name, soon());
    if (connected) connection = std::move(*connected);
  }
  for (const uint32_t rank : {1u, 1u, 2u}) {
    Id id = {};
    EXPECT_TRUE(share_on_host(name, {.rank = rank, .rank_count = 3}, id, soon()).is_ok()) << "rank " << rank;
    EXPECT_EQ(id, sample_id());
  }
  rank_0.join();
}

TEST(ShareOnHostTest, RanksThatDoNotComeAreCounted) {
  const std::string name = "tutti-share-test-absent-" + std::to_string(getpid());
  Id id{};
  const Status server = share_on_host(name, {.rank = 0, .rank_count = 3}, id, 0);
  EXPECT_EQ(server.code(), Code::kTimeout);
  EXPECT_NE(server.text().find("2 have not"), std::string_view::npos) << server.text();
  EXPECT_EQ(share_on_host(name, {.rank = 1, .rank_count = 3}, id, 0).code(), Code::kTimeout);
}

// A process that took the name and accepted nothing kept ranks in connect() for ever.
TEST(ShareOnHostTest, ANameThatTakesNobodyIsLeftAtTheDeadline) {
  const std::string name = "tutti-share-test-busy-" + std::to_string(getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), generic, length), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0) << "one place in its queue";
  const FileDescriptor first(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(first.get(), generic, length), 0);
  Id id{};
  EXPECT_EQ(share_on_host(name, {.rank = 1, .rank_count = 2}, id, 0).code(), Code::kTimeout);
}

/// A process manager as MPICH's: answers each rank's lines; barriers wait for all; hangs up after the end.
class FakeManager {
 public:
  explicit FakeManager(uint32_t rank_count) {
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      ranks_.emplace_back(ends[0]);
      servers_.emplace_back(ends[1]);
    }
    for (const FileDescriptor& server : servers_)
      threads_.emplace_back([this, fd = server.get()] { serve(fd); });
  }
  ~FakeManager() {
    for (std::thread& thread : threads_) thread.join();
  }
  int fd(uint32_t rank) const { return ranks_[rank].get(); }
  uint32_t finalized() const { return finalized_; }

 private:
  void serve(int fd) {
    std::string line;
    char letter = 0;
    while (read(fd, &letter, 1) == 1) {
      if (letter != '\n') {
        line += letter;
        continue;
      }
      const std::string answer = reply(line) + "\n";
      const bool end = line == "cmd=finalize";
      line.clear();
      if (write(fd, answer.data(), answer.size()) < 0) return;
      if (end) {
        shutdown(fd, SHUT_RDWR);
        return;
      }
    }
  }
  std::string reply(const std::string& line) {
    std::unique_lock lock(mutex_);
    if (line == "cmd=init pmi_version=1 pmi_subversion=1") {
      return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
    }
    if (line == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0";
    if (line.starts_with("cmd=put kvsname=kvs_1_0 key=")) {
      value_ = line.substr(line.find("value=") + 6);
      return "cmd=put_result rc=0 msg=success";
    }
    if (line == "cmd=barrier_in") {
      ++arrived_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return arrived_ == servers_.size(); });
      return "cmd=barrier_out";
    }
    if (line.starts_with("cmd=get kvsname=kvs_1_0 key="))
      return "cmd=get_result rc=0 msg=success value=" + value_;
    if (line == "cmd=finalize") {
      ++finalized_;
      return "cmd=finalize_ack";
    }
    return "cmd=unknown rc=-1";
  }

  std::vector<FileDescriptor> ranks_;
  std::vector<FileDescriptor> servers_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string value_;
  size_t arrived_ = 0;
  uint32_t finalized_ = 0;
};

/// A rank of MPICH's shares an id.
Status share_by_mpich(const FakeManager& manager, uint32_t rank, uint32_t round, IdBytes id) {
  LaunchContext place;
  place.launcher = "MPICH";
  place.rank = rank;
  place.rank_count = 3;
  place.channel = LaunchChannel::kPmi1;
  const std::string fd = std::to_string(manager.fd(rank));
  const Environment environment = [&](const char* name) {
    return std::strcmp(name, "PMI_FD") == 0 ? fd.c_str() : nullptr;
  };
  return share_by_launcher(place, round, environment, Config{}, id, soon());
}

// Goal: the process manager carries one id. A rank that shares a second id is told so; the write to the
// closed connection once killed it.
TEST(PmiTest, AProcessManagerCarriesOneId) {
  FakeManager manager(3);
  expect_shared(3, [&](uint32_t rank, IdBytes id) { return share_by_mpich(manager, rank, 0, id); });
  EXPECT_EQ(manager.finalized(), 3u);
  Id id = sample_id();
  const Status again = share_by_mpich(manager, 0, 1, id);
  EXPECT_EQ(again.code(), Code::kInvalidUsage);
  for (const char* part : {"no way to find each other again", "tutti_comm_split", "TUTTI_ID_FILE"}) {
    EXPECT_NE(again.text().find(part), std::string_view::npos) << again.text();
  }
}

TEST(PmiTest, AManagerThatGoesOrErrsIsNamed) {
  const auto talk = [](const char* answer, bool gone, uint64_t deadline_ns) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const FileDescriptor rank(ends[0]);
    FileDescriptor manager(ends[1]);
    EXPECT_EQ(write(manager.get(), answer, std::strlen(answer)), static_cast<ssize_t>(std::strlen(answer)));
    if (gone) shutdown(manager.get(), SHUT_WR);
    return share_by_pmi1(rank.get(), 1, "", deadline_ns).status();
  };
  EXPECT_EQ(talk("", true, soon()).code(), Code::kPeerLost);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor rank(ends[0]);
  FileDescriptor(ends[1]).reset();
  EXPECT_EQ(share_by_pmi1(rank.get(), 1, "", soon()).status().code(), Code::kPeerLost) << "closed";
  EXPECT_EQ(talk("cmd=response_to_init pmi_version=2 rc=-1\n", true, soon()).code(), Code::kMismatch);
  EXPECT_EQ(talk("hello\n", true, soon()).code(), Code::kMismatch);
  EXPECT_EQ(talk(std::string(5000, 'x').c_str(), true, soon()).code(), Code::kMismatch);
  EXPECT_EQ(talk("", false, 0).code(), Code::kTimeout);
}

TEST(ShareByLauncherTest, OneHostNeedsNothing) {
  expect_shared(3, [&](uint32_t rank, IdBytes id) {
    LaunchContext place;
    place.launcher = "torchrun";
    place.rank = rank;
    place.rank_count = 3;
    place.local_count = 3;
    place.job = "share_test" + std::to_string(getpid());
    return share_by_launcher(
        place, 0, [](const char*) { return nullptr; }, Config{}, id, soon());
  });
}

TEST(ShareByLauncherTest, SeveralHostsMeetAtTheAddressWithAKey) {
  const uint16_t port = loopback_listener().endpoints[0].port;
  expect_shared(3, [&](uint32_t rank, IdBytes id) {
    LaunchContext place;
    place.launcher = "Slurm";
    place.rank = rank;
    place.rank_count = 3;
    place.rendezvous = HostPort{"localhost", port};
    Config config;
    config.key = "a key of many characters";
    config.socket_ifname = "=lo";
    return share_by_launcher(
        place, 0, [](const char*) { return nullptr; }, config, id, soon());
  });
}

// Goal: a key that is set but too short is told as such, not as missing.
TEST(ShareByLauncherTest, AShortKeyIsNotToldAsMissing) {
  LaunchContext place;
  place.launcher = "Slurm";
  place.rank = 1;
  place.rank_count = 2;
  place.rendezvous = HostPort{"node0", 4000};
  Id id{};
  const auto environment = [](const char* name) -> const char* {
    return std::string_view(name) == "TUTTI_KEY" ? "hunter2" : nullptr;
  };
  const Status status = share_by_launcher(place, 0, environment, Config{}, id, soon());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.text().find("the key of TUTTI_KEY has 7 characters"), std::string_view::npos)
      << status.text();
}

// It was copied over the caller's 128 bytes, however long it was.
TEST(ShareByUrlTest, AnIdOfAnotherLengthIsRefused) {
  Config config;
  config.key = "a secret of some length";
  config.socket_ifname = "=lo";
  const std::string url = "tutti://127.0.0.1:" + std::to_string(free_port());
  std::thread rank_0([&] {
    auto address = bootstrap_address_of_url(url, config.key, true);
    ASSERT_TRUE(address.is_ok()) << address.status().text();
    BootstrapClientOptions options;
    options.rank_count = 2;
    options.deadline_ns = soon();
    options.listen.interfaces = "=lo";
    auto client = BootstrapClient::join(std::move(*address), options);
    ASSERT_TRUE(client.is_ok()) << client.status().text();
    EXPECT_TRUE(client->all_gather(std::vector<std::byte>(4096), true).is_ok());
  });
  std::array<Id, 2> ids = {};
  const Status status = share_by_url(url, 1, 2, config, ids[0], soon());
  rank_0.join();
  EXPECT_EQ(status.code(), Code::kMismatch) << status.text();
  EXPECT_NE(status.text().find("sent 4096 bytes"), std::string_view::npos) << status.text();
  EXPECT_EQ(ids, (std::array<Id, 2>{}));
}

TEST(ShareByLauncherTest, WithoutAWayTheUserIsToldWhatToSet) {
  LaunchContext place;
  place.launcher = "Slurm";
  place.rank = 1;
  place.rank_count = 2;
  place.rendezvous = HostPort{"node0", 4000};
  Id id{};
  const Status status = share_by_launcher(
      place, 0, [](const char*) { return nullptr; }, Config{}, id, soon());
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  for (const char* part : {"Slurm", "rank 1 of 2", "TUTTI_ID_FILE", "TUTTI_KEY"}) {
    EXPECT_NE(status.text().find(part), std::string_view::npos) << status.text();
  }
}

}  // namespace
}  // namespace tutti::test
