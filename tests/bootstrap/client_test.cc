// The blocking calls: ranks as threads that meet over loopback through an id or an address, and the sockets
// that they get from each other afterwards.
#include "bootstrap/client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <set>
#include <thread>

#include "bootstrap/data_port.h"
#include "tests/bootstrap/loop_support.h"
#include "tests/support/free_port.h"

namespace tutti::test {
namespace {

constexpr const char* kSecret = "a secret of some length";

/// A rendezvous on a thread of its own, as the control thread of a process serves it.
class ServedPoint {
 public:
  ServedPoint() {
    Listener listener = loopback_listener();
    id = *make_unique_id(listener.endpoints);
    RendezvousOptions options;
    options.credentials = credentials_of(id);
    options.listener = std::move(listener);
    rendezvous_ = std::move(*Rendezvous::open(*loop_, std::move(options)));
    thread_ = std::thread([this] {
      while (!stopped_) {
        pollfd entry{loop_->descriptor(), POLLIN, 0};
        if (poll(&entry, 1, 10) > 0) (void)loop_->run_ready();
      }
    });
  }
  ~ServedPoint() {
    stopped_ = true;
    thread_.join();
  }

  UniqueId id;

 private:
  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::create());
  std::unique_ptr<Rendezvous> rendezvous_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

BootstrapClientOptions options_of(uint32_t rank, uint32_t rank_count, uint64_t timeout_ms = 60'000) {
  BootstrapClientOptions options;
  options.rank_count = rank_count;
  options.rank = rank;
  options.deadline_ns = deadline_after_ms(timeout_ms);
  options.listen.interfaces = "=lo";
  return options;
}

/// Runs a function per rank, each on a thread; their statuses by rank.
std::vector<Status> run_ranks(uint32_t rank_count, const std::function<Status(uint32_t)>& body) {
  std::vector<std::future<Status>> futures;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    futures.push_back(std::async(std::launch::async, body, rank));
  }
  std::vector<Status> statuses;
  for (auto& future : futures) statuses.push_back(future.get());
  return statuses;
}

void expect_all_ok(const std::vector<Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(statuses[rank].is_ok()) << "rank " << rank << ": " << statuses[rank].text();
  }
}

Status gather_twice(BootstrapClient& client, uint32_t rank, uint32_t rank_count) {
  const auto blob = std::as_bytes(std::span(&rank, 1));
  for (const bool last : {false, true}) {
    auto all = client.all_gather(blob, last);
    TUTTI_TRY(all.status());
    for (uint32_t other = 0; other < rank_count; ++other) {
      const auto expected = std::as_bytes(std::span(&other, 1));
      if (!std::equal((*all)[other].begin(), (*all)[other].end(), expected.begin(), expected.end())) {
        return {Code::kInternal, "a wrong blob"};
      }
    }
  }
  return Status::ok();
}

TEST(BootstrapClientTest, RanksMeetByAnId) {
  ServedPoint served;
  expect_all_ok(run_ranks(6, [&](uint32_t rank) {
    auto address = bootstrap_address_of(served.id);
    TUTTI_TRY(address.status());
    auto client = BootstrapClient::join(std::move(*address), options_of(rank, 6));
    TUTTI_TRY(client.status());
    return gather_twice(*client, rank, 6);
  }));
}

/// A port that was free a moment ago.
std::string free_address() {
  return "tutti://localhost:" + std::to_string(free_port());
}

// Rank 0 serves the address itself and may come after the others. The others may name its host otherwise.
TEST(BootstrapClientTest, RanksMeetAtAnAddress) {
  const std::string url = free_address();
  const std::string by_number = "tutti://127.0.0.1" + url.substr(url.rfind(':'));
  std::atomic<int> waiting = 0;
  expect_all_ok(run_ranks(4, [&](uint32_t rank) {
    if (rank == 0) {
      while (waiting < 3) std::this_thread::yield();
    } else {
      ++waiting;
    }
    auto address = bootstrap_address_of_url(rank < 2 ? url : by_number, kSecret, rank == 0);
    TUTTI_TRY(address.status());
    auto client = BootstrapClient::join(std::move(*address), options_of(rank, 4));
    TUTTI_TRY(client.status());
    return gather_twice(*client, rank, 4);
  }));
}

TEST(BootstrapClientTest, AddressesNeedAKeyAndAForm) {
  EXPECT_EQ(bootstrap_address_of_url("tutti://node:4000", "", false).status().code(), Code::kInvalidArgument);
  EXPECT_NE(bootstrap_address_of_url("tutti://node:4000", "", false).status().text().find("TUTTI_KEY"),
            std::string_view::npos);
  for (const char* url : {"node:4000", "http://node:4000", "tutti://node", "tutti://:1", ""}) {
    EXPECT_FALSE(bootstrap_address_of_url(url, kSecret, false).is_ok()) << url;
  }
}

TEST(BootstrapClientTest, AnotherKeyIsNamed) {
  const std::string url = free_address();
  std::atomic<bool> refused = false;
  const auto statuses = run_ranks(2, [&](uint32_t rank) -> Status {
    if (rank == 1) {
      auto address = bootstrap_address_of_url(url, "another secret entirely", false);
      auto client = BootstrapClient::join(std::move(*address), options_of(rank, 2));
      refused = true;
      return client.status();
    }
    auto address = bootstrap_address_of_url(url, kSecret, true);
    TUTTI_TRY(address.status());
    BootstrapStop stop;
    std::thread stopper([&] {
      while (!refused) std::this_thread::yield();
      stop.stop();
    });
    BootstrapClientOptions options = options_of(rank, 2);
    options.stop = &stop;
    auto client = BootstrapClient::join(std::move(*address), options);
    Status status = client.status();
    if (client) status = client->all_gather({}, true).status();
    stopper.join();
    return status;
  });
  EXPECT_EQ(statuses[0].code(), Code::kAborted) << statuses[0].text();
  EXPECT_EQ(statuses[1].code(), Code::kInvalidArgument) << statuses[1].text();
  EXPECT_NE(statuses[1].text().find("key"), std::string_view::npos) << statuses[1].text();
}

TEST(BootstrapClientTest, AStopEndsAWaitBeforeItsDeadline) {
  ServedPoint served;
  BootstrapStop stop;
  auto address = bootstrap_address_of(served.id);
  BootstrapClientOptions options = options_of(0, 2);
  options.stop = &stop;
  auto client = BootstrapClient::join(std::move(*address), options);
  ASSERT_TRUE(client.is_ok()) << client.status().text();
  std::thread stopper([&] { stop.stop(); });
  EXPECT_EQ(client->all_gather({}, true).status().code(), Code::kAborted);
  stopper.join();
  // One that begins later does not begin.
  address = bootstrap_address_of(served.id);
  EXPECT_EQ(BootstrapClient::join(std::move(*address), options).status().code(), Code::kAborted);
}

TEST(BootstrapClientTest, AbsentRanksAreNamed) {
  ServedPoint served;
  const auto statuses = run_ranks(2, [&](uint32_t number) -> Status {
    auto address = bootstrap_address_of(served.id);
    TUTTI_TRY(address.status());
    auto client = BootstrapClient::join(std::move(*address), options_of(2 * number, 4, 300));
    TUTTI_TRY(client.status());
    return client->all_gather({}, true).status();
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.text().find(": 1, 3"), std::string_view::npos) << status.text();
  }
}

TEST(BootstrapClientTest, WhatFailsOnOneRankIsReadOnAll) {
  ServedPoint served;
  const auto statuses = run_ranks(5, [&](uint32_t rank) -> Status {
    auto address = bootstrap_address_of(served.id);
    TUTTI_TRY(address.status());
    auto client = BootstrapClient::join(std::move(*address), options_of(rank, 5));
    TUTTI_TRY(client.status());
    TUTTI_TRY(client->all_gather({}, false).status());
    if (rank == 3) {
      const Status why(Code::kOutOfMemory, "rank 3 has no memory for its segment");
      client->fail(why);
      return why;
    }
    return client->all_gather({}, true).status();
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kOutOfMemory);
    EXPECT_EQ(status.text(), "rank 3 has no memory for its segment");
  }
}

// Goal: who serves the address stays for a rank that comes late, until that has heard why the bootstrap has
// failed. Method: rank 1 says another number of ranks; rank 2 comes when it has been told.
TEST(BootstrapClientTest, WhoServesStaysUntilAllHaveHeard) {
  const std::string url = free_address();
  std::atomic<bool> told = false;
  std::atomic<bool> last_came = false;
  const auto statuses = run_ranks(3, [&](uint32_t rank) -> Status {
    if (rank == 2) {
      while (!told) std::this_thread::yield();
      last_came = true;
    }
    auto address = bootstrap_address_of_url(url, kSecret, rank == 0);
    TUTTI_TRY(address.status());
    auto client = BootstrapClient::join(std::move(*address), options_of(rank, rank == 1 ? 4 : 3));
    TUTTI_TRY(client.status());
    const Status end = gather_twice(*client, rank, 3);
    EXPECT_TRUE(rank != 0 || last_came) << "rank 0 left before the last rank came";
    if (rank == 1) told = true;
    return end;
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.text();
    EXPECT_NE(status.text().find("ranks, others say"), std::string_view::npos) << status.text();
  }
}

TEST(UniqueIdTest, IdsCarryKeyAndAddressesOrAreRefused) {
  Endpoint endpoint = loopback(4000);
  auto id = make_unique_id({endpoint});
  ASSERT_TRUE(id.is_ok());
  EXPECT_TRUE(check_unique_id(*id).is_ok());
  EXPECT_EQ(bootstrap_address_of(*id)->endpoints, std::vector<Endpoint>{endpoint});
  EXPECT_NE(make_unique_id({endpoint})->key, id->key);
  EXPECT_FALSE(bootstrap_address_of(*make_unique_id({})).is_ok()) << "an id of one host";
  UniqueId other = *id;
  other.magic[0] = 'X';
  EXPECT_EQ(check_unique_id(other).code(), Code::kInvalidArgument);
  other = *id;
  other.version ^= 1;
  EXPECT_EQ(check_unique_id(other).code(), Code::kVersionMismatch);
  other = *id;
  other.endpoints[2] = std::byte{9};
  EXPECT_EQ(check_unique_id(other).code(), Code::kInvalidArgument);
}

// Goal: every pair of ranks gets its channels, in whatever order each asks, and each socket leads to the
// right peer.
TEST(DataPortTest, AllPairsAreConnectedInAnyOrder) {
  constexpr uint32_t kRanks = 4;
  constexpr uint32_t kChannels = 3;
  const Credentials credentials = credentials_from_text(kSecret, "data");
  std::vector<std::unique_ptr<DataPort>> ports;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ports.push_back(std::move(*DataPort::open(rank, credentials, {.interfaces = "=lo"})));
  }
  expect_all_ok(run_ranks(kRanks, [&](uint32_t rank) -> Status {
    std::vector<DataRequest> requests;
    for (uint32_t i = 0; i < kRanks * kChannels; ++i) {
      const uint32_t number = (i + rank * 5) % (kRanks * kChannels);
      const uint32_t peer = number % kRanks;
      if (peer != rank) requests.push_back({peer, number / kRanks, ports[peer]->endpoints()});
    }
    auto sockets = ports[rank]->connect(requests, deadline_after_ms(60'000), nullptr);
    TUTTI_TRY(sockets.status());
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::array<uint32_t, 2> said = {rank, requests[i].channel};
      if (send((*sockets)[i].get(), said.data(), sizeof(said), MSG_NOSIGNAL) != sizeof(said)) {
        return {Code::kInternal, "cannot send"};
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      std::array<uint32_t, 2> heard{};
      pollfd entry{(*sockets)[i].get(), POLLIN, 0};
      poll(&entry, 1, 20'000);
      if (recv((*sockets)[i].get(), heard.data(), sizeof(heard), MSG_DONTWAIT) != sizeof(heard) ||
          heard != std::array<uint32_t, 2>{requests[i].peer, requests[i].channel}) {
        return {Code::kInternal, format("rank %u channel %u leads elsewhere", rank, requests[i].channel)};
      }
    }
    return Status::ok();
  }));
}

TEST(DataPortTest, PeersThatDoNotComeAreNamed) {
  const Credentials credentials = credentials_from_text(kSecret, "data");
  auto port = DataPort::open(1, credentials, {.interfaces = "=lo"});
  auto silent = DataPort::open(2, credentials, {.interfaces = "=lo"});
  const std::vector<DataRequest> requests = {{0, 0, {}}, {2, 0, (*silent)->endpoints()}};
  const auto sockets = (*port)->connect(requests, deadline_after_ms(50), nullptr);
  EXPECT_EQ(sockets.status().code(), Code::kTimeout);
  EXPECT_NE(sockets.status().text().find(": 0, 2"), std::string_view::npos) << sockets.status().text();
  const PackedEndpoints gone = (*silent)->endpoints();
  silent->reset();
  const std::vector<DataRequest> to_nobody = {{2, 0, gone}};
  const auto refused = (*port)->connect(to_nobody, deadline_after_ms(60'000), nullptr);
  EXPECT_EQ(refused.status().code(), Code::kPeerLost);
  for (const char* part : {"rank 1", "rank 2", "127.0.0.1:", "refused"}) {
    EXPECT_NE(refused.status().text().find(part), std::string_view::npos) << refused.status().text();
  }
}

// Goal: a connection that comes late in the name of one that was handed out is never taken for another.
TEST(DataPortTest, AChannelServesOnce) {
  const Credentials credentials = credentials_from_text(kSecret, "data");
  std::array<std::unique_ptr<DataPort>, 2> ports;
  for (uint32_t rank : {0u, 1u})
    ports[rank] = std::move(*DataPort::open(rank, credentials, {.interfaces = "=lo"}));
  for (const bool again : {false, true}) {
    const auto statuses = run_ranks(2, [&](uint32_t rank) -> Status {
      const std::vector<DataRequest> requests = {{1 - rank, 7, ports[1 - rank]->endpoints()}};
      return ports[rank]->connect(requests, deadline_after_ms(60'000), nullptr).status();
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), again ? Code::kInvalidArgument : Code::kOk) << status.text();
    }
  }
}

// A connection that began under the system's congestion control was paced for ever where that one paces.
TEST(DataPortTest, OnThisMachineNothingIsPaced) {
  const Credentials credentials = credentials_from_text(kSecret, "data");
  std::array<std::unique_ptr<DataPort>, 2> ports;
  for (uint32_t rank = 0; rank < 2; ++rank)
    ports[rank] = std::move(*DataPort::open(rank, credentials, {.interfaces = "=lo"}));
  std::array<FileDescriptor, 2> ends;
  run_ranks(2, [&](uint32_t rank) -> Status {
    const std::vector<DataRequest> requests = {{1 - rank, 0, ports[1 - rank]->endpoints()}};
    auto sockets = ports[rank]->connect(requests, deadline_after_ms(60'000), nullptr);
    TUTTI_TRY(sockets.status());
    ends[rank] = std::move((*sockets)[0]);
    return Status::ok();
  });
  for (const FileDescriptor& end : ends) {
    std::array<char, 16> name{};
    socklen_t bytes = name.size();
    EXPECT_EQ(getsockopt(end.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes), 0);
    EXPECT_STREQ(name.data(), "reno");
  }
}

TEST(DataPortTest, SenselessRequestsAreRefused) {
  auto port = DataPort::open(1, credentials_from_text(kSecret, "data"), {.interfaces = "=lo"});
  const std::vector<DataRequest> twice = {{0, 4, {}}, {0, 4, {}}};
  EXPECT_EQ((*port)->connect(twice, 0, nullptr).status().code(), Code::kInvalidArgument);
  const std::vector<DataRequest> self = {{1, 0, {}}};
  EXPECT_EQ((*port)->connect(self, 0, nullptr).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tutti::test
