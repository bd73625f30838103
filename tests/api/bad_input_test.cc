// Bad input that one rank finds by itself: the code, a text that names argument and value, and a communicator
// that works as before.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

struct Buffers {
  std::vector<float> send = std::vector<float>(64, 1.0f);
  std::vector<float> recv = std::vector<float>(64, 0.0f);
  std::vector<size_t> counts;
};

struct BadCall {
  const char* name;
  std::function<tutti_result_t(const Rank&, Buffers&)> call;
  tutti_result_t code;
  std::vector<std::string> texts;
};

constexpr size_t kHuge = ~size_t{0} / 2;
const tutti_stream_t kNow = TUTTI_BLOCKING;

tutti_type_t bad_type() {
  return static_cast<tutti_type_t>(TUTTI_TYPE_COUNT);
}
tutti_op_t bad_op(int value) {
  return static_cast<tutti_op_t>(value);
}

std::vector<BadCall> bad_reductions() {
  const auto all_reduce = [](auto send, auto recv, size_t count, tutti_type_t type, tutti_op_t op) {
    return [=](const Rank& r, Buffers& b) {
      return tutti_all_reduce(send(b), recv(b), count, type, op, r.comm, kNow);
    };
  };
  const auto none = [](Buffers&) -> float* { return nullptr; };
  const auto send = [](Buffers& b) { return b.send.data(); };
  const auto recv = [](Buffers& b) { return b.recv.data(); };
  const auto inside = [](Buffers& b) { return b.send.data() + 1; };
  return {
      {"null send",
       all_reduce(none, recv, 4, TUTTI_FLOAT32, TUTTI_SUM),
       TUTTI_INVALID_ARGUMENT,
       {"send", "NULL"}},
      {"null recv",
       all_reduce(send, none, 4, TUTTI_FLOAT32, TUTTI_SUM),
       TUTTI_INVALID_ARGUMENT,
       {"recv", "NULL"}},
      {"type", all_reduce(send, recv, 4, bad_type(), TUTTI_SUM), TUTTI_INVALID_ARGUMENT, {"type", "15"}},
      {"op", all_reduce(send, recv, 4, TUTTI_FLOAT32, bad_op(77)), TUTTI_INVALID_ARGUMENT, {"op", "77"}},
      {"avg of bool",
       all_reduce(send, recv, 4, TUTTI_BOOL, TUTTI_AVG),
       TUTTI_INVALID_ARGUMENT,
       {"avg", "bool"}},
      {"bits of float",
       all_reduce(send, recv, 4, TUTTI_FLOAT16, TUTTI_BXOR),
       TUTTI_INVALID_ARGUMENT,
       {"float16"}},
      {"overflow",
       all_reduce(send, recv, kHuge, TUTTI_FLOAT32, TUTTI_SUM),
       TUTTI_INVALID_ARGUMENT,
       {"count", std::to_string(kHuge)}},
      {"overlap",
       all_reduce(send, inside, 4, TUTTI_FLOAT32, TUTTI_SUM),
       TUTTI_INVALID_ARGUMENT,
       {"send", "recv", "overlap"}},
      {"null comm",
       [](const Rank&, Buffers& b) {
         return tutti_all_reduce(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, TUTTI_SUM, nullptr, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"comm", "NULL"}},
      {"stream kind",
       [](const Rank& r, Buffers& b) {
         return tutti_all_reduce(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, TUTTI_SUM, r.comm,
                                 tutti_stream_make_(9, nullptr));
       },
       TUTTI_INVALID_ARGUMENT,
       {"stream", "9"}},
      {"null stream",
       [](const Rank& r, Buffers& b) {
         return tutti_all_reduce(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, TUTTI_SUM, r.comm,
                                 tutti_stream_host(nullptr));
       },
       TUTTI_INVALID_ARGUMENT,
       {"stream", "NULL"}},
      {"CUDA stream",
       [](const Rank& r, Buffers& b) {
         return tutti_all_reduce(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, TUTTI_SUM, r.comm,
                                 tutti_stream_cuda(nullptr));
       },
       TUTTI_UNSUPPORTED,
       {"CUDA"}},
  };
}

std::vector<BadCall> bad_collectives() {
  return {
      {"root of reduce",
       [](const Rank& r, Buffers& b) {
         return tutti_reduce(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, TUTTI_SUM, 2, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"root", "2", "0 to 1"}},
      {"root of broadcast",
       [](const Rank& r, Buffers& b) {
         return tutti_broadcast(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, -1, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"root", "-1"}},
      {"root of gather",
       [](const Rank& r, Buffers& b) {
         return tutti_gather(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, 99, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"root", "99"}},
      {"root of scatter",
       [](const Rank& r, Buffers& b) {
         return tutti_scatter(b.send.data(), b.recv.data(), 1, TUTTI_FLOAT32, 99, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"root", "99"}},
      {"all_gather overflows by its blocks",
       [](const Rank& r, Buffers& b) {
         return tutti_all_gather(b.send.data(), b.recv.data(), size_t{1} << 61, TUTTI_FLOAT32, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"count", "blocks"}},
      {"all_gather overlap",
       [](const Rank& r, Buffers& b) {
         return tutti_all_gather(b.recv.data() + 1, b.recv.data(), 4, TUTTI_FLOAT32, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"overlap"}},
      {"reduce_scatter overlap",
       [](const Rank& r, Buffers& b) {
         return tutti_reduce_scatter(b.send.data(), b.send.data() + 2, 4, TUTTI_FLOAT32, TUTTI_SUM, r.comm,
                                     kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"overlap"}},
      {"all_to_all null",
       [](const Rank& r, Buffers& b) {
         return tutti_all_to_all(b.send.data(), nullptr, 4, TUTTI_FLOAT32, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"recv"}},
  };
}

std::vector<BadCall> bad_variable_collectives() {
  return {
      {"all_gather_v counts",
       [](const Rank& r, Buffers& b) {
         return tutti_all_gather_v(b.send.data(), b.recv.data(), nullptr, nullptr, TUTTI_FLOAT32, r.comm,
                                   kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"counts", "NULL"}},
      {"all_gather_v overflow",
       [](const Rank& r, Buffers& b) {
         b.counts = {size_t{1} << 59, ~size_t{0} - 5};
         return tutti_all_gather_v(b.send.data(), b.recv.data(), b.counts.data(), nullptr, TUTTI_UINT8,
                                   r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"count"}},
      {"all_gather_v overlap",
       [](const Rank& r, Buffers& b) {
         b.counts = {4, 4};
         return tutti_all_gather_v(b.recv.data() + 1, b.recv.data(), b.counts.data(), nullptr, TUTTI_FLOAT32,
                                   r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"overlap"}},
      {"all_to_all_v in place",
       [](const Rank& r, Buffers& b) {
         b.counts = {4, 4};
         return tutti_all_to_all_v(b.send.data(), b.counts.data(), nullptr, b.send.data(), b.counts.data(),
                                   nullptr, TUTTI_FLOAT32, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"overlap"}},
      {"all_to_all_v to itself",
       [](const Rank& r, Buffers& b) {
         b.counts = {4, 4, 4, 4};
         b.counts[static_cast<size_t>(r.rank())] = 5;
         return tutti_all_to_all_v(b.send.data(), b.counts.data(), nullptr, b.recv.data(),
                                   b.counts.data() + 2, nullptr, TUTTI_FLOAT32, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"send_counts", "recv_counts"}},
  };
}

std::vector<BadCall> overflowing_variable_collectives() {
  return {
      {"all_gather_v counts that overflow together",
       [](const Rank& r, Buffers& b) {
         b.counts = {size_t{1} << 60, size_t{1} << 60};
         return tutti_all_gather_v(b.send.data(), b.recv.data(), b.counts.data(), nullptr, TUTTI_FLOAT32,
                                   r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"counts[0] to [1]", std::to_string(size_t{1} << 61)}},
      {"all_gather_v displacement",
       [](const Rank& r, Buffers& b) {
         b.counts = {1, 1, 0, kHuge};
         return tutti_all_gather_v(b.send.data(), b.recv.data(), b.counts.data(), b.counts.data() + 2,
                                   TUTTI_FLOAT32, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"argument displacements[1] is " + std::to_string(kHuge)}},
      {"reduce_scatter_v displacement",
       [](const Rank& r, Buffers& b) {
         b.counts = {1, 1, kHuge, 0};
         return tutti_reduce_scatter_v(b.send.data(), b.recv.data(), b.counts.data(), b.counts.data() + 2,
                                       TUTTI_FLOAT32, TUTTI_SUM, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"argument displacements[0] is " + std::to_string(kHuge)}},
      {"all_to_all_v displacement",
       [](const Rank& r, Buffers& b) {
         b.counts = {1, 1, 0, kHuge};
         return tutti_all_to_all_v(b.send.data(), b.counts.data(), nullptr, b.recv.data(), b.counts.data(),
                                   b.counts.data() + 2, TUTTI_FLOAT32, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"argument recv_displacements[1] is " + std::to_string(kHuge)}},
  };
}

std::vector<BadCall> bad_messages() {
  return {
      {"peer",
       [](const Rank& r, Buffers& b) { return tutti_send(b.send.data(), 1, TUTTI_INT8, 2, 0, r.comm, kNow); },
       TUTTI_INVALID_ARGUMENT,
       {"peer", "2"}},
      {"negative peer",
       [](const Rank& r, Buffers& b) {
         return tutti_recv(b.recv.data(), 1, TUTTI_INT8, -1, 0, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"peer", "-1"}},
      {"tag",
       [](const Rank& r, Buffers& b) {
         return tutti_send(b.send.data(), 1, TUTTI_INT8, 0, 65536, r.comm, kNow);
       },
       TUTTI_INVALID_ARGUMENT,
       {"tag", "65536"}},
      {"type of send",
       [](const Rank& r, Buffers& b) { return tutti_send(b.send.data(), 1, bad_type(), 0, 0, r.comm, kNow); },
       TUTTI_INVALID_ARGUMENT,
       {"type"}},
      {"null send",
       [](const Rank& r, Buffers&) { return tutti_send(nullptr, 1, TUTTI_INT8, 1, 0, r.comm, kNow); },
       TUTTI_INVALID_ARGUMENT,
       {"send", "NULL"}},
      {"null recv",
       [](const Rank& r, Buffers&) { return tutti_recv(nullptr, 1, TUTTI_INT8, 1, 0, r.comm, kNow); },
       TUTTI_INVALID_ARGUMENT,
       {"recv", "NULL"}},
      {"send to itself",
       [](const Rank& r, Buffers& b) {
         return tutti_send(b.send.data(), 1, TUTTI_INT8, r.rank(), 0, r.comm, kNow);
       },
       TUTTI_INVALID_USAGE,
       {"rank 0 sends to itself", "tutti_recv", "tutti_group_start"}},
      {"receive from itself",
       [](const Rank& r, Buffers& b) {
         return tutti_recv(b.recv.data(), 1, TUTTI_INT8, r.rank(), 0, r.comm, kNow);
       },
       TUTTI_INVALID_USAGE,
       {"rank 0 receives from itself", "tutti_send", "tutti_group_start"}},
      {"group end",
       [](const Rank&, Buffers&) { return tutti_group_end(); },
       TUTTI_INVALID_USAGE,
       {"tutti_group_start"}},
  };
}

std::vector<BadCall> bad_housekeeping() {
  return {
      {"version",
       [](const Rank&, Buffers&) { return tutti_get_version(nullptr); },
       TUTTI_INVALID_ARGUMENT,
       {"version"}},
      {"unique id",
       [](const Rank&, Buffers&) { return tutti_get_unique_id(nullptr); },
       TUTTI_INVALID_ARGUMENT,
       {"id"}},
      {"rank",
       [](const Rank& r, Buffers&) { return tutti_comm_rank(r.comm, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       {"rank"}},
      {"count",
       [](const Rank& r, Buffers&) { return tutti_comm_count(r.comm, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       {"rank_count"}},
      {"async error",
       [](const Rank& r, Buffers&) { return tutti_comm_async_error(r.comm, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       {"error"}},
      {"explain",
       [](const Rank& r, Buffers&) { return tutti_comm_explain(r.comm, nullptr, 10); },
       TUTTI_INVALID_ARGUMENT,
       {"text"}},
      {"no room",
       [](const Rank& r, Buffers& b) {
         return tutti_comm_explain(r.comm, reinterpret_cast<char*>(b.recv.data()), 0);
       },
       TUTTI_INVALID_ARGUMENT,
       {"bytes"}},
      {"timeout",
       [](const Rank& r, Buffers&) { return tutti_comm_set_timeout(r.comm, UINT64_MAX); },
       TUTTI_INVALID_ARGUMENT,
       {"timeout_ms", "a year"}},
      {"split",
       [](const Rank& r, Buffers&) { return tutti_comm_split(r.comm, 0, 0, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       {"new_comm"}},
      {"color",
       [](const Rank& r, Buffers&) {
         tutti_comm_t* part = nullptr;
         return tutti_comm_split(r.comm, -2, 0, &part, nullptr);
       },
       TUTTI_INVALID_ARGUMENT,
       {"color", "-2"}},
  };
}

std::vector<BadCall> bad_operators_and_memory() {
  return {
      {"premul scalar",
       [](const Rank& r, Buffers&) {
         tutti_op_t op;
         return tutti_op_create_premul_sum(&op, nullptr, TUTTI_FLOAT32, r.comm);
       },
       TUTTI_INVALID_ARGUMENT,
       {"scalar"}},
      {"premul of bool",
       [](const Rank& r, Buffers& b) {
         tutti_op_t op;
         return tutti_op_create_premul_sum(&op, b.send.data(), TUTTI_BOOL, r.comm);
       },
       TUTTI_INVALID_ARGUMENT,
       {"type", "14"}},
      {"premul destroyed twice",
       [](const Rank& r, Buffers&) { return tutti_op_destroy(bad_op(12), r.comm); },
       TUTTI_INVALID_ARGUMENT,
       {"op", "12"}},
      {"memory that is not ours",
       [](const Rank&, Buffers& b) { return tutti_mem_free(b.send.data()); },
       TUTTI_INVALID_ARGUMENT,
       {"tutti_mem_alloc"}},
      {"too much memory",
       [](const Rank&, Buffers&) {
         void* memory = nullptr;
         return tutti_mem_alloc(&memory, size_t{1} << 60);
       },
       TUTTI_OUT_OF_MEMORY,
       {std::to_string(size_t{1} << 60)}},
      {"registration",
       [](const Rank& r, Buffers& b) {
         return tutti_memory_deregister(r.comm, reinterpret_cast<tutti_registered_memory_t*>(b.send.data()));
       },
       TUTTI_INVALID_ARGUMENT,
       {"not registered memory"}},
      {"nothing to register",
       [](const Rank& r, Buffers& b) {
         tutti_registered_memory_t* registered = nullptr;
         return tutti_memory_register(r.comm, b.send.data(), 0, &registered);
       },
       TUTTI_INVALID_ARGUMENT,
       {"bytes"}},
      {"registration past the end of the address space",
       [](const Rank& r, Buffers& b) {
         tutti_registered_memory_t* registered = nullptr;
         return tutti_memory_register(r.comm, b.send.data(), SIZE_MAX, &registered);
       },
       TUTTI_INVALID_ARGUMENT,
       {"bytes", std::to_string(SIZE_MAX)}},
  };
}

void expect_right_sum(Rank& rank, const std::string& after) {
  std::vector<float> data(17, static_cast<float>(rank.rank() + 1));
  rank.expect_ok(
      tutti_all_reduce(data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_SUM, rank.comm, kNow),
      "all_reduce after " + after);
  rank.expect_true(data[16] == 3.0f, "wrong sum after " + after);
}

// Goal: every bad argument is an error of its kind, found before anything is sent.
// Method: only rank 0 makes the bad call; then both ranks make a good one, also as a group that the call
// spoils.
TEST(BadInputTest, IsNamedAndChangesNothing) {
  std::vector<BadCall> calls = bad_reductions();
  for (auto more : {bad_collectives(), bad_variable_collectives(), overflowing_variable_collectives(),
                    bad_messages(), bad_housekeeping(), bad_operators_and_memory()}) {
    calls.insert(calls.end(), more.begin(), more.end());
  }
  EXPECT_EQ(run_cluster({},
                        [&](Rank& rank) {
                          Buffers buffers;
                          for (const BadCall& bad : calls) {
                            rank.at(bad.name);
                            if (rank.rank() == 0) {
                              rank.expect(bad.call(rank, buffers), bad.code, bad.name);
                              rank.expect_text(bad.texts, bad.name);
                              tutti_result_t state = TUTTI_INTERNAL_ERROR;
                              rank.expect_ok(tutti_comm_async_error(rank.comm, &state), "async_error");
                              rank.expect(state, TUTTI_SUCCESS, bad.name);
                            }
                            expect_right_sum(rank, bad.name);
                          }
                        }),
            "");
}

// Goal: a call that differs from the last good message in its bad argument only is checked all the same.
TEST(BadInputTest, AfterAGoodMessageIsNamed) {
  EXPECT_EQ(run_cluster({},
                        [](Rank& rank) {
                          Buffers buffers;
                          signed char byte = 7;
                          for (const BadCall& bad : bad_messages()) {
                            rank.at(bad.name);
                            if (rank.rank() == 1) {
                              rank.expect_ok(tutti_recv(&byte, 1, TUTTI_INT8, 0, 0, rank.comm, kNow), "recv");
                              continue;
                            }
                            rank.expect_ok(tutti_send(&byte, 1, TUTTI_INT8, 1, 0, rank.comm, kNow), "send");
                            rank.expect(bad.call(rank, buffers), bad.code, bad.name);
                            rank.expect_text(bad.texts, bad.name);
                          }
                        }),
            "");
}

// Goal: an argument error inside a group is returned by the call and by the end, and nothing of the group is
// issued.
TEST(BadInputTest, InsideAGroupSpoilsTheGroup) {
  std::vector<BadCall> calls = bad_reductions();
  for (auto more :
       {bad_collectives(), bad_variable_collectives(), overflowing_variable_collectives(), bad_messages()})
    calls.insert(calls.end(), more.begin(), more.end());
  // The unmatched end, and messages to itself, which are judged at the end.
  calls.resize(calls.size() - 3);
  EXPECT_EQ(
      run_cluster({},
                  [&](Rank& rank) {
                    Buffers buffers;
                    for (const BadCall& bad : calls) {
                      rank.at(bad.name);
                      if (rank.rank() == 0) {
                        float value = 1;
                        rank.expect_ok(tutti_group_start(), "start");
                        rank.expect_ok(
                            tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, kNow),
                            "inside");
                        rank.expect(bad.call(rank, buffers), bad.code, bad.name);
                        rank.expect_ok(tutti_send(&value, 1, TUTTI_FLOAT32, 1, 0, rank.comm, kNow), "inside");
                        rank.expect(tutti_group_end(), bad.code, std::string("end after ") + bad.name);
                        rank.expect_text(bad.texts, bad.name);
                        rank.expect_true(value == 1.0f, "a spoiled group ran");
                      }
                      expect_right_sum(rank, bad.name);
                    }
                  }),
      "");
}

// Goal: creating with bad arguments is an error that leaves no communicator.
TEST(BadInputTest, OfCreateIsNamed) {
  EXPECT_EQ(
      run_child([] {
        std::string failures;
        tutti_unique_id_t id;
        if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) return std::string("id");
        tutti_comm_t* comm = nullptr;
        const auto expect = [&](const char* name, tutti_result_t got, tutti_result_t wanted,
                                const char* text) {
          if (got != wanted || std::string(tutti_last_error()).find(text) == std::string::npos ||
              comm != nullptr) {
            failures += std::string(name) + ": " + tutti_error_string(got) + ": " + tutti_last_error() + "\n";
          }
        };
        expect("null", tutti_comm_create(nullptr, 1, id, 0, nullptr), TUTTI_INVALID_ARGUMENT, "comm is NULL");
        expect("no rank", tutti_comm_create(&comm, 0, id, 0, nullptr), TUTTI_INVALID_ARGUMENT,
               "rank_count is 0");
        expect("many", tutti_comm_create(&comm, 1 << 20, id, 0, nullptr), TUTTI_INVALID_ARGUMENT,
               "rank_count is 1048576");
        expect("rank", tutti_comm_create(&comm, 2, id, 2, nullptr), TUTTI_INVALID_ARGUMENT, "rank is 2");
        expect("negative", tutti_comm_create(&comm, 2, id, -1, nullptr), TUTTI_INVALID_ARGUMENT,
               "rank is -1");
        tutti_config_t config = TUTTI_CONFIG_INIT;
        config.size = 3;
        expect("size", tutti_comm_create(&comm, 1, id, 0, &config), TUTTI_INVALID_ARGUMENT, "size is 3");
        config = TUTTI_CONFIG_INIT;
        config.device = TUTTI_CUDA_DEVICE(0);
        expect("device", tutti_comm_create(&comm, 1, id, 0, &config), TUTTI_UNSUPPORTED, "CUDA device 0");
        for (const auto& [device, text] :
             {std::pair(-7, "device is -7"), std::pair(1, "TUTTI_CUDA_DEVICE(n)")}) {
          config.device = device;
          expect("device", tutti_comm_create(&comm, 1, id, 0, &config), TUTTI_INVALID_ARGUMENT, text);
        }
        config = TUTTI_CONFIG_INIT;
        config.threads = 17;
        expect("threads", tutti_comm_create(&comm, 1, id, 0, &config), TUTTI_INVALID_ARGUMENT,
               "threads is 17");
        config = TUTTI_CONFIG_INIT;
        config.reproducible = 2;
        expect("reproducible", tutti_comm_create(&comm, 1, id, 0, &config), TUTTI_INVALID_ARGUMENT,
               "reproducible");
        config = TUTTI_CONFIG_INIT;
        config.algorithm = "rings";
        expect("algorithm", tutti_comm_create(&comm, 1, id, 0, &config), TUTTI_INVALID_ARGUMENT, "\"rings\"");
        expect("all", tutti_comm_create_all(nullptr, 2, nullptr), TUTTI_INVALID_ARGUMENT, "comms");
        expect("none", tutti_comm_create_all(&comm, 0, nullptr), TUTTI_INVALID_ARGUMENT, "rank_count is 0");
        return failures;
      }),
      "");
}

// Goal: a wrong environment variable is an error that names it, by every call but those that hand out ids: by
// these the other ranks learn of it.
TEST(BadInputTest, OfTheEnvironmentIsNamed) {
  struct Case {
    std::string name, value, text;
  };
  const std::vector<Case> wrong = {
      {"TUTTI_SLOTS", "7", "TUTTI_SLOTS is \"7\""},
      {"TUTTI_ALGORITHM", "no_such_name", "TUTTI_ALGORITHM is \"no_such_name\""},
      {"TUTTI_CHOICE_FILE", "/", "TUTTI_CHOICE_FILE is \"/\""},
      {"TUTTI_SOCKET_IFNAME", "=none", "fits the filter \"=none\" (of TUTTI_SOCKET_IFNAME"}};
  for (const Case& one : wrong) {
    EXPECT_EQ(run_child(
                  [&one] {
                    tutti_unique_id_t id;
                    tutti_comm_t* comm = nullptr;
                    void* memory = nullptr;
                    if (tutti_get_unique_id(&id) != TUTTI_SUCCESS) return std::string(tutti_last_error());
                    const auto is_refused = [&](tutti_result_t result) {
                      const std::string text = tutti_last_error();
                      return result == TUTTI_INVALID_ARGUMENT && text.find(one.text) != std::string::npos;
                    };
                    const bool good = is_refused(tutti_mem_alloc(&memory, 64)) &&
                                      is_refused(tutti_comm_create_all(&comm, 1, nullptr)) &&
                                      is_refused(tutti_comm_create(&comm, 1, id, 0, nullptr));
                    return good ? std::string() : "got: " + std::string(tutti_last_error());
                  },
                  {{one.name, one.value}}),
              "");
  }
}

// Goal: split and grow refuse a config before they exchange anything: a rank that has passed a bad one tries
// again, and meets the others, who know nothing of it.
TEST(ConfigTest, IsCheckedBeforeRanksExchangeAnything) {
  ClusterOptions options;
  options.layout = processes(2);
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    tutti_config_t bad = TUTTI_CONFIG_INIT;
                    bad.threads = -1;
                    tutti_comm_t* made = nullptr;
                    if (rank.rank() == 0) {
                      rank.expect(tutti_comm_split(rank.comm, 0, 0, &made, &bad), TUTTI_INVALID_ARGUMENT,
                                  "split");
                      rank.expect_text({"config.threads", "-1"}, "split");
                      tutti_unique_id_t id;
                      rank.expect_ok(tutti_get_unique_id(&id), "id");
                      rank.expect(tutti_comm_grow(rank.comm, 3, &id, -1, &made, &bad), TUTTI_INVALID_ARGUMENT,
                                  "grow");
                      rank.expect_text({"config.threads", "-1"}, "grow");
                    }
                    if (!rank.expect_ok(tutti_comm_split(rank.comm, 0, 0, &made, nullptr), "a good split"))
                      return;
                    rank.expect_ok(tutti_barrier(made, kNow), "barrier");
                    rank.expect_ok(tutti_comm_destroy(made), "destroy");
                  }),
      "");
}

// Goal: create_all with a bad config leaves nothing behind. It once made an id first, and its listener
// stayed.
TEST(ConfigTest, OfCreateAllIsCheckedFirst) {
  EXPECT_EQ(run_child([]() -> std::string {
              tutti_comm_t* comms[2] = {};
              if (tutti_comm_create_all(comms, 2, nullptr) != TUTTI_SUCCESS) return tutti_last_error();
              for (tutti_comm_t* comm : comms) {
                if (tutti_comm_destroy(comm) != TUTTI_SUCCESS) return tutti_last_error();
              }
              const Holdings quiet = settled_holdings(holdings());
              tutti_config_t bad = TUTTI_CONFIG_INIT;
              bad.threads = -1;
              for (int i = 0; i < 10; ++i) {
                if (tutti_comm_create_all(comms, 2, &bad) != TUTTI_INVALID_ARGUMENT) return "no error";
              }
              const Holdings after = settled_holdings(quiet);
              if (after.descriptors > quiet.descriptors)
                return std::to_string(after.descriptors - quiet.descriptors) + " descriptors were left";
              return "";
            }),
            "");
}

/// "" when the result is the wanted one.
std::string unless(tutti_result_t result, tutti_result_t wanted, const char* name) {
  if (result == wanted) return "";
  return std::string(name) + ": " + tutti_error_string(result) + ": " + tutti_last_error() + "\n";
}

/// One after the other, as a list of arguments need not be.
std::string joined(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

// Goal: a finalized communicator refuses operations only: it can be asked, and what it holds be given back.
TEST(UseAfterFinalizeTest, OnlyOperationsAreRefused) {
  EXPECT_EQ(
      run_child([] {
        tutti_comm_t* comm = nullptr;
        if (tutti_comm_create_all(&comm, 1, nullptr) != TUTTI_SUCCESS) return std::string(tutti_last_error());
        float value = 2;
        tutti_registered_memory_t* registered = nullptr;
        tutti_op_t op = TUTTI_SUM;
        std::string failures =
            joined({unless(tutti_memory_register(comm, &value, sizeof(value), &registered), TUTTI_SUCCESS,
                           "register"),
                    unless(tutti_op_create_premul_sum(&op, &value, TUTTI_FLOAT32, comm), TUTTI_SUCCESS, "op"),
                    unless(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, op, comm, kNow), TUTTI_SUCCESS,
                           "call"),
                    unless(tutti_comm_finalize(comm), TUTTI_SUCCESS, "finalize")});
        tutti_registered_memory_t* late = nullptr;
        tutti_op_t late_op = TUTTI_SUM;
        tutti_comm_t* part = nullptr;
        failures +=
            joined({unless(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, op, comm, kNow),
                           TUTTI_INVALID_USAGE, "repeated call"),
                    unless(tutti_barrier(comm, kNow), TUTTI_INVALID_USAGE, "barrier"),
                    unless(tutti_comm_split(comm, 0, 0, &part, nullptr), TUTTI_INVALID_USAGE, "split"),
                    unless(tutti_memory_register(comm, &value, sizeof(value), &late), TUTTI_INVALID_USAGE,
                           "register"),
                    unless(tutti_op_create_premul_sum(&late_op, &value, TUTTI_FLOAT32, comm),
                           TUTTI_INVALID_USAGE, "late op"),
                    unless(tutti_comm_set_timeout(comm, 1), TUTTI_INVALID_USAGE, "late timeout"),
                    unless(tutti_comm_finalize(comm), TUTTI_INVALID_USAGE, "second finalize")});
        int rank = -1;
        int count = -1;
        char text[200] = "";
        tutti_result_t state = TUTTI_INTERNAL_ERROR;
        failures += joined({unless(tutti_comm_rank(comm, &rank), TUTTI_SUCCESS, "rank"),
                            unless(tutti_comm_count(comm, &count), TUTTI_SUCCESS, "count"),
                            unless(tutti_comm_explain(comm, text, sizeof(text)), TUTTI_SUCCESS, "explain"),
                            unless(tutti_comm_async_error(comm, &state), TUTTI_SUCCESS, "async_error"),
                            unless(tutti_memory_deregister(comm, registered), TUTTI_SUCCESS, "deregister"),
                            unless(tutti_op_destroy(op, comm), TUTTI_SUCCESS, "op_destroy"),
                            unless(tutti_comm_destroy(comm), TUTTI_SUCCESS, "destroy")});
        if (rank != 0 || count != 1 || state != TUTTI_SUCCESS) failures += "wrong answers\n";
        if (std::string(text).find("all_reduce") == std::string::npos)
          failures += std::string("explain: ") + text;
        return failures;
      }),
      "");
}

// Goal: a handle that is dead is refused, for every call, without a crash.
TEST(UseAfterDestroyTest, IsRefused) {
  EXPECT_EQ(run_child([] {
              tutti_comm_t* comm = nullptr;
              if (tutti_comm_create_all(&comm, 1, nullptr) != TUTTI_SUCCESS)
                return std::string(tutti_last_error());
              float value = 1;
              if (tutti_comm_finalize(comm) != TUTTI_SUCCESS) return std::string("finalize");
              if (tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, kNow) !=
                  TUTTI_INVALID_USAGE) {
                return std::string("after finalize");
              }
              if (tutti_comm_destroy(comm) != TUTTI_SUCCESS) return std::string("destroy");
              int rank = 0;
              tutti_result_t state;
              const tutti_result_t results[] = {
                  tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, kNow),
                  tutti_barrier(comm, kNow),
                  tutti_comm_rank(comm, &rank),
                  tutti_comm_async_error(comm, &state),
                  tutti_comm_finalize(comm),
                  tutti_comm_destroy(comm),
                  tutti_comm_abort(comm),
              };
              std::string failures;
              for (const tutti_result_t result : results) {
                if (result != TUTTI_INVALID_USAGE) failures += std::string(tutti_error_string(result)) + "; ";
              }
              if (tutti_comm_destroy(nullptr) != TUTTI_SUCCESS ||
                  tutti_comm_abort(nullptr) != TUTTI_SUCCESS || tutti_mem_free(nullptr) != TUTTI_SUCCESS ||
                  tutti_host_stream_destroy(nullptr) != TUTTI_SUCCESS) {
                failures += "NULL is not accepted";
              }
              return failures;
            }),
            "");
}

/// Fails a call when its thread's other objects have gone.
struct CallsLast {
  ~CallsLast() {
    tutti_comm_rank(nullptr, nullptr);
    text = tutti_last_error();
    ends_groups = tutti_group_start() == TUTTI_SUCCESS && tutti_group_end() == TUTTI_SUCCESS;
  }
  static inline std::string text;
  static inline bool ends_groups = false;
};

// Goal: calls from destructors that run when a thread's objects have gone have their errors' texts, as those
// of static objects at exit. The text was once kept in a string that had been destroyed.
TEST(LastErrorTest, IsThereToTheEndOfTheThread) {
  EXPECT_EQ(run_child([]() -> std::string {
              std::thread([] {
                static thread_local CallsLast last;
                static_cast<void>(&last);
                // A long text, so that it lies on the heap: made after `last`, it goes before.
                tutti_comm_rank(nullptr, nullptr);
                tutti_group_start();
                tutti_group_end();
              }).join();
              if (CallsLast::text != "argument comm is NULL") return "the text: " + CallsLast::text;
              // What was made late is leaked, as it is meant.
              skip_leak_check();
              return CallsLast::ends_groups ? "" : "no group";
            }),
            "");
}

TEST(ErrorStringTest, IsNeverNull) {
  for (int code = -2; code < 40; ++code) {
    const char* text = tutti_error_string(static_cast<tutti_result_t>(code));
    ASSERT_NE(text, nullptr);
    EXPECT_GT(std::strlen(text), 0u);
  }
}

}  // namespace
}  // namespace tutti::test
