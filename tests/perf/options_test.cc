// The command line: nccl-tests' defaults, sizes, refusals, notes.
#include "perf/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/version_line.h"

namespace tutti::perf {
namespace {

const char* empty_environment(const char*) {
  return nullptr;
}

const char* spread_environment(const char* name) {
  return std::strcmp(name, "NCCL_TESTS_ALLTOALLV_SPREAD") == 0 ? "0.25" : nullptr;
}

const char* device_environment(const char* name) {
  return std::strcmp(name, "NCCL_TESTS_DEVICE") == 0 ? "3" : nullptr;
}

const char* split_environment(const char* name) {
  return std::strcmp(name, "NCCL_TESTS_SPLIT_MASK") == 0 ? "0x1" : nullptr;
}

const char* matrix_environment(const char* name) {
  return std::strcmp(name, "NCCL_TESTS_ALLTOALLV_MATRIX_FILE") == 0 ? "traffic.txt" : nullptr;
}

const char* no_summary(const char* name) {
  return std::strcmp(name, "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY") == 0 ? "0" : nullptr;
}

const char* wrong_device(const char* name) {
  return std::strcmp(name, "NCCL_TESTS_DEVICE") == 0 ? "-1" : nullptr;
}

const char* wrong_environment(const char* name) {
  return std::strcmp(name, "NCCL_TESTS_MIN_BW") == 0 ? "fast" : nullptr;
}

ParsedOptions parse(std::vector<const char*> words, GetEnv get_env = empty_environment) {
  words.insert(words.begin(), "all_reduce_perf");
  return parse_options(static_cast<int>(words.size()), words.data(), get_env);
}

TEST(OptionsTest, VersionNamesTheToolAndTheLibrary) {
  const ParsedOptions parsed = parse({"--version"});
  EXPECT_FALSE(parsed.run);
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_EQ(parsed.text, version_line("all_reduce_perf"));
}

// Goal: somebody used to nccl-tests gets what he knows without flags.
TEST(OptionsTest, DefaultsAreThoseOfNcclTests) {
  const ParsedOptions parsed = parse({});
  ASSERT_TRUE(parsed.run);
  const Options& options = parsed.options;
  EXPECT_EQ(options.min_bytes, 32u << 20);
  EXPECT_EQ(options.max_bytes, 32u << 20);
  EXPECT_EQ(options.step_bytes, 1u << 20);
  EXPECT_EQ(options.step_factor, 1u);
  EXPECT_EQ(options.threads, 1);
  EXPECT_FALSE(options.iterations.has_value());
  EXPECT_EQ(options.warmups, 1);
  EXPECT_EQ(options.checks, 1);
  EXPECT_EQ(options.average, 1);
  EXPECT_THAT(options.ops, testing::ElementsAre(TestOp::kSum));
  EXPECT_THAT(options.types, testing::ElementsAre(TUTTI_FLOAT32));
  EXPECT_EQ(options.root, 0);
  EXPECT_EQ(options.ranks_per_process(), 1);
  EXPECT_EQ(options.memory, Memory::kAny);
  EXPECT_EQ(options.graph_launches, 0);
  EXPECT_FALSE(options.first_device.has_value());
}

/// The options that both spellings below ask for.
void expect_every_field_set(const ParsedOptions& parsed) {
  ASSERT_TRUE(parsed.run) << parsed.text;
  const Options& options = parsed.options;
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.min_bytes, 8u);
  EXPECT_EQ(options.max_bytes, 65536u);
  EXPECT_EQ(options.step_factor, 2u);
  EXPECT_EQ(options.iterations, 5);
  EXPECT_EQ(options.aggregate, 2);
  EXPECT_EQ(options.warmups, 4);
  EXPECT_EQ(options.cycles, 7);
  EXPECT_EQ(options.checks, 0);
  EXPECT_THAT(options.ops, testing::ElementsAre(TestOp::kMax));
  EXPECT_THAT(options.types, testing::ElementsAre(TUTTI_FLOAT16));
  EXPECT_EQ(options.root, 1);
  EXPECT_EQ(options.blocking, 1);
  EXPECT_TRUE(options.cpu_time);
  EXPECT_EQ(options.average, 3);
  EXPECT_EQ(options.registration, 2);
  EXPECT_EQ(options.timeout_s, 9);
  EXPECT_EQ(options.json_path, "out.json");
  EXPECT_TRUE(options.timestamps);
  EXPECT_TRUE(options.memory_report);
  EXPECT_EQ(options.misalign_elements, 3u);
  EXPECT_TRUE(options.per_iteration);
  EXPECT_EQ(options.skip_samples, 2);
  EXPECT_TRUE(options.parallel_init);
  EXPECT_EQ(options.gpus, 2);
  EXPECT_EQ(options.graph_launches, 6);
  EXPECT_TRUE(options.null_stream);
}

// Goal: short and long names of every flag set their field.
TEST(OptionsTest, ShortAndLongNamesAreRead) {
  struct Flag {
    const char* brief;
    const char* full;
    const char* value;
  };
  std::vector<const char*> brief;
  std::vector<const char*> full;
  for (const Flag& flag : {Flag{"-t", "--nthreads", "3"},
                           {"-b", "--minbytes", "8"},
                           {"-e", "--maxbytes", "64K"},
                           {"-f", "--stepfactor", "2"},
                           {"-n", "--iters", "5"},
                           {"-m", "--agg_iters", "2"},
                           {"-w", "--warmup_iters", "4"},
                           {"-N", "--run_cycles", "7"},
                           {"-c", "--check", "0"},
                           {"-o", "--op", "max"},
                           {"-d", "--datatype", "half"},
                           {"-r", "--root", "1"},
                           {"-z", "--blocking", "1"},
                           {"-C", "--report_cputime", "1"},
                           {"-a", "--average", "3"},
                           {"-R", "--local_register", "2"},
                           {"-T", "--timeout", "9"},
                           {"-J", "--output_file", "out.json"},
                           {"-S", "--report_timestamps", "1"},
                           {"-M", "--memory", "1"},
                           {"-u", "--unalign", "3"},
                           {"-I", "--per_iter_timing", "1"},
                           {"-K", "--per_iter_skip", "2"},
                           {"-p", "--parallel_init", "1"},
                           {"-g", "--ngpus", "2"},
                           {"-G", "--cudagraph", "6"},
                           {"-y", "--stream_null", "1"},
                           {"-i", "--stepbytes", "4K"}}) {
    brief.insert(brief.end(), {flag.brief, flag.value});
    full.insert(full.end(), {flag.full, flag.value});
  }
  expect_every_field_set(parse(brief));
  expect_every_field_set(parse(full));
}

TEST(OptionsTest, SwitchesGivenAsZeroAreOff) {
  const ParsedOptions parsed = parse({"-C", "0", "-S", "0", "-M", "0", "-I", "0", "-p", "0"});
  ASSERT_TRUE(parsed.run);
  EXPECT_FALSE(parsed.options.cpu_time);
  EXPECT_FALSE(parsed.options.timestamps);
  EXPECT_FALSE(parsed.options.memory_report);
  EXPECT_FALSE(parsed.options.per_iteration);
}

// Goal: -I is on by itself, at the end of the line and before another flag.
TEST(OptionsTest, PerIterationTimingNeedsNoNumber) {
  EXPECT_TRUE(parse({"-I"}).options.per_iteration);
  const ParsedOptions parsed = parse({"-I", "-n", "7"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_TRUE(parsed.options.per_iteration);
  EXPECT_EQ(parsed.options.iterations, 7);
  EXPECT_FALSE(parse({"-I", "2000x"}).run);
}

// Goal: what scripts for nccl-tests do: a flag twice, where the last one counts; no iterations.
TEST(OptionsTest, TheLastOfEqualFlagsCounts) {
  const ParsedOptions parsed =
      parse({"-n", "5", "-b", "8", "-b", "1K", "-d",       "half", "-d", "float", "-I",       "-K", "3",
             "-K", "2", "-c", "0", "-c", "1",  "--memory", "host", "-n", "9",     "--memory", "1"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.iterations, 9);
  EXPECT_EQ(parsed.options.min_bytes, 1024u);
  EXPECT_THAT(parsed.options.types, testing::ElementsAre(TUTTI_FLOAT32));
  EXPECT_EQ(parsed.options.skip_samples, 2);
  EXPECT_EQ(parsed.options.checks, 1);
  // --memory has two meanings; the words tell which.
  EXPECT_EQ(parsed.options.memory, Memory::kHost);
  EXPECT_TRUE(parsed.options.memory_report);
  EXPECT_FALSE(parse({"-M", "1", "--memory", "0"}).options.memory_report);
  EXPECT_EQ(parse({"-n", "0"}).options.iterations, 0);
}

TEST(OptionsTest, OwnFlagsAreRead) {
  const ParsedOptions parsed =
      parse({"--procs", "4", "--hot", "--stream", "--reproducible", "--no-algorithm-column"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.processes, 4);
  EXPECT_TRUE(parsed.options.hot);
  EXPECT_TRUE(parsed.options.stream);
  EXPECT_TRUE(parsed.options.reproducible);
  EXPECT_FALSE(parsed.options.algorithm_column);
}

TEST(OptionsTest, SizesTakeBinaryMultiples) {
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("4k"), 4096u);
  EXPECT_EQ(parse_size("1.5M"), 3u << 19);
  EXPECT_EQ(parse_size("2G"), 2ull << 30);
  EXPECT_EQ(parse_size("0"), 0u);
  for (const char* wrong : {"", "-1", "K", "1KB", "1T", "nan", "inf", "1e30", " x", "0x"})
    EXPECT_EQ(parse_size(wrong), std::nullopt) << wrong;
}

TEST(OptionsTest, AFactorMultipliesAndAStepAdds) {
  Options options;
  options.min_bytes = 8;
  options.max_bytes = 100;
  options.step_factor = 4;
  EXPECT_THAT(message_sizes(options), testing::ElementsAre(8, 32));
  options.step_factor = 1;
  options.step_bytes = 40;
  EXPECT_THAT(message_sizes(options), testing::ElementsAre(8, 48, 88));
}

TEST(OptionsTest, SizesEndBeforeTheyOverflow) {
  Options options;
  options.min_bytes = 1ull << 59;
  options.max_bytes = 1ull << 60;
  options.step_factor = 1ull << 40;
  EXPECT_THAT(message_sizes(options), testing::ElementsAre(1ull << 59));
}

TEST(OptionsTest, AllMeansEveryTypeOperatorAndRoot) {
  const ParsedOptions parsed = parse({"-d", "all", "-o", "all", "-r", "all"});
  ASSERT_TRUE(parsed.run);
  EXPECT_EQ(parsed.options.types.size(), static_cast<size_t>(TUTTI_TYPE_COUNT));
  EXPECT_EQ(parsed.options.ops.size(), 9u);
  EXPECT_FALSE(parsed.options.root.has_value());
}

TEST(OptionsTest, RootMinusOneMeansAllAsInNcclTests) {
  const ParsedOptions parsed = parse({"-r", "-1"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_FALSE(parsed.options.root.has_value());
}

// Goal: what cannot be done is refused in one line that names the flag.
TEST(OptionsTest, WhatCannotBeDoneIsRefused) {
  struct Case {
    std::vector<const char*> words;
    const char* said;
  };
  for (const Case& wrong :
       {Case{{"-g", "0"}, "ngpus: Value 0 not in range 1 to 4096"},
        Case{{"-G", "1", "--memory", "host"}, "-G is refused"}, Case{{"-D", "1"}, "-D"},
        Case{{"--memory", "tape"}, "tape"}, Case{{"--ranks-per-gpu", "0"}, "ranks-per-gpu: Value 0"},
        Case{{"-t", "64", "-g", "65"}, "more than 4096 ranks"}, Case{{"-b", "9", "-e", "8"}, "9 > 8"},
        Case{{"-b", "x"}, "minbytes"}, Case{{"-o", "median"}, "median"}, Case{{"-d", "int7"}, "int7"},
        Case{{"-o", "band", "-d", "float"}, "not defined"}, Case{{"-r", "x"}, "invalid root"},
        Case{{"-n", "-1"}, "iters: Value -1 not in range 0 to 2147483647"},
        Case{{"-w", "-1"}, "warmup_iters: Value -1 not in range 0 to 2147483647"},
        Case{{"-a", "4"}, "average"}, Case{{"-b", "8", "-e", "16", "-i", "0"}, "step"},
        Case{{"-K", "20"}, "-K"}, Case{{"-b", "0", "-f", "2"}, "-f"}, Case{{"--nonsense"}, "nonsense"}}) {
    const ParsedOptions parsed = parse(wrong.words);
    EXPECT_FALSE(parsed.run) << wrong.said;
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_THAT(parsed.text, testing::HasSubstr(wrong.said));
    EXPECT_EQ(parsed.text.find('\n'), std::string::npos) << parsed.text;
  }
}

// Goal: what has no subject where the ranks' memory is, is said and does nothing.
TEST(OptionsTest, FlagsWithoutASubjectAreNotedAndIgnored) {
  ParsedOptions parsed = parse({"-y", "1", "-x", "2", "-V", "8", "-D", "0", "-G", "3", "--floors"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(settle_flags(parsed.options, false), "");
  EXPECT_EQ(parsed.options.notes.size(), 5u);
  EXPECT_EQ(parsed.options.graph_launches, 0);
  EXPECT_FALSE(parsed.options.null_stream);
  EXPECT_FALSE(parsed.options.floors);

  ParsedOptions device = parse({"--stream", "-x", "2", "-G", "3"});
  EXPECT_EQ(settle_flags(device.options, true), "");
  EXPECT_EQ(device.options.notes.size(), 2u);
  EXPECT_EQ(device.options.graph_launches, 3);
}

TEST(OptionsTest, WhatCannotBeDoneOnDevicesIsRefused) {
  struct Case {
    std::vector<const char*> words;
    const char* said;
  };
  for (const Case& wrong : {Case{{"-R", "2"}, "-R 2"}, Case{{"-G", "1", "-y", "1"}, "with -y"},
                            Case{{"-G", "1", "-z", "1"}, "with -z"}, Case{{"-G", "1", "-I"}, "with -I"}}) {
    ParsedOptions parsed = parse(wrong.words);
    ASSERT_TRUE(parsed.run) << parsed.text;
    EXPECT_THAT(settle_flags(parsed.options, true), testing::HasSubstr(wrong.said));
    ParsedOptions host = parse(wrong.words);
    EXPECT_EQ(settle_flags(host.options, false), "");
  }
}

TEST(OptionsTest, RanksOfAProcessAreThreadsTimesGpusTimesRanksOnEach) {
  const ParsedOptions parsed = parse({"-t", "3", "-g", "2", "--ranks-per-gpu", "4", "--memory", "cuda"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.ranks_per_thread(), 8);
  EXPECT_EQ(parsed.options.ranks_per_process(), 24);
  EXPECT_EQ(parsed.options.memory, Memory::kCuda);
}

TEST(OptionsTest, HelpNamesEveryFlagAndSucceeds) {
  const ParsedOptions parsed = parse({"--help"});
  EXPECT_FALSE(parsed.run);
  EXPECT_EQ(parsed.exit_code, 0);
  for (const char flag : std::string("tgbeifnmwNcodrzCaRTJSMuIGyxDV"))
    EXPECT_THAT(parsed.text, testing::HasSubstr(std::string("-") + flag + ","));
}

TEST(OptionsTest, TheEnvironmentIsReadAndChecked) {
  EXPECT_EQ(parse({}, spread_environment).options.alltoallv_spread, 0.25);
  EXPECT_EQ(parse({}, device_environment).options.first_device, 3);
  EXPECT_THAT(parse({}, split_environment).text, testing::HasSubstr("NCCL_TESTS_SPLIT_MASK is refused"));
  EXPECT_EQ(parse({}, matrix_environment).options.traffic_file, "traffic.txt");
  EXPECT_FALSE(parse({}, no_summary).options.traffic_summary);
  EXPECT_THAT(parse({}, wrong_device).text, testing::HasSubstr("NCCL_TESTS_DEVICE"));
  const ParsedOptions wrong = parse({}, wrong_environment);
  EXPECT_FALSE(wrong.run);
  EXPECT_THAT(wrong.text, testing::HasSubstr("NCCL_TESTS_MIN_BW"));
}

}  // namespace
}  // namespace tutti::perf
