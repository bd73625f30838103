// The trainer's command line: defaults by model, and mistakes.
#include "trainer/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "trainer/mode.h"

namespace tutti::trainer {
namespace {

using testing::HasSubstr;

ParsedOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "trainer");
  arguments.push_back(nullptr);
  return parse_options(static_cast<int>(arguments.size()) - 1, arguments.data());
}

TEST(OptionsTest, HelpListsModelsOptimizersAndData) {
  const ParsedOptions help = parse({"--help"});
  EXPECT_FALSE(help.run);
  EXPECT_EQ(help.exit_code, 0);
  for (const char* word : {"transformer", "mlp", "cnn", "sgd", "adamw", "IDX", "digits", "text", "powersgd",
                           "topk", "bf16", "--bucket-bytes", "--resume"})
    EXPECT_THAT(help.text, HasSubstr(word));
}

// A misspelt flag in the modes' table would be refused for every mode.
TEST(OptionsTest, FlagsOfEveryModeExist) {
  const std::string help = parse({"--help"}).text;
  for (const ModeEntry& entry : modes()) {
    std::istringstream flags(entry.flags);
    for (std::string flag; flags >> flag;) EXPECT_THAT(help, HasSubstr("  " + flag + " ")) << entry.name;
  }
}

TEST(OptionsTest, VersionIsPrintedWithStatusZero) {
  const ParsedOptions parsed = parse({"--version"});
  EXPECT_FALSE(parsed.run);
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_THAT(parsed.text, HasSubstr("trainer (tutti "));
}

TEST(OptionsTest, DefaultsFillWhatIsNotGiven) {
  const ParsedOptions parsed = parse({"--model", "mlp", "--optimizer", "sgd", "--steps", "10"});
  ASSERT_TRUE(parsed.run);
  EXPECT_EQ(parsed.options.buckets.first_bytes, size_t{1} << 20);
  EXPECT_EQ(parsed.options.buckets.bytes, size_t{25} << 20);
  EXPECT_EQ(parsed.options.report_every, 1u);
  EXPECT_EQ(parsed.options.evaluate_every, 2u);
  EXPECT_DOUBLE_EQ(parsed.options.learning_rate, 0.05);
}

// Gradients are clipped where the trainer can: other modes must not pretend to.
TEST(OptionsTest, OnlyDataParallelClipsByDefault) {
  EXPECT_DOUBLE_EQ(parse({"--data", "a"}).options.clip, 1);
  EXPECT_DOUBLE_EQ(parse({"--data", "a", "--mode", "tensor"}).options.clip, 0);
}

TEST(OptionsTest, SizesHaveUnits) {
  const ParsedOptions parsed =
      parse({"--model", "mlp", "--bucket-bytes", "64KiB", "--first-bucket-bytes", "0"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.buckets.bytes, size_t{64} << 10);
  EXPECT_EQ(parsed.options.buckets.first_bytes, 0u);
}

TEST(OptionsTest, MistakesAreNamedWithStatusTwo) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> mistakes = {
      {{"--model", "lstm"}, "--model"},
      {{}, "needs text"},
      {{"--model", "mlp", "--data", "a", "b"}, "one folder"},
      {{"--model", "mlp", "--threads"}, "--threads needs --ranks"},
      {{"--model", "mlp", "--ranks", "0"}, "--ranks"},
      {{"--model", "mlp", "--steps", "-1"}, "--steps"},
      {{"--model", "mlp", "--batch", "x"}, "--batch"},
      {{"--model", "mlp", "--share", "2", "--compression", "topk"}, "--share"},
      {{"--model", "mlp", "--compression", "zip"}, "--compression"},
      {{"--model", "mlp", "--bucket-bytes", "-5"}, "--bucket-bytes"},
      {{"--model", "mlp", "--checkpoint-every", "5"}, "needs --checkpoint"},
      {{"--model", "mlp", "--timeline", "./a", "--checkpoint", "a"}, "the same file"},
      {{"--model", "mlp", "--checkpoint", "a", "--parameters", "b/../a"},
       "--checkpoint and --parameters name the same file"},
      {{"--model", "mlp", "--seed", "-1"}, "--seed"},
      {{"--data", "a", "--mode", "sideways"}, "--mode"},
      {{"--data", "a", "--mode", "tensor", "--checkpoint", "a"},
       "--checkpoint, which belongs to --mode data"},
      {{"--data", "a", "--mode", "tensor", "--bucket-bytes", "1"},
       "--bucket-bytes, which belongs to --mode data"},
      {{"--data", "a", "--mode", "tensor", "--zero-stage", "2"},
       "--zero-stage, which belongs to --mode zero"},
      {{"--data", "a", "--mode", "tensor", "--experts", "4"},
       "--experts, which belongs to --mode data, layers"},
      {{"--data", "a", "--kill", "1:2"}, "--mode data does not read --kill"},
      {{"--data", "a", "--mode", "tensor", "--uneven"}, "batches that divide"},
      {{"--data", "a", "--mode", "tensor", "--clip", "1"}, "does not clip"},
      {{"--data", "a", "--mode", "tensor", "--device", "cuda"}, "on the host"},
      {{"--data", "a", "--mode", "tensor", "--slow", "two"}, "RANK:NUMBER"},
      {{"--data", "a", "--mode", "tensor", "--slow", "1:nan"}, "RANK:NUMBER"},
      {{"--data", "a", "--mode", "tensor", "--slow", "1:0.5"}, "a factor of 1 or more"},
      {{"--data", "a", "--mode", "tensor", "--drawing-steps", "2"}, "needs --drawing FILE"},
      {{"--data", "a", "--ranks", "3", "--emulate-hosts", "7"}, "a rank for each host"},
      {{"--data", "a", "--seed", "-1"}, "--seed"},
      {{"--data", "a", "--mode", "tensor", "--pace-ms", "nan"}, "Value nan not in range 0 to 10000"},
      {{"--data", "a", "--mode", "tensor", "--threads", "--kill", "1:2"}, "--kill needs processes"},
      {{"--data", "a", "--mode", "zero", "--zero-stage", "2", "--offload", "a"}, "needs --zero-stage 3"},
      {{"--data", "a", "--mode", "expert"}, "needs a transformer with experts"},
      {{"--data", "a", "--mode", "layers", "--ranks", "1000", "--depth", "1"},
       "a model of 5 layers has no 1000 stages: start fewer ranks, or raise --depth"},
      {{"--data", "a", "--mode", "pipeline", "--ranks", "3", "--chunks", "2", "--depth", "1"},
       "5 layers has no 6 stages"},
      {{"--data", "a", "--mode", "grid", "--pipeline-ranks", "8"}, "7 layers has no 8 stages"},
      {{"--model", "mlp", "--mode", "layers", "--ranks", "6"}, "5 layers has no 6 stages"},
      {{"--data", "a", "--mode", "elastic"}, "--ranks 2 or more"},
      {{"--data", "a", "--mode", "elastic", "--ranks", "3", "--kill", "3:5"}, "--kill names rank 3"},
      {{"--data", "a", "--mode", "elastic", "--ranks", "3", "--accumulate", "2"}, "leave out --accumulate"},
      {{"--data", "a", "--mode", "elastic", "--ranks", "3", "--reproducible"}, "leave out --reproducible"},
      {{"--data", "a", "--mode", "elastic", "--ranks", "3", "--kill", "1:0"}, "1 step or more"},
      {{"--data", "a", "--ranks", "2", "--threads", "--emulate-hosts", "2"}, "leave out --threads"},
      {{"--model", "mlp", "--wings", "2"}, "--wings"},
  };
  for (const auto& [arguments, text] : mistakes) {
    const ParsedOptions parsed = parse(arguments);
    EXPECT_FALSE(parsed.run) << text;
    EXPECT_EQ(parsed.exit_code, 2) << text;
    EXPECT_THAT(parsed.text, HasSubstr(text));
  }
}

}  // namespace
}  // namespace tutti::trainer
