// Creating and destroying again and again leaves nothing: descriptors, threads, memory.
#include <gtest/gtest.h>

#include "tests/support/cluster.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

/// Runs `cycle` until handles and caches are warm, then `cycles` times, and compares what the process holds.
/// A fifth of both under a sanitizer: it judges memory by itself, at the end of the process.
std::string leaks(const std::function<bool()>& cycle, int warm_up, int cycles) {
  if (sanitized()) {
    warm_up /= 5;
    cycles /= 5;
  }
  for (int i = 0; i < warm_up; ++i) {
    if (!cycle()) return "a cycle failed: " + std::string(tutti_last_error());
  }
  const Holdings before = holdings();
  for (int i = 0; i < cycles; ++i) {
    if (!cycle()) return "a cycle failed: " + std::string(tutti_last_error());
  }
  const Holdings after = settled_holdings(before);
  std::string text;
  const auto compare = [&text](const char* what, long was, long is, long slack) {
    if (is > was + slack)
      text += std::string(what) + ": " + std::to_string(was) + ", then " + std::to_string(is) + "; ";
  };
  compare("descriptors", before.descriptors, after.descriptors, 0);
  compare("threads", before.threads, after.threads, 0);
  compare("shared mappings", before.shared_mappings, after.shared_mappings, 0);
  if (sanitized()) return text;
  compare("mappings", before.mappings, after.mappings, 8);
  compare("resident kB", before.resident_kb, after.resident_kb, 2048);
  return text;
}

bool use(tutti_comm_t* const* comms, int count) {
  constexpr size_t kEach = 50;
  std::vector<float> data(static_cast<size_t>(count) * kEach, 1.0f);
  bool fine = tutti_group_start() == TUTTI_SUCCESS;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    fine = fine && tutti_all_reduce(&data[kEach * i], &data[kEach * i], kEach, TUTTI_FLOAT32, TUTTI_SUM,
                                    comms[i], TUTTI_BLOCKING) == TUTTI_SUCCESS;
  }
  return tutti_group_end() == TUTTI_SUCCESS && fine && data[0] == static_cast<float>(count);
}

// Goal: 1,000 communicators of two threads, each used, leak nothing.
TEST(LeakTest, AThousandCyclesInOneProcessLeaveNothing) {
  EXPECT_EQ(run_child([] {
              return leaks(
                  [] {
                    tutti_comm_t* comms[2];
                    if (tutti_comm_create_all(comms, 2, nullptr) != TUTTI_SUCCESS || !use(comms, 2))
                      return false;
                    return tutti_comm_destroy(comms[0]) == TUTTI_SUCCESS &&
                           tutti_comm_destroy(comms[1]) == TUTTI_SUCCESS;
                  },
                  300, 1000);
            }),
            "");
}

TEST(LeakTest, CyclesOfCommunicatorsWithThreadsLeaveNothing) {
  EXPECT_EQ(run_child(
                [] {
                  tutti_config_t config = TUTTI_CONFIG_INIT;
                  config.threads = 3;
                  return leaks(
                      [&config] {
                        tutti_comm_t* comms[2];
                        return tutti_comm_create_all(comms, 2, &config) == TUTTI_SUCCESS && use(comms, 2) &&
                               tutti_comm_destroy(comms[0]) == TUTTI_SUCCESS &&
                               tutti_comm_destroy(comms[1]) == TUTTI_SUCCESS;
                      },
                      300, 300);
                },
                {{"TUTTI_STRIPE_BYTES", "64"}}),
            "");
}

TEST(LeakTest, CyclesOfSplitLeaveNothing) {
  EXPECT_EQ(run_child([] {
              tutti_comm_t* alone = nullptr;
              if (tutti_comm_create_all(&alone, 1, nullptr) != TUTTI_SUCCESS) return std::string("create");
              std::string text = leaks(
                  [alone] {
                    tutti_comm_t* part = nullptr;
                    tutti_comm_t* none = nullptr;
                    return tutti_comm_split(alone, 0, 0, &part, nullptr) == TUTTI_SUCCESS &&
                           tutti_comm_split(alone, TUTTI_NO_COLOR, 0, &none, nullptr) == TUTTI_SUCCESS &&
                           none == nullptr && tutti_comm_destroy(part) == TUTTI_SUCCESS;
                  },
                  300, 300);
              if (tutti_comm_destroy(alone) != TUTTI_SUCCESS) text += "destroy";
              return text;
            }),
            "");
}

TEST(LeakTest, CyclesOfFailedSetUpsLeaveNothing) {
  EXPECT_EQ(run_child([] {
              tutti_config_t config = TUTTI_CONFIG_INIT;
              config.setup_timeout_ms = 1;
              return leaks(
                  [&config] {
                    tutti_unique_id_t id;
                    tutti_comm_t* comm = nullptr;
                    return tutti_get_unique_id(&id) == TUTTI_SUCCESS &&
                           tutti_comm_create(&comm, 2, id, 0, &config) == TUTTI_TIMEOUT;
                  },
                  300, 200);
            }),
            "");
}

TEST(LeakTest, CyclesOfProcessesAndStreamsLeaveNothing) {
  ClusterOptions options;
  options.layout = processes(2);
  options.create = false;
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    const std::string text = leaks(
                        [&rank] {
                          float value = 1;
                          tutti_host_stream_t* stream = nullptr;
                          bool fine = rank.renew() && tutti_host_stream_create(&stream) == TUTTI_SUCCESS;
                          fine =
                              fine && tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                                       tutti_stream_host(stream)) == TUTTI_SUCCESS;
                          fine = fine && tutti_host_stream_destroy(stream) == TUTTI_SUCCESS && value == 2.0f;
                          fine = fine && tutti_comm_destroy(rank.comm) == TUTTI_SUCCESS;
                          rank.comm = nullptr;
                          return fine && rank.meet();
                        },
                        300, 200);
                    rank.expect_true(text.empty(), text);
                  }),
      "");
}

}  // namespace
}  // namespace tutti::test
