// Collectives of libnccl.so.2: every collective, type and operator, in and out of place, by processes and
// threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/nccl/nccl_cluster.h"
#include "tests/support/values.h"

namespace tutti::test {
namespace {

constexpr size_t kCount = 37;

tutti_type_t base_type(ncclDataType_t type) {
  return static_cast<tutti_type_t>(type);
}

size_t bytes_of(ncclDataType_t type) {
  return tutti_type_bytes(base_type(type));
}

/// What rank `rank` puts into element i: small, so that every type holds every result exactly.
int operand(int rank, size_t i) {
  return 1 + static_cast<int>(mix(static_cast<uint64_t>(rank) * 1000 + i) % 2);
}

/// The reduction of element i over all ranks.
double reduced(ncclRedOp_t op, int ranks, size_t i, bool integer) {
  double value = operand(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = operand(rank, i);
    if (op == ncclProd) value *= next;
    if (op == ncclMax) value = std::max(value, next);
    if (op == ncclMin) value = std::min(value, next);
    if (op == ncclSum || op == ncclAvg) value += next;
  }
  if (op == ncclAvg) value /= ranks;
  return integer ? std::trunc(value) : value;
}

/// A buffer of elements of one type.
class Elements {
 public:
  Elements(ncclDataType_t type, size_t count)
      : type_(type), bytes_(count * bytes_of(type), std::byte{0x55}) {}
  void set(size_t i, double value) {
    void* element = bytes_.data() + i * bytes_of(type_);
    if (is_float_type(base_type(type_))) {
      store_float(element, base_type(type_), value);
    } else {
      store_integer(element, base_type(type_), static_cast<int64_t>(value));
    }
  }
  void* at(size_t i) { return bytes_.data() + i * bytes_of(type_); }
  bool operator==(const Elements& other) const { return bytes_ == other.bytes_; }

 private:
  ncclDataType_t type_;
  std::vector<std::byte> bytes_;
};

/// Block b of what `rank` sends.
void fill(Elements& elements, size_t first, int rank, size_t block) {
  for (size_t i = 0; i < kCount; ++i) elements.set(first + i, operand(rank, block * kCount + i));
}

class NcclCollectivesTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  static void run(const NcclBody& body) { EXPECT_EQ(run_nccl(GetParam(), body), ""); }
};

void check_reductions(NcclRank& rank, ncclDataType_t type, ncclRedOp_t op) {
  const std::string what = std::string(type_text(base_type(type))) + " op " + std::to_string(op);
  const auto ranks = static_cast<size_t>(rank.count());
  const bool integer = !is_float_type(base_type(type));
  Elements send(type, kCount * ranks);
  Elements all(type, kCount * ranks);
  Elements mine(type, kCount);
  for (size_t block = 0; block < ranks; ++block) {
    fill(send, block * kCount, rank.rank(), block);
    for (size_t i = 0; i < kCount; ++i) {
      all.set(block * kCount + i, reduced(op, rank.count(), block * kCount + i, integer));
    }
  }
  std::memcpy(mine.at(0), all.at(static_cast<size_t>(rank.rank()) * kCount), kCount * bytes_of(type));

  Elements recv(type, kCount * ranks);
  rank.expect_ok(ncclAllReduce(send.at(0), recv.at(0), kCount * ranks, type, op, rank.comm, nullptr), what);
  rank.expect_true(recv == all, what + ": all_reduce");
  Elements in_place = send;
  rank.expect_ok(ncclAllReduce(in_place.at(0), in_place.at(0), kCount * ranks, type, op, rank.comm, nullptr),
                 what);
  rank.expect_true(in_place == all, what + ": all_reduce in place");

  Elements block(type, kCount);
  rank.expect_ok(ncclReduceScatter(send.at(0), block.at(0), kCount, type, op, rank.comm, nullptr), what);
  rank.expect_true(block == mine, what + ": reduce_scatter");

  const int root = rank.count() - 1;
  Elements result(type, kCount * ranks);
  void* target = rank.rank() == root ? result.at(0) : nullptr;
  rank.expect_ok(ncclReduce(send.at(0), target, kCount * ranks, type, op, root, rank.comm, nullptr), what);
  rank.expect_true(rank.rank() != root || result == all, what + ": reduce");
}

// Goal: reductions of every type and operator give NCCL's result.
// Method: all_reduce out of and in place, reduce_scatter, reduce to the last rank, on operands whose results
// are exact.
TEST_P(NcclCollectivesTest, ReduceEveryTypeWithEveryOperator) {
  run([](NcclRank& rank) {
    for (int type = 0; type < static_cast<int>(ncclNumTypes); ++type) {
      for (int op = 0; op < static_cast<int>(ncclNumOps); ++op) {
        check_reductions(rank, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op));
      }
    }
  });
}

void check_moves(NcclRank& rank, ncclDataType_t type) {
  const std::string what = type_text(base_type(type));
  const auto ranks = static_cast<size_t>(rank.count());
  const auto me = static_cast<size_t>(rank.rank());
  const int root = rank.count() / 2;
  const bool is_root = rank.rank() == root;
  Elements mine(type, kCount);
  fill(mine, 0, rank.rank(), 0);
  Elements gathered(type, kCount * ranks);
  Elements blocks(type, kCount * ranks);
  Elements exchanged(type, kCount * ranks);
  for (size_t r = 0; r < ranks; ++r) {
    fill(gathered, r * kCount, static_cast<int>(r), 0);
    fill(blocks, r * kCount, rank.rank(), r);
    fill(exchanged, r * kCount, static_cast<int>(r), me);
  }

  Elements all(type, kCount * ranks);
  rank.expect_ok(ncclAllGather(mine.at(0), all.at(0), kCount, type, rank.comm, nullptr), what);
  rank.expect_true(all == gathered, what + ": all_gather");

  Elements turned(type, kCount * ranks);
  rank.expect_ok(ncclAlltoAll(blocks.at(0), turned.at(0), kCount, type, rank.comm, nullptr), what);
  rank.expect_true(turned == exchanged, what + ": all_to_all");

  Elements from_root(type, kCount);
  fill(from_root, 0, root, 0);
  Elements told(type, kCount);
  rank.expect_ok(
      ncclBroadcast(is_root ? mine.at(0) : nullptr, told.at(0), kCount, type, root, rank.comm, nullptr),
      what);
  rank.expect_true(told == from_root, what + ": broadcast");
  Elements in_place = mine;
  rank.expect_ok(ncclBcast(in_place.at(0), kCount, type, root, rank.comm, nullptr), what);
  rank.expect_true(in_place == from_root, what + ": bcast");

  Elements collected(type, kCount * ranks);
  void* target = is_root ? collected.at(0) : nullptr;
  rank.expect_ok(ncclGather(mine.at(0), target, kCount, type, root, rank.comm, nullptr), what);
  rank.expect_true(!is_root || collected == gathered, what + ": gather");

  Elements handed(type, kCount);
  Elements part(type, kCount);
  fill(part, 0, root, me);
  rank.expect_ok(
      ncclScatter(is_root ? blocks.at(0) : nullptr, handed.at(0), kCount, type, root, rank.comm, nullptr),
      what);
  rank.expect_true(handed == part, what + ": scatter");
}

// Goal: what only moves data moves the right blocks, for every type.
TEST_P(NcclCollectivesTest, MoveBlocksOfEveryType) {
  run([](NcclRank& rank) {
    for (int type = 0; type < static_cast<int>(ncclNumTypes); ++type)
      check_moves(rank, static_cast<ncclDataType_t>(type));
  });
}

// Goal: a pre-multiplied sum scales every rank's operand; one whose scalar is "on the device" reads it at
// each call. Method: two operators over one variable that changes after they are made.
TEST_P(NcclCollectivesTest, PreMultipliedSumReadsItsScalarWhenItShould) {
  run([](NcclRank& rank) {
    float scalar = static_cast<float>(rank.rank() + 1);
    ncclRedOp_t now{};
    ncclRedOp_t later{};
    rank.expect_ok(ncclRedOpCreatePreMulSum(&now, &scalar, ncclFloat32, ncclScalarHostImmediate, rank.comm),
                   "immediate");
    rank.expect_ok(ncclRedOpCreatePreMulSum(&later, &scalar, ncclFloat32, ncclScalarDevice, rank.comm),
                   "device");
    rank.expect_true(now >= ncclNumOps && later >= ncclNumOps && now != later, "new numbers");
    const auto sum_of_ranks = static_cast<float>(rank.count() * (rank.count() + 1)) / 2;
    for (const float change : {1.0f, 10.0f}) {
      scalar = change * static_cast<float>(rank.rank() + 1);
      for (const ncclRedOp_t op : {now, later}) {
        const float one = 1;
        float sum = 0;
        rank.expect_ok(ncclAllReduce(&one, &sum, 1, ncclFloat32, op, rank.comm, nullptr), "all_reduce");
        const float wanted = sum_of_ranks * (op == later ? change : 1);
        rank.expect_true(sum == wanted, "sum " + std::to_string(sum) + ", not " + std::to_string(wanted));
      }
    }
    double wrong = 0;
    rank.expect(ncclAllReduce(&wrong, &wrong, 1, ncclFloat64, now, rank.comm, nullptr), ncclInvalidArgument,
                "another type");
    rank.expect_ok(ncclRedOpDestroy(now, rank.comm), "destroy");
    rank.expect_ok(ncclRedOpDestroy(later, rank.comm), "destroy");
    rank.expect(ncclRedOpDestroy(now, rank.comm), ncclInvalidArgument, "destroyed twice");
    rank.expect(ncclAllReduce(&scalar, &scalar, 1, ncclFloat32, later, rank.comm, nullptr),
                ncclInvalidArgument, "a destroyed operator");
  });
}

// Goal: large messages, in ordinary and in ncclMemAlloc's memory, registered or not.
TEST_P(NcclCollectivesTest, LargeMessagesFromAnyMemory) {
  run([](NcclRank& rank) {
    constexpr size_t kLarge = 300'001;
    std::vector<float> send(kLarge);
    for (size_t i = 0; i < kLarge; ++i) send[i] = static_cast<float>(i % 1024);
    void* memory = nullptr;
    rank.expect_ok(ncclMemAlloc(&memory, kLarge * sizeof(float)), "ncclMemAlloc");
    void* handle = nullptr;
    rank.expect_ok(ncclCommRegister(rank.comm, memory, kLarge * sizeof(float), &handle), "register");
    auto* recv = static_cast<float*>(memory);
    rank.expect_ok(ncclAllReduce(send.data(), recv, kLarge, ncclFloat32, ncclSum, rank.comm, nullptr),
                   "first");
    rank.expect_ok(ncclAllReduce(recv, recv, kLarge, ncclFloat32, ncclMax, rank.comm, nullptr), "in place");
    bool right = true;
    for (size_t i = 0; i < kLarge; ++i)
      right = right && recv[i] == send[i] * static_cast<float>(rank.count());
    rank.expect_true(right, "result");
    rank.expect_ok(ncclCommDeregister(rank.comm, handle), "deregister");
    rank.expect(ncclCommDeregister(rank.comm, handle), ncclInvalidArgument, "deregistered twice");
    rank.expect_ok(ncclMemFree(memory), "ncclMemFree");
    rank.expect_ok(ncclMemFree(nullptr), "ncclMemFree of NULL");
  });
}

// 2 and 4 ranks: their averages are exact in every type.
INSTANTIATE_TEST_SUITE_P(Layouts, NcclCollectivesTest,
                         testing::Values(processes(2), threads(2), mixed_or_threads(4)),
                         [](const auto& tested) { return layout_name(tested.param); });

// Goal: more ranks than cores, as processes, on a whole day's worth of calls in small.
TEST(NcclTest, EightProcesses) {
  EXPECT_EQ(run_nccl(processes(8),
                     [](NcclRank& rank) {
                       for (int i = 0; i < 50; ++i) {
                         int64_t sum = rank.rank() + i;
                         rank.expect_ok(ncclAllReduce(&sum, &sum, 1, ncclInt64, ncclSum, rank.comm, nullptr),
                                        "all_reduce");
                         rank.expect_true(sum == 28 + 8 * i, "sum");
                       }
                     }),
            "");
}

}  // namespace
}  // namespace tutti::test
