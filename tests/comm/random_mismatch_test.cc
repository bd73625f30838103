// Random mismatches. Goal: whatever argument of whatever call differs on whatever rank, every rank is told by
// that call or the next one, long before the deadline. Method: all ranks draw the same call from a seed, and
// one rank changes one argument, leaves the call out or makes it twice. Then all make an all_reduce.
// TUTTI_MISMATCH_TRIALS and TUTTI_MISMATCH_SEED choose how many trials, and which, run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/cluster.h"
#include "transports/sim/sim.h"

namespace tutti::test {
namespace {

constexpr double kPatienceS = 20;
constexpr size_t kMostElements = 40'000;

enum class Kind : uint32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kAllGatherV,
  kReduceScatterV,
  kAllToAllV,
  kMessage,
};
constexpr uint32_t kKinds = 13;

struct Drawn {
  Kind kind = Kind::kBarrier;
  tutti_type_t type = TUTTI_FLOAT32;
  tutti_op_t op = TUTTI_SUM;
  int root = 0;
  size_t count = 1;
  std::vector<size_t> counts;  ///< by rank
  int tag = 0;
  int times = 1;

  bool has_root() const {
    return kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather ||
           kind == Kind::kScatter;
  }
  bool has_op() const {
    return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter ||
           kind == Kind::kReduceScatterV;
  }
  bool has_table() const { return kind == Kind::kAllGatherV || kind == Kind::kReduceScatterV; }
};

std::string describe(const Drawn& d) {
  std::string text = "kind " + std::to_string(static_cast<uint32_t>(d.kind)) + " type " +
                     std::to_string(d.type) + " op " + std::to_string(d.op) + " root " +
                     std::to_string(d.root) + " count " + std::to_string(d.count) + " tag " +
                     std::to_string(d.tag) + " times " + std::to_string(d.times);
  for (const size_t count : d.counts) text += " " + std::to_string(count);
  return text;
}

class Draw {
 public:
  Draw(uint64_t seed, int ranks) : random_(seed), ranks_(ranks) {}

  uint64_t below(uint64_t limit) { return random_.next() % limit; }
  size_t count() {
    constexpr size_t kScales[] = {8, 100, 5000, kMostElements / 4};
    return 1 + below(kScales[below(4)]);
  }
  Drawn call() {
    Drawn d;
    d.kind = static_cast<Kind>(below(kKinds));
    d.type = type();
    d.op = op();
    d.root = static_cast<int>(below(static_cast<uint64_t>(ranks_)));
    d.count = count();
    d.tag = static_cast<int>(below(5));
    for (int rank = 0; rank < ranks_; ++rank) d.counts.push_back(count() / static_cast<size_t>(ranks_));
    return d;
  }
  /// Another call than `call`, in one argument.
  Drawn other(const Drawn& call) {
    Drawn d = call;
    while (true) {
      switch (below(8)) {
        case 0: d.times = static_cast<int>(2 * below(2)); return d;
        case 1:
          do d.kind = static_cast<Kind>(below(kKinds));
          while (d.kind == call.kind);
          return d;
        default: break;
      }
      if (call.kind == Kind::kBarrier) continue;
      if (change_argument(call, d)) return d;
    }
  }

 private:
  tutti_type_t type() {
    constexpr tutti_type_t kTypes[] = {TUTTI_FLOAT32, TUTTI_INT32, TUTTI_INT8, TUTTI_FLOAT64, TUTTI_UINT16};
    return kTypes[below(5)];
  }
  tutti_op_t op() {
    constexpr tutti_op_t kOps[] = {TUTTI_SUM, TUTTI_PROD, TUTTI_MAX, TUTTI_MIN};
    return kOps[below(4)];
  }
  bool change_argument(const Drawn& call, Drawn& d) {
    const bool has_counts = call.has_table() || call.kind == Kind::kAllToAllV;
    switch (below(5)) {
      case 0:
        do d.type = type();
        while (d.type == call.type);
        return true;
      case 1:
        if (has_counts) return false;
        do d.count = count();
        while (d.count == call.count);
        return true;
      case 2:
        if (!call.has_root()) return false;
        d.root = (call.root + 1 + static_cast<int>(below(static_cast<uint64_t>(ranks_ - 1)))) % ranks_;
        return true;
      case 3:
        if (call.has_op()) {
          do d.op = op();
          while (d.op == call.op);
          return true;
        }
        if (call.kind != Kind::kMessage) return false;
        d.tag = call.tag + 1 + static_cast<int>(below(4096));
        return true;
      default:
        if (!has_counts) return false;
        if (below(2) == 0) std::rotate(d.counts.begin(), d.counts.begin() + 1, d.counts.end());
        if (d.counts == call.counts) ++d.counts[below(d.counts.size())];
        return true;
    }
  }

  SimRandom random_;
  int ranks_;
};

struct Buffers {
  std::vector<double> send = std::vector<double>(5 * kMostElements, 0.0);
  std::vector<double> recv = std::vector<double>(5 * kMostElements, 0.0);
};

/// Rank 0 sends to rank 1; the others do nothing.
tutti_result_t message(const Drawn& d, Rank& rank, Buffers& b) {
  if (rank.rank() == 0)
    return tutti_send(b.send.data(), d.count, d.type, 1, d.tag, rank.comm, TUTTI_BLOCKING);
  if (rank.rank() == 1)
    return tutti_recv(b.recv.data(), d.count, d.type, 0, d.tag, rank.comm, TUTTI_BLOCKING);
  return TUTTI_SUCCESS;
}

tutti_result_t make_once(const Drawn& d, Rank& rank, Buffers& b) {
  const void* s = b.send.data();
  void* r = b.recv.data();
  tutti_comm_t* comm = rank.comm;
  const tutti_stream_t on = TUTTI_BLOCKING;
  // An all_to_all_v that all ranks agree on: rank i sends counts[i] to every rank.
  const std::vector<size_t> same(d.counts.size(), d.counts[static_cast<size_t>(rank.rank())]);
  switch (d.kind) {
    case Kind::kAllReduce: return tutti_all_reduce(s, r, d.count, d.type, d.op, comm, on);
    case Kind::kReduce: return tutti_reduce(s, r, d.count, d.type, d.op, d.root, comm, on);
    case Kind::kBroadcast: return tutti_broadcast(s, r, d.count, d.type, d.root, comm, on);
    case Kind::kAllGather: return tutti_all_gather(s, r, d.count, d.type, comm, on);
    case Kind::kReduceScatter: return tutti_reduce_scatter(s, r, d.count, d.type, d.op, comm, on);
    case Kind::kAllToAll: return tutti_all_to_all(s, r, d.count, d.type, comm, on);
    case Kind::kGather: return tutti_gather(s, r, d.count, d.type, d.root, comm, on);
    case Kind::kScatter: return tutti_scatter(s, r, d.count, d.type, d.root, comm, on);
    case Kind::kBarrier: return tutti_barrier(comm, on);
    case Kind::kAllGatherV: return tutti_all_gather_v(s, r, d.counts.data(), nullptr, d.type, comm, on);
    case Kind::kReduceScatterV:
      return tutti_reduce_scatter_v(s, r, d.counts.data(), nullptr, d.type, d.op, comm, on);
    case Kind::kAllToAllV:
      return tutti_all_to_all_v(s, same.data(), nullptr, r, d.counts.data(), nullptr, d.type, comm, on);
    case Kind::kMessage: return message(d, rank, b);
  }
  return TUTTI_SUCCESS;
}

/// Whether the two calls are the same for the ranks that take part.
bool is_no_difference(const Drawn& call, const Drawn& odd, int odd_rank, int ranks) {
  const bool both_messages = call.kind == Kind::kMessage && odd.kind == Kind::kMessage;
  if (both_messages && odd_rank > 1) return true;
  // A rank that takes no part in the message, and leaves out or repeats nothing.
  if (call.kind == Kind::kMessage && odd_rank > 1 && odd.times != 1) return true;
  if (ranks > 0 && call.kind == Kind::kAllToAllV && odd.kind == Kind::kAllToAllV && odd.times == 1 &&
      odd.type == call.type)
    return odd.counts == call.counts;
  return false;
}

/// Whether a send may have no receive.
bool is_unread_message(const Drawn& call, const Drawn& odd) {
  return call.kind == Kind::kMessage && odd.kind == Kind::kMessage && odd.times != 1;
}

void run_trial(Rank& rank, uint64_t seed, Buffers& buffers) {
  Draw draw(seed, rank.count());
  const Drawn call = draw.call();
  const Drawn odd = draw.other(call);
  const int odd_rank = static_cast<int>(draw.below(static_cast<uint64_t>(rank.count())));
  if (is_no_difference(call, odd, odd_rank, rank.count())) return;
  const std::string what = "seed " + std::to_string(seed) + ": " + describe(call) + "; rank " +
                           std::to_string(odd_rank) + ": " + describe(odd);
  if (!rank.renew()) return;
  rank.at(what);
  const uint64_t told = rank.value(0);
  if (!rank.meet()) return;
  const Drawn& own = rank.rank() == odd_rank ? odd : call;
  const double start = seconds_now();
  tutti_result_t result = TUTTI_SUCCESS;
  for (int i = 0; i < own.times && result == TUTTI_SUCCESS; ++i) result = make_once(own, rank, buffers);
  double value = 1;
  if (result == TUTTI_SUCCESS)
    result = tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT64, TUTTI_SUM, rank.comm, TUTTI_BLOCKING);
  // Where the odd rank has made a call more, it is in that call while the others have ended.
  if (result == TUTTI_SUCCESS) result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
  // A message too many is waiting to be received, until the receiver leaves.
  rank.meet();
  if (result == TUTTI_SUCCESS && is_unread_message(call, odd)) {
    if (tutti_comm_finalize(rank.comm) == TUTTI_MISMATCH) rank.add(0);
    rank.meet();
    rank.expect_true(rank.value(0) > told, what + ": not told at finalize");
  } else {
    rank.expect(result, TUTTI_MISMATCH, what);
    rank.expect_text({"rank"}, what);
  }
  rank.expect_true(seconds_now() - start < kPatienceS, what + ": too late");
  rank.meet();
  static_cast<void>(tutti_comm_destroy(rank.comm));
  rank.comm = nullptr;
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RandomMismatchTest : public testing::TestWithParam<Arrangement> {};

TEST_P(RandomMismatchTest, IsToldToEveryRank) {
  ClusterOptions options = GetParam().options();
  options.create = false;
  const uint64_t trials = number_from("TUTTI_MISMATCH_TRIALS", 60);
  options.seconds = static_cast<int>(120 + trials);
  const uint64_t first = number_from("TUTTI_MISMATCH_SEED", 1);
  EXPECT_EQ(run_cluster(options,
                        [&](Rank& rank) {
                          Buffers buffers;
                          for (uint64_t i = 0; i < trials; ++i) run_trial(rank, first + i, buffers);
                        }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, RandomMismatchTest,
                         testing::Values(Arrangement{threads(2)}, Arrangement{processes(3)},
                                         Arrangement{threads(4)}, Arrangement{processes(2), 1, 2},
                                         Arrangement{processes(4), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace tutti::test
