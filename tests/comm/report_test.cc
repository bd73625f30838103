// What a running process says of its ranks, to tools and signals.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "comm/inspector.h"
#include "comm/status_copy.h"
#include "core/clock.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

TEST(StatusTextTest, SaysWhatARankDoes) {
  StatusCopy status;
  EXPECT_EQ(describe_status(3, status), "rank 3 has made no collective call");
  status.in_messages = 1;
  status.waits_for = 2;
  EXPECT_EQ(describe_status(3, status),
            "rank 3 is in a group of sends and receives, step 0, waiting for rank 1");
  status.has_left = StatusPage::kLeft;
  EXPECT_EQ(describe_status(3, status), "rank 3 has left the communicator");
}

TEST(StatusTextTest, SurvivesTheWire) {
  StatusCopy status;
  status.sequence = 1ull << 40;
  status.unsent_bytes = 5;
  status.in_shrink = 1;
  const StatusCopy copy = decode_status(encode(status));
  EXPECT_EQ(copy.sequence, status.sequence);
  EXPECT_EQ(copy.unsent_bytes, 5u);
  EXPECT_EQ(copy.in_shrink, 1u);
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
