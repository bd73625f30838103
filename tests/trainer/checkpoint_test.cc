// Checkpoints: going on is as if nothing had happened; what does not fit is refused on every rank.
#include "trainer/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/trainer/team_run.h"
#include "tests/trainer/training_options.h"
#include "trainer/file.h"
#include "trainer/modes/data.h"

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;

/// Trains in one go, and in two with a checkpoint in between; the bits must be the same.
void expect_same_bits(Options options, const std::vector<int>& layout) {
  const Scratch scratch;
  const fs::path path = scratch.path() / "checkpoint";
  const auto body = [&](test::Rank& rank, Team& team) {
    Training whole(options, team);
    while (whole.steps_done() < options.steps) whole.step();
    {
      Training half(options, team);
      while (half.steps_done() < options.steps / 2) half.step();
      half.save(path);
    }
    Options resumed = options;
    resumed.resume = path;
    Training rest(resumed, team);
    rank.expect_true(rest.steps_done() == options.steps / 2, "steps that were done");
    while (rest.steps_done() < options.steps) rest.step();
    rank.expect_true(whole.model().parameters().digest() == rest.model().parameters().digest(), "bits");
    // The held-out loss comes from all that was restored, buffers included.
    rank.expect_true(whole.evaluate().sum == rest.evaluate().sum, "held-out loss");
  };
  EXPECT_EQ(test::run_team(layout, body), "")
      << options.model.name << ", " << options.optimizer.name << ", " << options.compression.name;
}

// Goal: resuming gives the same bits as not stopping: both optimizers, buffers, each kind of error feedback,
// an epoch that ends in between.
TEST(CheckpointTest, ResumingGivesTheBitsOfNotStopping) {
  const Scratch scratch;
  Options text = test::small_transformer(scratch);
  for (const char* optimizer : {"sgd", "adamw"}) {
    text.optimizer.name = optimizer;
    expect_same_bits(text, {1, 1});
  }
  for (const char* compression : {"none", "topk", "powersgd"}) {
    Options images = test::small_images("cnn");
    images.compression.name = compression;
    images.compression.rank = 1;
    expect_same_bits(images, {1, 2});
  }
}

class BadCheckpointTest : public testing::Test {
 protected:
  BadCheckpointTest() : path_(scratch_.path() / "checkpoint") {
    options_ = test::small_images("mlp");
    options_.compression = {.name = "topk", .share = 0.5};
  }

  /// Makes a checkpoint of two ranks after one step.
  void make() {
    EXPECT_EQ(test::run_team({1, 1},
                             [&](test::Rank&, Team& team) {
                               Training training(options_, team);
                               training.step();
                               training.save(path_);
                             }),
              "");
  }

  /// Every rank must refuse to resume, with this text.
  void expect_refused(const Options& options, const std::string& text,
                      const std::vector<int>& layout = {1, 1}) {
    Options resumed = options;
    resumed.resume = path_;
    const auto body = [&](test::Rank& rank, Team& team) {
      const std::string error = error_of([&] { Training training(resumed, team); });
      rank.expect_true(error.find(text) != std::string::npos, "wanted '" + text + "', got '" + error + "'");
    };
    EXPECT_EQ(test::run_team(layout, body), "");
  }

  Scratch scratch_;
  fs::path path_;
  Options options_;
};

TEST_F(BadCheckpointTest, AnotherShapeIsRefusedByName) {
  make();
  Options other = options_;
  other.model.name = "cnn";
  expect_refused(other, "it has the model 'mlp with 10 classes");
  other = options_;
  other.optimizer.name = "sgd";
  expect_refused(other, "it has the optimizer 'adamw', not 'sgd'");
  other = options_;
  other.compression.name = "none";
  expect_refused(other, "it has the compression 'topk'");
  other = options_;
  other.buckets.bytes = 0;
  expect_refused(other, "number of tensors");
  other = options_;
  other.batch = 24;
  expect_refused(other, "error feedback of 2 ranks; these are 3", {1, 2});
}

// Goal: a model of text is of these characters, not only of so many. Method: the same text, one letter
// replaced.
TEST_F(BadCheckpointTest, OtherCharactersAreRefused) {
  options_ = test::small_transformer(scratch_);
  make();
  const std::vector<std::byte> text = read_file(options_.data[0]);
  std::string other;
  for (const std::byte byte : text) other += static_cast<char>(byte) == 'b' ? 'B' : static_cast<char>(byte);
  scratch_.write("other", other);
  Options resumed = options_;
  resumed.data = {scratch_.path() / "other"};
  expect_refused(resumed, "it has the model 'transformer with ");
  expect_refused(options_, "");
}

TEST_F(BadCheckpointTest, DamageIsNoticed) {
  expect_refused(options_, "cannot open");
  make();
  const std::vector<std::byte> good = read_file(path_);
  const auto write = [&](const std::vector<std::byte>& bytes) { write_file(path_, bytes); };
  write({});
  expect_refused(options_, "not a checkpoint of this trainer");
  write({good.begin(), good.begin() + 30});
  expect_refused(options_, "cut short");
  write({good.begin(), good.end() - 100});
  expect_refused(options_, "damaged");
  std::vector<std::byte> flipped = good;
  flipped[good.size() / 2] ^= std::byte{1};
  write(flipped);
  expect_refused(options_, "damaged");
  write(good);
  expect_refused(options_, "");
}

// Goal: contents that lie, under a hash that fits, are refused before any state changes.
TEST_F(BadCheckpointTest, LiesAreNoticed) {
  using Json = nlohmann::json;
  make();
  const std::vector<std::byte> good = read_file(path_);
  const auto* first = reinterpret_cast<const uint8_t*>(good.data());
  const size_t title_bytes = std::string("tutti trainer checkpoint 2\n").size();
  const Json honest = Json::from_cbor(first + title_bytes, first + good.size() - sizeof(uint64_t));
  const std::tuple<const char*, Json, const char*> lies[] = {
      {"/model", 7, "it is damaged"},
      {"/model", "a fish", "it has the model 'a fish'"},
      {"/step", "two", "it is damaged"},
      {"/shared", Json::array(), "number of tensors"},
      {"/shared/0", 5, "it is damaged"},
      {"/shared/0", Json::binary({1, 2, 3, 4}), "has a tensor of 1 numbers"},
      {"/ranks/0", Json::binary({0xff}), "it is damaged"},
  };
  for (const auto& [place, lie, text] : lies) {
    Json all = honest;
    all[Json::json_pointer(place)] = lie;
    std::vector<uint8_t> bytes(first, first + title_bytes);
    Json::to_cbor(all, bytes);
    const uint64_t hash = hash_bytes(std::as_bytes(std::span(bytes)));
    const auto* tail = reinterpret_cast<const uint8_t*>(&hash);
    bytes.insert(bytes.end(), tail, tail + sizeof(hash));
    write_file(path_, std::as_bytes(std::span(bytes)));
    expect_refused(options_, text);
  }
}

// Goal: a rank that cannot write tells everybody, and the checkpoint from before stays whole. Method: rank 0
// may write only 1000 bytes a file, as on a full disk.
TEST_F(BadCheckpointTest, AWriteThatFailsIsAnErrorOnEveryRankAndLeavesTheOldFile) {
  make();
  const std::vector<std::byte> before = read_file(path_);
  const auto body = [&](test::Rank& rank, Team& team) {
    Training training(options_, team);
    training.step();
    training.step();
    if (rank.rank() == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{1000, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    const std::string error = error_of([&] { training.save(path_); });
    rank.expect_true(error.find("rank 0: cannot write") != std::string::npos, "got '" + error + "'");
  };
  EXPECT_EQ(test::run_team({1, 1}, body), "");
  EXPECT_EQ(read_file(path_), before);
  EXPECT_FALSE(fs::exists(path_.string() + ".new"));
}

// Goal: a rank that runs out of memory says so on every rank, in words of ours.
TEST(BadInputTest, MemoryThatRunsOutIsASentenceOnEveryRank) {
  const auto body = [](test::Rank& rank, Team& team) {
    const std::string error = error_of([&] {
      together(team, [&] {
        if (rank.rank() == 1) throw std::bad_alloc();
      });
    });
    rank.expect_true(error.starts_with("rank 1: there is not enough memory"), "got '" + error + "'");
  };
  EXPECT_EQ(test::run_team({1, 2}, body), "");
}

// Goal: what goes wrong on one rank while reading data is an error on every rank. Method: one rank's path is
// wrong.
TEST(BadInputTest, ARankWithoutDataIsAnErrorOnEveryRank) {
  const Scratch scratch;
  const Options good = test::small_transformer(scratch);
  Options bad = good;
  bad.data = {scratch.path() / "absent"};
  const auto body = [&](test::Rank& rank, Team& team) {
    const std::string error = error_of([&] { Training training(rank.rank() == 1 ? bad : good, team); });
    rank.expect_true(error.find("rank 1: no such file or folder") != std::string::npos,
                     "got '" + error + "'");
  };
  EXPECT_EQ(test::run_team({1, 1, 1}, body), "");
}

}  // namespace
}  // namespace tutti::trainer
