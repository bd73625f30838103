// Exactness: what ranks compute together, against the same arithmetic on one rank, bit by bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tests/trainer/team_run.h"
#include "tests/trainer/training_options.h"
#include "trainer/modes/data.h"

namespace tutti::trainer {
namespace {

using test::Scratch;

/// Trains with `layout` and returns the digest of the parameters, which all ranks must agree on. `problem`
/// gets what failed.
uint64_t digest_of(const std::vector<int>& layout, const std::vector<int>& hosts, const Options& options,
                   std::string* problem) {
  std::array<uint64_t, 2> result{};
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) {
    *problem = "no pipe";
    return 0;
  }
  *problem = test::run_team(
      layout,
      [&](test::Rank& rank, Team& team) {
        Training training(options, team);
        while (training.steps_done() < options.steps) training.step();
        const std::array<uint64_t, 2> mine = {training.model().parameters().digest(), 1};
        const auto all = team.gather(std::as_bytes(std::span(mine)));
        rank.expect_true(std::equal(all.begin() + 1, all.end(), all.begin()), "ranks differ");
        if (rank.rank() == 0)
          rank.expect_true(::write(pipe_ends[1], mine.data(), sizeof(mine)) == sizeof(mine),
                           "reporting the digest");
      },
      hosts);
  ::close(pipe_ends[1]);
  if (::read(pipe_ends[0], result.data(), sizeof(result)) != sizeof(result) || result[1] != 1)
    *problem += "no digest\n";
  ::close(pipe_ends[0]);
  return result[0];
}

/// The sum of the leaves [begin, end) in the association that reproducible mode promises.
std::vector<float> tree_sum(const std::vector<std::vector<float>>& leaves, size_t begin, size_t end,
                            bool bf16) {
  if (end - begin == 1) return leaves[begin];
  size_t left_count = 1;
  while (2 * left_count < end - begin) left_count *= 2;
  std::vector<float> sum = tree_sum(leaves, begin, begin + left_count, bf16);
  const std::vector<float> right = tree_sum(leaves, begin + left_count, end, bf16);
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] += right[i];
    if (bf16) sum[i] = from_bf16(to_bf16(sum[i]));
  }
  return sum;
}

/// The same training by one rank alone, which computes the gradient of each of `rank_count` shards by itself.
class Reference {
 public:
  Reference(const Options& options, int rank_count) : options_(options), rank_count_(rank_count) {
    const Text text = read_text(options.data);
    const Vocabulary vocabulary(text.train + text.held_out);
    data_ = make_text_data(text, vocabulary, options.model.context);
    ModelOptions model = options.model;
    model.classes = data_.classes;
    model_ = std::make_unique<Model>(model, options.seed, SumOverRanks());
    optimizer_ = make_optimizer(options.optimizer, model_->parameters());
  }

  void step(size_t step) {
    Parameters& parameters = model_->parameters();
    const bool bf16 = options_.compression.name == "bf16";
    std::vector<std::vector<float>> leaves;
    for (int rank = 0; rank < rank_count_; ++rank) {
      Sampler sampler({.sample_count = data_.train->sample_count(),
                       .batch_count = options_.batch,
                       .rank = rank,
                       .rank_count = rank_count_,
                       .uneven = options_.uneven,
                       .seed = options_.seed});
      std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
      Batch batch;
      data_.train->read(sampler.part(step, 0), &batch);
      const size_t targets = sampler.batch_count(step) * data_.train->targets_per_sample();
      Matrix gradient;
      cross_entropy(model_->forward(batch.input, true), batch.targets, 1 / static_cast<float>(targets),
                    &gradient);
      model_->backward(gradient, {});
      leaves.emplace_back(parameters.gradients().begin(), parameters.gradients().end());
      if (bf16)
        for (float& value : leaves.back()) value = from_bf16(to_bf16(value));
    }
    const std::vector<float> sum = tree_sum(leaves, 0, leaves.size(), bf16);
    std::copy(sum.begin(), sum.end(), parameters.gradients().begin());
    clip_by_norm(parameters, options_.clip);
    optimizer_->step(step + 1, static_cast<float>(learning_rate(options_, step)));
  }

  Parameters& parameters() { return model_->parameters(); }

 private:
  const Options& options_;
  int rank_count_;
  Data data_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// Largest difference between the parameters of two references.
double distance(Reference& left, Reference& right) {
  double largest = 0;
  for (size_t i = 0; i < left.parameters().values().size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(left.parameters().values()[i]) -
                                         right.parameters().values()[i]));
  return largest;
}

// Goal: 1 to 4 ranks differ from one rank only by how the batch's sum is associated. Method: one rank
// computes the shards' gradients one after the other and adds them in the canonical tree: the same bits, step
// after step; and trees of other shapes stay near.
TEST(ExactnessTest, RanksComputeWhatOneRankDoesUpToTheAssociationOfTheSum) {
  const Scratch scratch;
  for (const char* compression : {"none", "bf16"}) {
    for (const int rank_count : {1, 2, 3, 4}) {
      Options options = test::small_transformer(scratch);
      options.compression.name = compression;
      const auto body = [&](test::Rank& rank, Team& team) {
        Training training(options, team);
        Reference reference(options, rank.count());
        Reference alone(options, 1);
        for (size_t step = 0; step < options.steps; ++step) {
          training.step();
          reference.step(step);
          alone.step(step);
          if (!rank.expect_true(training.model().parameters().digest() == reference.parameters().digest(),
                                "bits differ in step " + std::to_string(step)))
            return;
        }
        const double allowed = std::string(compression) == "none" ? 2e-5 : 2e-2;
        const double found = distance(reference, alone);
        rank.expect_true(found <= allowed, "distance from one rank: " + std::to_string(found));
        rank.expect_true(rank.count() < 3 || found > 0, "the association should show");
      };
      EXPECT_EQ(test::run_team(test::threads(rank_count), body), "")
          << compression << ", " << rank_count << " ranks";
    }
  }
}

// Goal: the same bits for 3, 4 and 5 ranks, in float32 and bfloat16, as threads, as processes and mixed,
// whatever the buckets.
class SameBitsTest : public testing::TestWithParam<std::tuple<int, const char*>> {};
TEST_P(SameBitsTest, PlacementAndBucketsDoNotMatter) {
  const auto [rank_count, compression] = GetParam();
  const Scratch scratch;
  Options options = test::small_transformer(scratch);
  options.compression.name = compression;
  std::string problem;
  const uint64_t wanted = digest_of(test::threads(rank_count), {}, options, &problem);
  ASSERT_EQ(problem, "");
  // One host for each process of processes(): TCP. Two hosts: both.
  std::vector<int> one_each;
  std::vector<int> two;
  for (int process = 0; process < rank_count; ++process) {
    one_each.push_back(process);
    two.push_back(process % 2);
  }
  struct Other {
    std::vector<int> layout;
    std::vector<int> hosts;
    BucketOptions buckets;
  };
  const std::vector<Other> others = {
      {test::processes(rank_count), {}, {.bytes = 0}},
      {test::mixed(rank_count), {}, {.first_bytes = 1000, .bytes = 5000}},
      {test::processes(rank_count), one_each, {.first_bytes = 4000, .bytes = 20000}},
      {test::processes(rank_count), two, {.bytes = 0}},
  };
  for (const Other& other : others) {
    options.buckets = other.buckets;
    EXPECT_EQ(digest_of(other.layout, other.hosts, options, &problem), wanted)
        << test::layout_name(other.layout) << " on " << other.hosts.size() << ", " << other.buckets.bytes;
    EXPECT_EQ(problem, "");
  }
}
INSTANTIATE_TEST_SUITE_P(All, SameBitsTest,
                         testing::Combine(testing::Values(3, 4, 5), testing::Values("none", "bf16")),
                         [](const auto& test) {
                           return std::string(std::get<1>(test.param)) + "_" +
                                  std::to_string(std::get<0>(test.param)) + "_ranks";
                         });

/// The gradient that a step of `training` has left, before any update: with a learning rate of almost
/// nothing.
std::vector<float> gradient_after_step(Training& training) {
  training.step();
  const auto gradients = training.model().parameters().gradients();
  return {gradients.begin(), gradients.end()};
}

/// Largest difference over the largest number.
double relative(const std::vector<float>& found, const std::vector<float>& wanted) {
  float difference = 0;
  float largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference = std::max(difference, std::abs(found[i] - wanted[i]));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return static_cast<double>(difference / largest);
}

// Goal: every sample weighs the same however batches are cut: shards of unequal size, parts, ranks that have
// none. Method: the gradient of each step against that of one rank with the whole batch.
TEST(WeightTest, UnevenShardsAndPartsGiveTheGradientOfTheWholeBatch) {
  const Scratch scratch;
  Options whole = test::small_transformer(scratch);
  whole.clip = 0;
  whole.uneven = true;
  whole.steps = 4;
  whole.digits = 33;
  for (const char* model : {"transformer", "mlp", "cnn"}) {
    whole.model.name = model;
    if (whole.model.name != "transformer") whole.data.clear();
    // 33 images in batches of 8: the fifth step has one image for all ranks.
    whole.batch = whole.model.name == "transformer" ? 13 : 8;
    whole.steps = 6;
    for (const size_t parts : {size_t{1}, size_t{3}}) {
      // Statistics of a batch are those of a part: parts cannot be compared for batch normalisation.
      if (parts > 1 && whole.model.name == "cnn") continue;
      const auto body = [&](test::Rank& rank, Team& team) {
        Options cut = whole;
        cut.accumulate = parts;
        Training training(cut, team);
        tutti_unique_id_t id{};
        rank.expect_ok(tutti_get_unique_id(&id), "an id");
        Team lone(id, 0, 1, true);
        Training alone(whole, lone);
        for (size_t step = 0; step < whole.steps; ++step) {
          const double found = relative(gradient_after_step(training), gradient_after_step(alone));
          rank.expect_true(found < 2e-4, "step " + std::to_string(step) + ": " + std::to_string(found));
          // Differences of the bits before must not add up.
          const auto values = alone.model().parameters().values();
          std::copy(values.begin(), values.end(), training.model().parameters().values().begin());
        }
      };
      EXPECT_EQ(test::run_team(test::threads(3), body), "") << model << " in " << parts << " parts";
    }
  }
}

// Goal: nothing is sent while gradients accumulate. Method: ranks make different numbers of backward passes;
// were any of them to communicate, calls would not match.
TEST(AccumulationTest, GradientsStayOnTheRank) {
  const auto body = [](test::Rank& rank, Team& team) {
    const ModelOptions options{.name = "mlp", .classes = 3, .side = 4};
    Model model(options, 1, {});
    DataParallel parallel(team, model.parameters(), {.bytes = 0}, {});
    Matrix input(2, 16);
    input.fill(0.5F);
    Matrix gradient;
    const auto pass = [&](const GradientReady& ready) {
      cross_entropy(model.forward(input, true), std::vector<int>{0, 2}, 1, &gradient);
      model.backward(gradient, ready);
    };
    for (int i = 0; i < rank.rank(); ++i) pass({});
    pass(parallel.on_ready());
    parallel.finish();
    const float found = model.parameters().list().back().gradient[0];
    std::fill(model.parameters().gradients().begin(), model.parameters().gradients().end(), 0.0F);
    pass({});
    const float once = model.parameters().list().back().gradient[0];
    // Ranks 0, 1, 2 have made 1, 2 and 3 passes.
    rank.expect_true(std::abs(found - 6 * once) < 1e-4F * std::abs(found),
                     "sum " + std::to_string(found / once));
  };
  EXPECT_EQ(test::run_team({1, 2}, body), "");
}

// Goal: batch normalisation over all ranks sees what one rank with the whole batch would see; by rank it does
// not, and evaluation goes by rank 0's statistics.
TEST(BatchNormTest, SynchronisedStatisticsAreThoseOfTheWholeBatch) {
  const auto body = [](test::Rank& rank, Team& team) {
    Parameters parameters;
    BatchNorm shared(parameters, "shared", 2, [&](std::span<double> sums) { team.sum(sums); });
    BatchNorm whole(parameters, "whole", 2, {});
    parameters.allocate(1);
    const auto rows = static_cast<size_t>(rank.count()) * 3;
    Matrix all(rows, 2);
    Matrix weights(rows, 2);
    for (size_t i = 0; i < all.size(); ++i) {
      all.data()[i] = static_cast<float>(i * i % 17);
      weights.data()[i] = static_cast<float>(i % 5) - 2;
    }
    const auto first = static_cast<size_t>(rank.rank()) * 3;
    const auto own = [&](const Matrix& matrix) {
      Matrix part(3, 2);
      std::copy(matrix.row(first), matrix.row(first) + 6, part.data());
      return part;
    };
    const Matrix input = own(all);
    const Matrix output = shared.forward(input, true);
    const Matrix wanted = own(whole.forward(all, true));
    const Matrix gradient = shared.backward(own(weights), {});
    const Matrix wanted_gradient = own(whole.backward(weights, {}));
    for (size_t i = 0; i < 6; ++i) {
      rank.expect_true(std::abs(output.data()[i] - wanted.data()[i]) < 1e-5F, "output");
      rank.expect_true(std::abs(gradient.data()[i] - wanted_gradient.data()[i]) < 1e-5F, "gradient");
    }
    for (size_t i = 0; i < 2; ++i)
      rank.expect_true(
          std::abs(parameters.buffers()[i].values[0] - parameters.buffers()[i + 2].values[0]) < 1e-5F,
          "running statistics");
  };
  EXPECT_EQ(test::run_team(test::threads(3), body), "");
}

TEST(BatchNormTest, StatisticsOfEachRankAreReplacedByRankZerosBeforeEvaluation) {
  for (const bool local : {false, true}) {
    Options options = test::small_images("cnn");
    options.model.local_norm = local;
    const auto body = [&](test::Rank& rank, Team& team) {
      Training training(options, team);
      for (int i = 0; i < 3; ++i) training.step();
      const auto same = [&] {
        const uint64_t digest = training.model().parameters().digest();
        const auto all = team.gather(std::as_bytes(std::span(&digest, 1)));
        return std::equal(all.begin() + 1, all.end(), all.begin());
      };
      rank.expect_true(same() != local, "statistics before evaluation");
      training.evaluate();
      rank.expect_true(same(), "statistics after evaluation");
    };
    EXPECT_EQ(test::run_team({1, 2}, body), "") << local;
  }
}

// Goal: all ranks begin with rank 0's parameters, whatever they had.
TEST(DataParallelTest, ParametersAndBuffersAreThoseOfRankZero) {
  const auto body = [](test::Rank& rank, Team& team) {
    const ModelOptions options{.name = "cnn", .classes = 3, .side = 8};
    Model model(options, static_cast<uint64_t>(rank.rank()), {});
    const uint64_t before = model.parameters().digest();
    DataParallel parallel(team, model.parameters(), {}, {});
    parallel.broadcast_parameters();
    rank.expect_true((before == model.parameters().digest()) == (rank.rank() == 0),
                     "rank 0 keeps its parameters");
    Model zero(options, 0, {});
    rank.expect_true(zero.parameters().digest() == model.parameters().digest(), "parameters of rank 0");
  };
  EXPECT_EQ(test::run_team({1, 1, 1}, body), "");
}

TEST(ClipTest, TheNormOfAllGradientsIsLimited) {
  const auto body = [](test::Rank& rank, Team&) {
    Parameters parameters;
    parameters.add("a", 1, 1, 0);
    parameters.add("b", 1, 1, 0);
    parameters.allocate(1);
    float& a = *parameters.list()[0].gradient;
    float& b = *parameters.list()[1].gradient;
    a = 3;
    b = 4;
    rank.expect_true(clip_by_norm(parameters, 10) == 5 && a == 3 && b == 4, "below the limit");
    rank.expect_true(clip_by_norm(parameters, 0) == 5 && a == 3, "no limit");
    clip_by_norm(parameters, 1);
    rank.expect_true(std::abs(a - 0.6F) < 1e-6F && std::abs(b - 0.8F) < 1e-6F, "above the limit");
  };
  EXPECT_EQ(test::run_team({1}, body), "");
}

}  // namespace
}  // namespace tutti::trainer
