// Reproducible mode: the bits are those of one canonical tree over the ranks, whatever the algorithm, the
// layout, the slots, the alignment, and whether a message goes in one call or in two.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "algorithms/algorithm.h"
#include "tests/support/cluster.h"
#include "tests/support/placements.h"
#include "tests/support/scope.h"
#include "tests/support/values.h"

namespace tutti::test {
namespace {

constexpr size_t kCount = 2'600;  // more than one slot of 4 KiB for every type
constexpr tutti_type_t kTypes[] = {TUTTI_FLOAT32, TUTTI_BFLOAT16, TUTTI_FLOAT16};
constexpr tutti_op_t kOps[] = {TUTTI_SUM, TUTTI_PROD, TUTTI_MAX, TUTTI_MIN, TUTTI_AVG};

using Bytes = std::vector<std::byte>;

/// What `rank` contributes: magnitudes that round differently in every order, NaN and zeros of both signs
/// among them.
Bytes operands(tutti_type_t type, int rank) {
  const size_t element = tutti_type_bytes(type);
  Bytes data(kCount * element);
  for (size_t i = 0; i < kCount; ++i) {
    const uint64_t word = mix(i, static_cast<uint64_t>(rank));
    double value =
        std::ldexp(static_cast<double>(word % 4093) - 2046.0, static_cast<int>(word >> 32 & 7) - 11);
    if ((word >> 40) % 29 == 0 || i % 97 == static_cast<size_t>(rank)) value = std::nan("");
    if (i % 31 == 5) value = (word >> 50 & 1) != 0 ? 0.0 : -0.0;
    store_float(&data[i * element], type, value);
    if (std::isnan(value) && (word & 1) != 0)
      data[(i + 1) * element - 1] |= std::byte{0x80};  // a negative NaN
  }
  return data;
}

double combine(tutti_op_t op, tutti_type_t type, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  switch (op) {
    case TUTTI_PROD:
      return type == TUTTI_FLOAT32 ? static_cast<double>(static_cast<float>(a) * static_cast<float>(b))
                                   : a * b;
    case TUTTI_MAX: return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
    case TUTTI_MIN: return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
    default:
      return type == TUTTI_FLOAT32 ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b))
                                   : a + b;
  }
}

double rounded(tutti_type_t type, double value) {
  std::byte element[8];
  store_float(element, type, value);
  return load_float(element, type);
}

/// The canonical tree over ranks [first, last): split at the largest power of two below their number.
double tree(tutti_op_t op, tutti_type_t type, const std::vector<Bytes>& data, size_t i, size_t first,
            size_t last) {
  if (last - first == 1) return load_float(&data[first][i * tutti_type_bytes(type)], type);
  size_t half = 1;
  while (half * 2 < last - first) half *= 2;
  const double left = tree(op, type, data, i, first, first + half);
  const double right = tree(op, type, data, i, first + half, last);
  return rounded(type, combine(op, type, left, right));
}

Bytes canonical(tutti_op_t op, tutti_type_t type, const std::vector<Bytes>& data) {
  const size_t element = tutti_type_bytes(type);
  Bytes result(kCount * element);
  for (size_t i = 0; i < kCount; ++i) {
    double value = tree(op, type, data, i, 0, data.size());
    if (op == TUTTI_AVG)
      value = static_cast<double>(static_cast<float>(value) / static_cast<float>(data.size()));
    store_float(&result[i * element], type, value);
  }
  return result;
}

/// Calls on one type and operator, each checked bit for bit.
class Checker {
 public:
  Checker(Rank& rank, tutti_type_t type, tutti_op_t op) : rank_(rank), type_(type), op_(op) {
    for (int r = 0; r < rank.count(); ++r) data_.push_back(operands(type, r));
    wanted_ = canonical(op, type, data_);
  }

  void check() {
    all_reduce("whole", 0, {kCount});
    all_reduce("unaligned", 1, {kCount});
    all_reduce("in two calls", 0, {1'001, kCount - 1'001});
    all_reduce("in three calls", 1, {7, 2'000, kCount - 2'007});
    reduce();
    reduce_scatter();
  }

 private:
  void compare(const std::string& what, const std::byte* got, size_t first, size_t count) {
    const size_t element = tutti_type_bytes(type_);
    for (size_t i = 0; i < count; ++i) {
      const std::byte* wanted = &wanted_[(first + i) * element];
      if (std::memcmp(got + i * element, wanted, element) == 0) continue;
      rank_.fail(std::string(type_text(type_)) + " " + op_text(op_) + ", " + what + ": element " +
                 std::to_string(first + i) + " is " + std::to_string(load_float(got + i * element, type_)) +
                 ", not " + std::to_string(load_float(wanted, type_)) + ", in its bits");
      return;
    }
  }

  void all_reduce(const std::string& what, size_t shift, const std::vector<size_t>& parts) {
    const size_t element = tutti_type_bytes(type_);
    const Bytes& mine = data_[static_cast<size_t>(rank_.rank())];
    Bytes send((kCount + shift) * element);
    Bytes recv((kCount + 2 * shift) * element);
    std::memcpy(&send[shift * element], mine.data(), mine.size());
    size_t start = 0;
    for (const size_t part : parts) {
      rank_.expect_ok(tutti_all_reduce(&send[(start + shift) * element], &recv[(start + 2 * shift) * element],
                                       part, type_, op_, rank_.comm, TUTTI_BLOCKING),
                      what);
      start += part;
    }
    compare("all_reduce " + what, &recv[2 * shift * element], 0, kCount);
  }

  void reduce() {
    Bytes recv = data_[static_cast<size_t>(rank_.rank())];
    const int root = rank_.count() - 1;
    rank_.expect_ok(
        tutti_reduce(recv.data(), recv.data(), kCount, type_, op_, root, rank_.comm, TUTTI_BLOCKING),
        "reduce");
    if (rank_.rank() == root) compare("reduce", recv.data(), 0, kCount);
  }

  void reduce_scatter() {
    const size_t block = kCount / static_cast<size_t>(rank_.count());
    Bytes recv(block * tutti_type_bytes(type_));
    const auto me = static_cast<size_t>(rank_.rank());
    rank_.expect_ok(
        tutti_reduce_scatter(data_[me].data(), recv.data(), block, type_, op_, rank_.comm, TUTTI_BLOCKING),
        "reduce_scatter");
    compare("reduce_scatter", recv.data(), me * block, block);
  }

  Rank& rank_;
  tutti_type_t type_;
  tutti_op_t op_;
  std::vector<Bytes> data_;
  Bytes wanted_;
};

class ReproducibleTest : public testing::TestWithParam<std::string> {};

// Goal: the bits of reproducible mode are those of the canonical tree.
// Method: an independent tree in this file; each algorithm forced where it supports the mode, over rank
// counts that are and are not powers of two, threads and processes, small and large slots, one to three
// threads a rank.
TEST_P(ReproducibleTest, GivesTheBitsOfTheCanonicalTree) {
  int turn = 0;
  int run = 0;
  for (const int ranks : {3, 4, 5, 8}) {
    for (const auto& layout : {threads(ranks), processes(ranks)}) {
      // Threads of 3 and 5 ranks, processes of 4 and 8, or all.
      const bool chosen = (turn / 2 + turn) % 2 == 0;
      ++turn;
      if (!chosen && !full_run() && GetParam() != "default") continue;
      const int way = run++;
      ClusterOptions options;
      options.layout = layout;
      options.config.reproducible = 1;
      options.environment = {{"TUTTI_ALGORITHM", GetParam() == "default" ? "" : GetParam()},
                             {"TUTTI_THREADS", std::to_string(1 + way % 3)},
                             {"TUTTI_STRIPE_BYTES", "1024"},
                             {"TUTTI_SLOT_BYTES", way % 2 == 0 ? "4096" : "32768"},
                             {"TUTTI_REFERENCE_BYTES", way % 4 < 2 ? "512" : "1000000000"}};
      const std::string failures = run_cluster(options, [](Rank& rank) {
        for (const tutti_type_t type : kTypes) {
          for (const tutti_op_t op : kOps) {
            rank.at(std::string(type_text(type)) + " " + op_text(op));
            Checker(rank, type, op).check();
          }
        }
      });
      EXPECT_EQ(failures, "") << layout_name(layout);
    }
  }
}

std::vector<std::string> reducing_algorithms() {
  std::set<std::string> names = {"default"};
  for (const Algorithm& algorithm : algorithms()) {
    if (reduces(algorithm.collective) && runs_on_hosts(algorithm)) names.insert(std::string(algorithm.name));
  }
  return {names.begin(), names.end()};
}

INSTANTIATE_TEST_SUITE_P(Registry, ReproducibleTest, testing::ValuesIn(reducing_algorithms()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tutti::test
