// What a running process says of its ranks, to tools and signals.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/unique_id.h"
#include "core/clock.h"
#include "health/inspector.h"
#include "health/inspector_server.h"
#include "health/status_copy.h"
#include "net/connector.h"
#include "tests/support/cluster.h"
#include "tests/support/control_shortage.h"

namespace tutti::test {
namespace {

/// A holder of the key that connects, and reads nothing.
struct ConnectedVisitor {
  ConnectedVisitor(const Endpoint& where, const Credentials& credentials) {
    ConnectorOptions dial;
    dial.endpoints = {where};
    dial.claim = {
        .purpose = Purpose::kInspect, .from = kBootstrapServer, .to = kBootstrapServer, .channel = 0};
    dial.credentials = credentials;
    dial.deadline_ns = deadline_after_ms(20'000);
    bool done = false;
    const auto connector = Connector::start(*loop, std::move(dial), [&](Result<FileDescriptor> connection) {
      EXPECT_TRUE(connection.is_ok()) << connection.status().text();
      if (connection) socket = std::move(*connection);
      done = true;
    });
    loop->run_until([&] { return done; });
  }
  std::unique_ptr<EventLoop> loop = std::move(*EventLoop::create());
  FileDescriptor socket;
};

TEST(StatusTextTest, SaysWhatARankDoes) {
  StatusCopy status;
  EXPECT_EQ(describe_status(3, status), "rank 3 has made no collective call");
  status.in_messages = 1;
  status.waits_for = 2;
  EXPECT_EQ(describe_status(3, status), "rank 3 is in send/recv, step 0, waiting for rank 1");
  status.waits_for = kAnyRank + 1;
  EXPECT_EQ(describe_status(3, status), "rank 3 is in send/recv, waiting for a message of any rank");
  status.presence = StatusPage::kLeft;
  EXPECT_EQ(describe_status(3, status), "rank 3 has left the communicator");
}

TEST(StatusTextTest, SurvivesTheWire) {
  StatusCopy status;
  status.sequence = 1ull << 40;
  status.unconfirmed_bytes = 5;
  status.shrink = 1ull << 50;
  const StatusCopy copy = decode_status(encode(status));
  EXPECT_EQ(copy.sequence, status.sequence);
  EXPECT_EQ(copy.unconfirmed_bytes, 5u);
  EXPECT_EQ(copy.shrink, status.shrink);
}

// Goal: while a rank waits in a call, another process is told so, with the call, step and peer.
TEST(InspectTest, ShowsWhoWaitsForWhom) {
  for (const int hosts : {1, 2}) {
    EXPECT_EQ(run_cluster(Arrangement{processes(2), 1, hosts}.options(),
                          [](Rank& rank) {
                            float value = 1;
                            if (rank.rank() == 0) {
                              rank.expect_ok(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                                              rank.comm, TUTTI_BLOCKING),
                                             "all_reduce");
                              return;
                            }
                            const int pid = rank.pid_of_process(0);
                            const std::string wanted =
                                "rank 0 is in collective 1, all_reduce(float32, sum, count 1)";
                            std::string text;
                            const double deadline_s = seconds_now() + patience_s(20);
                            // It is in its call, and has waited long enough to say for whom.
                            while ((text.find(wanted) == std::string::npos ||
                                    text.find("waiting for rank 1") == std::string::npos) &&
                                   seconds_now() < deadline_s) {
                              const auto report = inspect(pid, deadline_after_ms(5000));
                              text = report ? *report : std::string(report.status().text());
                            }
                            rank.expect_true(text.find("rank 0 of 2") != std::string::npos, text);
                            rank.expect_true(text.find("waiting for rank 1") != std::string::npos, text);
                            rank.expect_ok(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                                            rank.comm, TUTTI_BLOCKING),
                                           "all_reduce");
                          }),
              "")
        << hosts << " hosts";
  }
}

// Goal: a process tells who proves the job's key what its ranks are doing, while they compute, over the
// network; another key is refused with a text, and the job goes on. Method: rank 0 waits in a call, and rank
// 1, which computes, asks as a tool elsewhere would; the processes take ports of a range one after the other.
TEST(InspectTest, AnswersOverTheNetworkToHoldersOfTheKey) {
  for (const char* key : {"", "a secret of the job's own"}) {
    const int port = free_port();
    ClusterOptions options = Arrangement{processes(2), 1, 2}.options();
    options.environment = {{"TUTTI_INSPECT_PORTS", std::to_string(port) + "-" + std::to_string(port + 50)},
                           {"TUTTI_KEY", key}};
    EXPECT_EQ(
        run_cluster(options,
                    [port, key](Rank& rank) {
                      float value = 1;
                      if (rank.rank() == 0) {
                        rank.expect_ok(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                                        rank.comm, TUTTI_BLOCKING),
                                       "all_reduce");
                        return;
                      }
                      Config config;
                      config.key = key;
                      UniqueId id;
                      const tutti_unique_id_t bytes = rank.id();
                      std::memcpy(static_cast<void*>(&id), bytes.bytes, sizeof(id));
                      const auto ask = [&](int at, const Credentials& credentials) {
                        return inspect({"127.0.0.1", static_cast<uint16_t>(at)}, credentials,
                                       deadline_after_ms(5000));
                      };
                      const Credentials good = inspection_credentials(config, id);
                      // Which of the two has the first port is not known: both know of all ranks.
                      std::string text;
                      const double deadline_s = seconds_now() + patience_s(20);
                      while ((text.find("rank 0 is in collective 1, all_reduce") == std::string::npos) &&
                             seconds_now() < deadline_s) {
                        const auto report = ask(port, good);
                        text = report ? *report : std::string(report.status().text());
                      }
                      rank.expect_true(text.find("of 2 on 2 hosts") != std::string::npos, text);
                      rank.expect_true(text.find("rank 0 is in collective 1") != std::string::npos, text);
                      const auto refused = ask(port, credentials_from_text("another key", "tutti-inspect"));
                      rank.expect_true(!refused && refused.status().code() == Code::kInvalidArgument &&
                                           refused.status().text().find("key") != std::string_view::npos,
                                       std::string(refused.status().text()));
                      rank.expect_ok(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                                      TUTTI_BLOCKING),
                                     "all_reduce");
                    }),
        "")
        << "key \"" << key << "\"";
  }
}

TEST(InspectTest, NobodyThereIsSaid) {
  const HostPort nowhere{"127.0.0.1", static_cast<uint16_t>(free_port())};
  const auto report =
      inspect(nowhere, credentials_from_text("key", "tutti-inspect"), deadline_after_ms(5000));
  ASSERT_FALSE(report.is_ok());
  EXPECT_EQ(report.status().code(), Code::kPeerLost);
  EXPECT_NE(report.status().text().find(nowhere.text()), std::string_view::npos) << report.status().text();
}

// Goal: who connects and does not read holds up neither the process nor others that ask.
TEST(InspectTest, VisitorsWhoDoNotReadAreBounded) {
  auto control = ControlThread::start();
  ASSERT_TRUE(control.is_ok());
  const Credentials credentials = credentials_from_text("key", "tutti-inspect");
  const std::string long_report(900'000, 'r');
  auto door = InspectorServer::open(**control, {.interfaces = "=lo", .lowest_first = true}, credentials,
                                    [&] { return long_report; });
  ASSERT_TRUE(door.is_ok()) << door.status().text();
  const HostPort where{"127.0.0.1", (*door)->endpoint().port};
  std::vector<std::unique_ptr<ConnectedVisitor>> idle;
  for (int i = 0; i < 40; ++i)
    idle.push_back(std::make_unique<ConnectedVisitor>((*door)->endpoint(), credentials));
  const auto report = inspect(where, credentials, deadline_after_ms(20'000));
  ASSERT_TRUE(report.is_ok()) << report.status().text();
  EXPECT_EQ(*report, long_report);
}

// Goal: a process that runs out of memory for a visitor goes on, and the visitor learns soon that it gets no
// report. Method: in each turn a later allocation of the control thread fails, until none does.
TEST(InspectTest, AVisitWithoutMemoryEnds) {
  auto control = ControlThread::start();
  ASSERT_TRUE(control.is_ok());
  const Credentials credentials = credentials_from_text("key", "tutti-inspect");
  const std::string long_report(10'000, 'r');
  auto door = InspectorServer::open(**control, {.interfaces = "=lo", .lowest_first = true}, credentials,
                                    [&] { return long_report; });
  ASSERT_TRUE(door.is_ok()) << door.status().text();
  const HostPort where{"127.0.0.1", (*door)->endpoint().port};
  bool has_failed = true;
  for (uint64_t turn = 0; has_failed; ++turn) {
    ControlShortage shortage(**control, turn);
    const auto report = inspect(where, credentials, deadline_after_ms(60'000));
    has_failed = shortage.has_failed();
    const bool may_end = has_failed && report.status().code() == Code::kPeerLost;
    ASSERT_TRUE(may_end || (report && *report == long_report)) << turn << ": " << report.status().text();
  }
}

// More processes than ports: the next one ended with a segmentation fault.
TEST(InspectTest, NoFreePortIsAnError) {
  auto control = ControlThread::start();
  ASSERT_TRUE(control.is_ok());
  const auto taken = listen_at({.interfaces = "=lo"});
  ASSERT_TRUE(taken.is_ok());
  const uint16_t port = taken->endpoints[0].port;
  const auto door =
      InspectorServer::open(**control, {.interfaces = "=lo", .port_first = port, .port_last = port},
                            credentials_from_text("key", "tutti-inspect"), [] { return ""; });
  EXPECT_EQ(door.status().code(), Code::kSystemError) << door.status().text();
}

TEST(InspectTest, AProcessWithoutCommunicatorsIsSaidToBeOne) {
  const auto report = inspect(1, deadline_after_ms(1000));
  ASSERT_FALSE(report.is_ok());
  EXPECT_NE(report.status().text().find("process 1"), std::string_view::npos);
}

// Goal: SIGUSR2 writes the report, where it was asked for, and harms nothing.
TEST(InspectTest, ASignalWritesTheReport) {
  ClusterOptions options;
  options.environment = {{"TUTTI_REPORT_SIGNAL", "1"}};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          int ends[2];
                          rank.expect_true(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0, "pipe");
                          kill(getpid(), SIGUSR2);
                          std::string text;
                          char c = 0;
                          while (text.find("(this rank)") == std::string::npos && read(ends[0], &c, 1) == 1)
                            text += c;
                          rank.expect_true(
                              text.find("rank " + std::to_string(rank.rank()) + " of 2") != std::string::npos,
                              text);
                          rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "afterwards");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
