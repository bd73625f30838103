// Data: how samples are spread over ranks, text, IDX files with every kind of damage, drawn digits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "tests/support/scratch.h"
#include "tests/trainer/team_run.h"
#include "trainer/file.h"
#include "trainer/images.h"
#include "trainer/loss.h"
#include "trainer/text.h"

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;
using testing::HasSubstr;

// Goal: in each epoch every sample is seen once, by one rank. Method: all ranks' parts of all steps, put
// together.
TEST(SamplerTest, EveryEpochSeesEverySampleOnce) {
  for (const int rank_count : {1, 3, 4}) {
    std::set<uint32_t> firsts;
    for (const size_t epoch : {size_t{0}, size_t{1}}) {
      std::multiset<uint32_t> seen;
      for (int rank = 0; rank < rank_count; ++rank) {
        Sampler sampler({.sample_count = 50,
                         .batch_count = 14,
                         .parts = 2,
                         .rank = rank,
                         .rank_count = rank_count,
                         .uneven = true});
        ASSERT_EQ(sampler.epoch_steps(), 4u);
        for (size_t step = 0; step < 4; ++step)
          for (const size_t part : {size_t{0}, size_t{1}})
            for (const uint32_t sample : sampler.part(4 * epoch + step, part)) seen.insert(sample);
        if (rank == 0) firsts.insert(sampler.part(4 * epoch, 0)[0]);
        EXPECT_EQ(sampler.batch_count(3), 8u);
      }
      EXPECT_EQ(seen.size(), 50u);
      EXPECT_EQ(std::set<uint32_t>(seen.begin(), seen.end()).size(), 50u);
    }
    EXPECT_EQ(firsts.size(), 2u) << "both epochs have the same order";
  }
}

// Goal: a step's batch does not depend on the number of ranks.
TEST(SamplerTest, RanksShareTheBatchThatOneRankWouldHave) {
  Sampler alone({.sample_count = 40, .batch_count = 12});
  const auto whole = alone.part(5, 0);
  std::vector<uint32_t> together;
  for (int rank = 0; rank < 4; ++rank) {
    Sampler sampler({.sample_count = 40, .batch_count = 12, .rank = rank, .rank_count = 4});
    const auto part = sampler.part(5, 0);
    together.insert(together.end(), part.begin(), part.end());
  }
  EXPECT_EQ(together, std::vector<uint32_t>(whole.begin(), whole.end()));
}

TEST(SamplerTest, BatchesThatCannotBeSpreadAreRefused) {
  const auto error = [](const Sampler::Options& options) {
    return error_of([&] { Sampler sampler(options); });
  };
  EXPECT_THAT(error({.sample_count = 3, .batch_count = 3, .rank_count = 4}),
              HasSubstr("more ranks (4) than samples (3)"));
  EXPECT_THAT(error({.sample_count = 9, .batch_count = 3, .rank_count = 4}), HasSubstr("a batch of 3"));
  EXPECT_THAT(error({.sample_count = 9, .batch_count = 10}), HasSubstr("more than all 9 samples"));
  EXPECT_THAT(error({.sample_count = 99, .batch_count = 10, .rank_count = 4}),
              HasSubstr("does not divide among 4 ranks"));
  EXPECT_THAT(error({.sample_count = 99, .batch_count = 8, .parts = 3, .rank_count = 4}),
              HasSubstr("--uneven"));
  EXPECT_EQ(error({.sample_count = 99, .batch_count = 10, .rank_count = 4, .uneven = true}), "");
}

TEST(TextTest, ReadsFilesAndFoldersAndHoldsOutTheirEnds) {
  const Scratch scratch;
  fs::create_directories(scratch.path() / "docs/.hidden");
  scratch.write("docs/b.txt", "bbbbbbbbbB");
  scratch.write("docs/a.txt", "aaaaaaaaaA");
  scratch.write("docs/.hidden/c.txt", "cccccccccc");
  scratch.write("docs/binary", std::string("x\0y", 3));
  scratch.write("last", "0123456789");
  const Text text = read_text({scratch.path() / "docs", scratch.path() / "last"});
  EXPECT_EQ(text.train, "aaaaaaaaabbbbbbbbb012345678");
  EXPECT_EQ(text.held_out, "AB9");
}

TEST(TextTest, WhatIsNoTextIsNamed) {
  const Scratch scratch;
  scratch.write("empty", "");
  scratch.write("binary", std::string("x\0y", 3));
  fs::create_directories(scratch.path() / "folder");
  const auto error = [&](const char* name) { return error_of([&] { read_text({scratch.path() / name}); }); };
  EXPECT_THAT(error("absent"), HasSubstr("no such file or folder: " + (scratch.path() / "absent").string()));
  EXPECT_THAT(error("empty"), HasSubstr("is empty"));
  EXPECT_THAT(error("binary"), HasSubstr("is not text"));
  EXPECT_THAT(error("folder"), HasSubstr("not enough text"));
}

// Goal: windows hold what follows; every held-out character but the first half window is scored once.
TEST(TextTest, WindowsForetellTheNextCharacter) {
  const Vocabulary vocabulary("abcdefghij");
  const Data data = make_text_data({"abcdefghij", "abcdefghij"}, vocabulary, 4);
  EXPECT_EQ(data.classes, 10u);
  EXPECT_EQ(data.train->sample_count(), 6u);
  Batch batch;
  data.train->read(std::vector<uint32_t>{5}, &batch);
  EXPECT_EQ(std::vector<float>(batch.input.data(), batch.input.data() + 4), (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(batch.targets, (std::vector<int>{6, 7, 8, 9}));
  std::vector<int> scored;
  for (uint32_t i = 0; i < data.held_out->sample_count(); ++i) {
    data.held_out->read(std::vector<uint32_t>{i}, &batch);
    for (const int target : batch.targets)
      if (target != kIgnored) scored.push_back(target);
  }
  EXPECT_EQ(scored, (std::vector<int>{3, 4, 5, 6, 7, 8}));
  EXPECT_THAT(error_of([&] {
                make_text_data({"abc", "abc"}, vocabulary, 4);
              }),
              HasSubstr("too short for a context of 4"));
}

// Goal: the trigram model is a fair one. Method: text that three characters foretell; then text without any
// order.
TEST(TrigramTest, KnowsWhatFollowsTwoCharacters) {
  std::vector<int> cycle;
  for (int i = 0; i < 3000; ++i) cycle.push_back(i % 5);
  EXPECT_LT(trigram_loss(cycle, cycle, 5, 2), 0.02);
  std::vector<int> noise;
  uint32_t state = 1;
  for (int i = 0; i < 20000; ++i)
    noise.push_back(static_cast<int>((state = state * 1664525 + 1013904223) >> 30));
  EXPECT_NEAR(trigram_loss(noise, noise, 4, 2), std::log(4.0), 0.02);
}

/// An IDX file of unsigned bytes.
std::string idx(const std::vector<uint32_t>& sizes, const std::string& content) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes)
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(size >> shift & 0xff);
  return text + content;
}

class IdxTest : public testing::Test {
 protected:
  IdxTest() {
    for (const char* stem : {"train", "t10k"}) {
      scratch_.write(std::string(stem) + "-images-idx3-ubyte",
                     idx({2, 2, 2}, std::string("\0\xff\x33\0\1\2\3\4", 8)));
      scratch_.write(std::string(stem) + "-labels-idx1-ubyte", idx({2}, "\7\1"));
    }
  }
  std::string error() const {
    return error_of([&] { read_idx_folder(scratch_.path()); });
  }
  Scratch scratch_;
};

TEST_F(IdxTest, ReadsMnistsFormat) {
  const Data data = read_idx_folder(scratch_.path());
  EXPECT_EQ(data.side, 2u);
  EXPECT_EQ(data.classes, 10u);
  ASSERT_EQ(data.train->sample_count(), 2u);
  Batch batch;
  data.train->read(std::vector<uint32_t>{0}, &batch);
  EXPECT_EQ(batch.targets, std::vector<int>{7});
  EXPECT_EQ(std::vector<float>(batch.input.data(), batch.input.data() + 4),
            (std::vector<float>{0, 1, 0.2F, 0}));
}

TEST_F(IdxTest, EveryDamageIsNamed) {
  const std::string images = "train-images-idx3-ubyte";
  const std::string labels = "train-labels-idx1-ubyte";
  const std::string pixels(8, '\1');
  struct Damage {
    std::string file;
    std::string content;
    const char* text;
  };
  const std::vector<Damage> damages = {
      {images, "", "not an IDX file"},
      {images, "\x1f\x8b gzip", "not an IDX file"},
      {images, idx({2}, "\1\2"), "in 3 dimensions"},
      {images, idx({2, 2, 2}, "").substr(0, 10), "cut short in its header"},
      {images, idx({2, 2, 2}, pixels.substr(1)), "cut short"},
      {images, idx({2, 2, 2}, pixels + "x"), "too long"},
      {images, idx({0xffffffff, 0xffffffff, 0xffffffff}, pixels), "cut short"},
      {images, idx({2, 1, 4}, pixels), "square"},
      {images, idx({0, 2, 2}, ""), "0 images"},
      {images, idx({1, 2, 2}, pixels.substr(4)), "has 1 images"},
      {labels, idx({2}, "\7\x0a"), "has a label 10"},
      {"t10k-images-idx3-ubyte", idx({2, 1, 1}, "ab"), "differ in size"},
  };
  for (const Damage& damage : damages) {
    const std::vector<std::byte> kept = read_file(scratch_.path() / damage.file);
    scratch_.write(damage.file, damage.content);
    EXPECT_THAT(error(), HasSubstr(damage.text));
    write_file(scratch_.path() / damage.file, kept);
  }
  EXPECT_EQ(error(), "");
  fs::remove(scratch_.path() / labels);
  EXPECT_THAT(error(), HasSubstr("no such file"));
}

TEST(DigitsTest, AreTheSameForTheSameSeedOnly) {
  const auto pixels = [](uint64_t seed) {
    const Data data = draw_digits(30, 10, seed);
    Batch batch;
    std::vector<uint32_t> all(data.train->sample_count());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
    data.train->read(all, &batch);
    return std::vector<float>(batch.input.data(), batch.input.data() + batch.input.size());
  };
  EXPECT_EQ(pixels(1), pixels(1));
  EXPECT_NE(pixels(1), pixels(2));
  for (const float pixel : pixels(1)) ASSERT_TRUE(pixel >= 0 && pixel <= 1);
}

TEST(FileTest, AWriteThatFailsLeavesTheOldFile) {
  const Scratch scratch;
  const fs::path path = scratch.path() / "file";
  const auto bytes = [](const std::string& text) {
    return std::vector<std::byte>(reinterpret_cast<const std::byte*>(text.data()),
                                  reinterpret_cast<const std::byte*>(text.data()) + text.size());
  };
  write_file(path, bytes("old"));
  fs::create_directory(path.string() + ".new");
  EXPECT_THAT(error_of([&] { write_file(path, bytes("new")); }), HasSubstr("cannot create"));
  EXPECT_EQ(read_file(path), bytes("old"));
  fs::remove(path.string() + ".new");
  write_file(path, bytes("new"));
  EXPECT_EQ(read_file(path), bytes("new"));
  EXPECT_THAT(error_of([&] { write_file(scratch.path() / "absent/file", {}); }), HasSubstr("cannot create"));
  EXPECT_THAT(error_of([&] { read_file(scratch.path() / "absent"); }), HasSubstr("cannot open"));
  EXPECT_THAT(error_of([&] { read_file("/dev/zero"); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { read_file(scratch.path()); }), HasSubstr("not a regular file"));
  // A full disk: the draft goes, the old file stays.
  EXPECT_THAT(error_of([&] { write_file("/dev/full/x", {}); }), HasSubstr("cannot create"));
}

// Goal: whether a file can be written is known before there is anything to write, and asking leaves no trace.
TEST(FileTest, TryingToWriteTouchesNothing) {
  const Scratch scratch;
  scratch.write("file", "old");
  try_to_write(scratch.path() / "file");
  try_to_write(scratch.path() / "other");
  EXPECT_EQ(read_file(scratch.path() / "file").size(), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
  EXPECT_THAT(error_of([&] { try_to_write(scratch.path()); }), HasSubstr("it is a folder"));
  EXPECT_THAT(error_of([&] { try_to_write(scratch.path() / "absent/file"); }), HasSubstr("cannot create"));
}

// Goal: what is no file is never replaced by one. Method: a pipe, as /dev/null would be lost to a superuser.
TEST(FileTest, OnlyAFileIsReplaced) {
  const Scratch scratch;
  const fs::path pipe = scratch.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { try_to_write(pipe); }), HasSubstr("it is not a regular file"));
  EXPECT_THAT(error_of([&] { write_file(pipe, {}); }), HasSubstr("it is not a regular file"));
  EXPECT_TRUE(fs::is_fifo(pipe));
}

}  // namespace
}  // namespace tutti::trainer
