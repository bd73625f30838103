// Sums of numbers, bound as a communicator binds them: what tests of executors run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/executor.h"

namespace tutti::test {

inline CallShape sum_of(uint64_t count, CallPurpose purpose = CallPurpose::kUsers) {
  return {.collective = Collective::kAllReduce, .type = DataType::kInt32, .purpose = purpose, .count = count};
}

/// By the algorithm of this name, or by the first one that serves it.
inline std::unique_ptr<BoundCall> bind_sum(Executor& executor, const CallShape& shape, uint32_t rank_count,
                                           bool wants_packets = false, std::string_view algorithm_name = {}) {
  BoundCall call;
  call.shape = shape;
  call.word = agreed_word(shape);
  call.signature_seed = signature_seed(call.word, shape.count);
  call.input_bytes = call.output_bytes = shape.count * sizeof(int32_t);
  const BindRequest wanted{.request = {.collective = shape.collective,
                                       .rank_count = rank_count,
                                       .block_bytes = call.input_bytes,
                                       .type = shape.type},
                           .block_bytes = call.input_bytes,
                           .wants_packets = wants_packets};
  if (!algorithm_name.empty()) call.algorithm = find_algorithm(shape.collective, algorithm_name);
  for (const Algorithm& algorithm : algorithms()) {
    if (call.algorithm == nullptr && algorithm.collective == shape.collective &&
        algorithm.supports(wanted.request, executor.facts())) {
      call.algorithm = &algorithm;
    }
  }
  auto bound = executor.bind(call, wanted);
  EXPECT_TRUE(bound.is_ok()) << bound.status().text();
  return std::move(*bound);
}

/// A rank's numbers, which count from `first` on, and the place for their sum.
struct Sum {
  explicit Sum(uint64_t count, int first = 0) : send(count), recv(count, -1) {
    std::iota(send.begin(), send.end(), first);
  }
  Call call(CallPurpose purpose = CallPurpose::kUsers) {
    return {
        .shape = sum_of(send.size(), purpose), .send = send.data(), .recv = recv.data(), .blocks = nullptr};
  }
  /// Whether recv is the sum over so many ranks, of which rank i counts from i on.
  bool is_right(int ranks) const {
    for (size_t i = 0; i < recv.size(); ++i) {
      if (recv[i] != static_cast<int>(i) * ranks + ranks * (ranks - 1) / 2) return false;
    }
    return true;
  }

  std::vector<int32_t> send;
  std::vector<int32_t> recv;
};

}  // namespace tutti::test
