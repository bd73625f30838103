// Communicators: split, all ranks at once, pre-multiplied sums, memory, registration, large counts.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "tests/support/cluster.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

class LifecycleTest : public testing::TestWithParam<Arrangement> {
 protected:
  static ClusterOptions options() { return GetParam().options(); }
};

float sum_of_ranks(Rank& rank, tutti_comm_t* comm, float mine) {
  rank.expect_ok(tutti_all_reduce(&mine, &mine, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, TUTTI_BLOCKING),
                 "all_reduce");
  return mine;
}

// Goal: ranks of one color meet, ordered by key and then by rank; others get nothing.
TEST_P(LifecycleTest, SplitOrdersByKeyThenByRank) {
  EXPECT_EQ(run_cluster(
                options(),
                [](Rank& rank) {
                  const int me = rank.rank();
                  // Color 0: even ranks in reverse; color 1: rank 1; the rest take no part.
                  const int color = me % 2 == 0 ? 0 : me == 1 ? 1 : TUTTI_NO_COLOR;
                  tutti_comm_t* part = rank.comm;
                  rank.expect_ok(tutti_comm_split(rank.comm, color, -me, &part, nullptr), "split");
                  if (color == TUTTI_NO_COLOR) {
                    rank.expect_true(part == nullptr, "got a communicator without a color");
                  } else {
                    int number = -1;
                    int count = -1;
                    rank.expect_ok(tutti_comm_rank(part, &number), "rank");
                    rank.expect_ok(tutti_comm_count(part, &count), "count");
                    const int members = color == 1 ? 1 : (rank.count() + 1) / 2;
                    rank.expect_true(count == members, "count");
                    rank.expect_true(number == (color == 1 ? 0 : members - 1 - me / 2), "rank");
                    rank.expect_true(sum_of_ranks(rank, part, 1.0f) == static_cast<float>(members),
                                     "sum in the part");
                  }
                  rank.expect_true(sum_of_ranks(rank, rank.comm, 1.0f) == static_cast<float>(rank.count()),
                                   "sum in the whole");
                  rank.expect_ok(tutti_comm_destroy(part), "destroy");
                  tutti_comm_t* same = nullptr;
                  rank.expect_ok(tutti_comm_split(rank.comm, 3, 0, &same, nullptr), "split with equal keys");
                  int number = -1;
                  rank.expect_ok(tutti_comm_rank(same, &number), "rank");
                  rank.expect_true(number == me, "equal keys keep the order");
                  rank.expect_ok(tutti_comm_destroy(same), "destroy");
                }),
            "");
}

// Goal: a pre-multiplied sum multiplies this rank's operand; the operator dies with op_destroy and fits one
// type.
TEST_P(LifecycleTest, PremultipliedSum) {
  EXPECT_EQ(
      run_cluster(
          options(),
          [](Rank& rank) {
            const double scalar = rank.rank() + 1;
            tutti_op_t op;
            rank.expect_ok(tutti_op_create_premul_sum(&op, &scalar, TUTTI_FLOAT64, rank.comm), "create");
            std::vector<double> data(100, 2.0);
            rank.expect_ok(
                tutti_all_reduce(data.data(), data.data(), 100, TUTTI_FLOAT64, op, rank.comm, TUTTI_BLOCKING),
                "sum");
            rank.expect_true(data[99] == rank.count() * (rank.count() + 1.0), "value");
            rank.expect(
                tutti_all_reduce(data.data(), data.data(), 50, TUTTI_FLOAT32, op, rank.comm, TUTTI_BLOCKING),
                TUTTI_INVALID_ARGUMENT, "another type");
            rank.expect_text({"float64", "float32"}, "another type");
            rank.expect_ok(tutti_op_destroy(op, rank.comm), "destroy");
            // The same arguments as the last good call: a cached check must not let it pass.
            rank.expect(
                tutti_all_reduce(data.data(), data.data(), 100, TUTTI_FLOAT64, op, rank.comm, TUTTI_BLOCKING),
                TUTTI_INVALID_ARGUMENT, "after op_destroy");
            rank.expect_true(sum_of_ranks(rank, rank.comm, 1.0f) == static_cast<float>(rank.count()),
                             "afterwards");
          }),
      "");
}

// Goal: a uniform call after a variable one of the same total, and the reverse, use their own geometry.
TEST_P(LifecycleTest, VariableAndUniformCallsDoNotMixUp) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          const auto ranks = static_cast<size_t>(rank.count());
                          std::vector<size_t> counts(ranks, 0);
                          counts[0] = 12;
                          std::vector<int32_t> send(12, rank.rank() + 1);
                          for (int turn = 0; turn < 2; ++turn) {
                            std::vector<int32_t> recv(12 * ranks, 0);
                            rank.expect_ok(
                                tutti_all_gather_v(send.data(), recv.data(), counts.data(), nullptr,
                                                   TUTTI_INT32, rank.comm, TUTTI_BLOCKING),
                                "all_gather_v");
                            rank.expect_true(recv[11] == 1 && (ranks == 1 || recv[12] == 0), "all_gather_v");
                            rank.expect_ok(tutti_all_gather(send.data(), recv.data(), 12, TUTTI_INT32,
                                                            rank.comm, TUTTI_BLOCKING),
                                           "all_gather");
                            rank.expect_true(recv[12 * ranks - 1] == rank.count(), "all_gather");
                          }
                        }),
            "");
}

// Goal: a variable call after one of the same total uses its own blocks, and the same call again still does.
TEST_P(LifecycleTest, VariableCallsOfOneTotalDoNotMixUp) {
  EXPECT_EQ(
      run_cluster(options(),
                  [](Rank& rank) {
                    const int last = rank.count() - 1;
                    const std::vector<int32_t> send(12, rank.rank() + 1);
                    for (const int giver : {0, 0, last, last, 0}) {
                      std::vector<size_t> counts(static_cast<size_t>(rank.count()), 0);
                      counts[static_cast<size_t>(giver)] = 12;
                      std::vector<int32_t> recv(12, 0);
                      rank.expect_ok(tutti_all_gather_v(send.data(), recv.data(), counts.data(), nullptr,
                                                        TUTTI_INT32, rank.comm, TUTTI_BLOCKING),
                                     "all_gather_v");
                      rank.expect_true(recv == std::vector<int32_t>(12, giver + 1), "the giver's block");
                    }
                  }),
      "");
}

// Goal: a repeated call is checked like the first: other buffers, bad ones, another communicator's state.
TEST_P(LifecycleTest, RepeatedCallsAreStillChecked) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          std::vector<float> a(64, 1.0f);
                          std::vector<float> b(64, 0.0f);
                          const auto sum = [&](const float* send, float* recv) {
                            return tutti_all_reduce(send, recv, 32, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                                    TUTTI_BLOCKING);
                          };
                          for (int turn = 0; turn < 3; ++turn)
                            rank.expect_ok(sum(a.data(), b.data()), "out of place");
                          rank.expect(sum(nullptr, b.data()), TUTTI_INVALID_ARGUMENT, "null send");
                          rank.expect(sum(a.data(), nullptr), TUTTI_INVALID_ARGUMENT, "null recv");
                          rank.expect(sum(a.data(), a.data() + 1), TUTTI_INVALID_ARGUMENT, "overlap");
                          rank.expect_ok(sum(a.data(), a.data()), "in place");
                          rank.expect_ok(sum(a.data(), a.data()), "in place");
                          rank.expect_ok(sum(a.data() + 32, b.data() + 32), "out of place");
                          rank.expect_true(
                              a[0] == static_cast<float>(rank.count()) * static_cast<float>(rank.count()),
                              "in place twice");
                          rank.expect_true(b[63] == static_cast<float>(rank.count()), "out of place");
                        }),
            "");
}

// Goal: memory of the heap is aligned, zeroed also when it is used again, and may be registered.
TEST_P(LifecycleTest, MemoryOfTheHeap) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{3} << 20}) {
                            void* memory = nullptr;
                            rank.expect_ok(tutti_mem_alloc(&memory, bytes), "mem_alloc");
                            rank.expect_true(reinterpret_cast<uintptr_t>(memory) % 4096 == 0, "alignment");
                            const auto* begin = static_cast<const unsigned char*>(memory);
                            rank.expect_true(std::all_of(begin, begin + bytes,
                                                         [](unsigned char byte) { return byte == 0; }),
                                             "not zero");
                            tutti_registered_memory_t* registered = nullptr;
                            rank.expect_ok(tutti_memory_register(rank.comm, memory, bytes, &registered),
                                           "register");
                            rank.expect_true(registered == nullptr, "peers reach the heap anyway");
                            std::memset(memory, 1, bytes);
                            rank.expect_ok(tutti_all_reduce(memory, memory, bytes, TUTTI_UINT8, TUTTI_SUM,
                                                            rank.comm, TUTTI_BLOCKING),
                                           "sum");
                            rank.expect_true(begin[bytes - 1] == rank.count(), "value");
                            rank.expect_ok(tutti_memory_deregister(rank.comm, registered), "deregister");
                            rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                            rank.expect_ok(tutti_mem_free(memory), "mem_free");
                            // All have freed and none allocates again: the heap belongs to the process, so
                            // another thread's next allocation could have this address.
                            rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                            rank.expect(tutti_mem_free(memory), TUTTI_INVALID_ARGUMENT, "mem_free twice");
                            rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                          }
                          void* nothing = &rank;
                          rank.expect_ok(tutti_mem_alloc(&nothing, 0), "mem_alloc of nothing");
                          rank.expect_true(nothing == nullptr, "nothing is NULL");
                        }),
            "");
}

// Goal: the explanation names call, algorithm and reason, and is cut to the room it has.
TEST_P(LifecycleTest, ExplainsItsLastOperation) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          sum_of_ranks(rank, rank.comm, 1.0f);
                          char text[512];
                          rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof(text)), "explain");
                          const std::string whole = text;
                          for (const char* part : {"all_reduce", "count 1", "algorithm ", "predicted"}) {
                            rank.expect_true(whole.find(part) != std::string::npos,
                                             std::string(part) + " is not in: " + whole);
                          }
                          rank.expect_ok(tutti_comm_explain(rank.comm, text, 8), "explain");
                          rank.expect_true(std::string(text) == whole.substr(0, 7), "cut");
                        }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, LifecycleTest,
                         testing::Values(Arrangement{threads(1)}, Arrangement{threads(1), 3},
                                         Arrangement{threads(4)}, Arrangement{processes(3)},
                                         Arrangement{processes(3), 2}, Arrangement{mixed(5)},
                                         Arrangement{processes(3), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

/// Sparse memory of many elements, of which only the last are touched by the test.
class Sparse {
 public:
  explicit Sparse(size_t bytes)
      : bytes_(bytes),
        base_(static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~Sparse() { munmap(base_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  uint8_t* get() const { return base_; }

 private:
  size_t bytes_;
  uint8_t* base_;
};

// Goal: counts above 2^31 work. The data passes through the links, so the test takes its time: full runs
// only.
TEST(LargeCountTest, AboveTwoToThe31) {
  if (!full_run()) GTEST_SKIP() << "moves 2 GiB: ./dev test full";
  ClusterOptions options;
  options.layout = processes(2);
  options.seconds = 300;
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          constexpr size_t kCount = (size_t{1} << 31) + 77;
                          const Sparse memory(kCount);
                          memory.get()[kCount - 1] = rank.rank() == 0 ? 42 : 0;
                          rank.expect_ok(tutti_broadcast(memory.get(), memory.get(), kCount, TUTTI_UINT8, 0,
                                                         rank.comm, TUTTI_BLOCKING),
                                         "broadcast");
                          rank.expect_true(memory.get()[kCount - 1] == 42, "last element");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
