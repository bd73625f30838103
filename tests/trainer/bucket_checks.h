// What a bucketer has to do wherever gradients are reduced.
#pragma once

#include <string>
#include <vector>

#include "tests/trainer/team_run.h"
#include "trainer/bucketer.h"
#include "trainer/compression.h"

namespace tutti::test {

/// What is left is the sum over ranks, in place, step after step, with gaps between tensors.
inline void check_sums(Rank& rank, trainer::Team& team, size_t bucket_bytes) {
  trainer::BackendVector<float> memory(1000, team.backend());
  const std::span<float> flat(memory.data(), memory.size());
  const std::vector<trainer::Tensor> tensors = {{0, 1, 300}, {304, 20, 10}, {512, 1, 488}};
  auto buckets = trainer::make_buckets(flat, tensors, {.first_bytes = 64, .bytes = bucket_bytes});
  const auto reduction = trainer::make_reduction({}, buckets, team.gradients(), team.backend());
  trainer::Bucketer bucketer(std::move(buckets), *reduction, team.backend());
  for (int step = 0; step < 3; ++step) {
    const auto value = [&](size_t i) { return static_cast<float>(i + static_cast<size_t>(step)); };
    for (size_t i = 0; i < flat.size(); ++i) flat[i] = value(i) * static_cast<float>(rank.rank() + 1);
    for (const size_t tensor : {2, 1, 0}) bucketer.mark_ready(tensor);
    bucketer.finish();
    const auto factor = static_cast<float>(rank.count() * (rank.count() + 1)) / 2;
    for (const trainer::Tensor& tensor : tensors)
      for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i)
        if (!rank.expect_true(flat[i] == value(i) * factor, "element " + std::to_string(i))) return;
  }
  for (const trainer::Bucketer::Times& times : bucketer.times())
    rank.expect_true(times.start_ns > 0 && times.end_ns >= times.start_ns, "times of a bucket");
  rank.expect_true(bucketer.communication_ns() > 0, "communication takes time");
  // A GPU's memory is given back when no rank reduces.
  rank.meet();
}

/// Another rank is lost: that is an error of `finish`.
inline void check_lost(Rank& rank, trainer::Team& team) {
  trainer::BackendVector<float> flat(10, team.backend());
  const std::vector<trainer::Tensor> tensors = {{0, 1, flat.size()}};
  auto buckets = trainer::make_buckets({flat.data(), flat.size()}, tensors, {});
  const auto reduction = trainer::make_reduction({}, buckets, team.gradients(), team.backend());
  trainer::Bucketer bucketer(std::move(buckets), *reduction, team.backend());
  const std::string error = error_of([&] {
    bucketer.mark_ready(0);
    bucketer.finish();
  });
  rank.expect_true(error.find("reducing gradients") != std::string::npos, "got: " + error);
}

}  // namespace tutti::test
