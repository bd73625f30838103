// Goal: plans survive printing and reading, and no text whatever does more than be refused with a line.
// Method: samples there and back, a table of wrong texts, thousands of seeded mutations of right ones.
#include "plan/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "plan/verify.h"
#include "tests/plan/sample_plans.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PlanTextTest, StepsReadAsSentences) {
  EXPECT_EQ(print_step(step({link(3), input(2, 2)}, {output(2, 2), publish()}, 2, 2)),
            "link 3@0 + input 2..4 -> output 2..4 + publish");
  EXPECT_EQ(print_step(finish({published(1), scratch(0)}, {ref(link(2, 1))}, 5)),
            "link 1@255 + scratch 0 -> link 2@1 ref, finish, chunks 5");
  EXPECT_EQ(print_step(step({ref(input(0))}, {ref(publish())}, 7, 1)),
            "input 0 ref -> publish ref, chunks 7");
  EXPECT_EQ(print_step(finish({collect()}, {output(1), contribution(0)}, 1)),
            "collect -> output 1 + link 0@254, finish");
}

TEST(PlanTextTest, EverySampleSurvivesPrintingAndReading) {
  for (const NamedPlans& sample : all_samples()) {
    const std::string text = print_plans(sample.plans);
    const auto read = parse_plans(text);
    ASSERT_TRUE(read) << sample.name << ": " << read.status().text();
    EXPECT_EQ(*read, sample.plans) << sample.name;
    EXPECT_EQ(print_plans(*read), text);
  }
}

// A set whose ranks disagree can be written down too: it is what the verifier refuses.
TEST(PlanTextTest, HeadersMayChangeBetweenRanks) {
  PlanSet plans = star_reduce(3, 0);
  plans[1].slots_needed = 4;
  plans[2].algorithm = "another";
  plans[2].association = PlanAssociation::kAny;
  const auto read = parse_plans(print_plans(plans));
  ASSERT_TRUE(read) << read.status().text();
  EXPECT_EQ(*read, plans);
}

TEST(PlanTextTest, SomeRanksAlone) {
  const PlanSet plans = ring_all_reduce(4);
  const auto read = parse_plans(print_plans(std::span(plans).subspan(2, 1)));
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ((*read)[0], plans[2]);
}

TEST(PlanTextTest, CommentsBlanksAndLineEndsAreFree) {
  const auto read = parse_plans(
      "\n# a comment\ntutti plan 1\r\n  collective   broadcast # here too\n\tranks 1\n\nrank 0\nlane\n"
      "input 0->output 0 ,chunks 0..1");
  ASSERT_TRUE(read) << read.status().text();
  PlanSet expected = empty_plans(Collective::kBroadcast, 1, "");
  expected[0].lanes[0].steps.push_back(step({input(0)}, {output(0)}, 0));
  EXPECT_EQ(*read, expected);
}

TEST(PlanTextTest, WrongTextsAreRefusedByLine) {
  const std::string header = "tutti plan 1\ncollective broadcast\nranks 2\n";
  const std::string lane = header + "rank 0\nlane\n";
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "line 0: expected 'tutti plan 1'"},
      {"tutti plan 2\n", "line 1: expected 'tutti plan 1', found '2'"},
      {"hello", "line 1: expected 'tutti plan 1', found 'hello'"},
      {"tutti plan 1\n", "line 1: expected 'rank N' and its lanes, found the end of the text"},
      {"tutti plan 1\nrank 0\n", "line 2: expected 'collective NAME' before the first 'rank'"},
      {"tutti plan 1\ncollective all\n", "line 2: expected a collective such as all_reduce, found 'all'"},
      {"tutti plan 1\nwheels 4\n",
       "line 2: expected a header key, 'rank', 'lane' or a step, found 'wheels 4'"},
      {"tutti plan 1\nalgorithm\n",
       "line 2: expected a name of at most 64 letters, found the end of the line"},
      {"tutti plan 1\nassociation left\n", "line 2: expected none, any or canonical, found 'left'"},
      {"tutti plan 1\nranks 0\n", "line 2: expected a number from 1 to 65536, found '0'"},
      {"tutti plan 1\nranks 65537\n", "line 2: expected a number from 1 to 65536"},
      {"tutti plan 1\nranks 99999999999999999999999\n", "line 2: expected a number from 1 to 65536"},
      {"tutti plan 1\nranks -1\n", "line 2: expected a number"},
      {"tutti plan 1\nranks 4x\n", "line 2: expected a number"},
      {"tutti plan 1\nranks 4 4\n", "line 2: expected the end of the line, found '4'"},
      {header + "rank 2\n", "line 4: expected a rank below 2, found '2'"},
      {header + "rank 0\nrank 0\n", "line 5: rank 0 occurs twice"},
      {header + "lane\n", "line 4: expected 'rank N' before the first 'lane'"},
      {header + "rank 0\ninput 0 -> output 0\n", "line 5: expected 'lane' before the first step"},
      {lane + "input 0\n", "line 6: expected '+' or '->', found the end of the line"},
      {lane + "input -> output 0\n", "line 6: expected a chunk or a range A..B, found '-> output 0'"},
      {lane + "input 3..2 -> output 0\n",
       "line 6: expected the end of the range, at least 3, found '2 -> output 0'"},
      {lane + "input 4294967296 -> output 0\n", "line 6: expected a chunk or a range"},
      {lane + "input 0 -> link 1\n", "line 6: expected '@CHANNEL'"},
      {lane + "input 0 -> link 1@256\n", "line 6: expected a channel from 0 to 255"},
      {lane + "input 0 -> link @0\n", "line 6: expected PEER@CHANNEL"},
      {lane + "input 0 -> output 0, finish, finish\n",
       "line 6: expected 'finish' or 'chunks A..B', each once"},
      {lane + "input 0 -> output 0 extra\n", "line 6: expected the end of the line, found 'extra'"},
      {lane + "link 1@0 -> scratch 0\n",
       "line 6: expected ', chunks A..B' in a step without input and output"},
      {lane + "input 0 + input 0 + input 0 + input 0 + input 0 + input 0 + input 0 + input 0 + input 0 -> "
              "publish\n",
       "line 6: expected at most 8 ends a side"},
      {lane + "input 0 -> \xff\x01 and much more text than fits in a message\n",
       "found '?? and much more text th...'"},
  };
  for (const auto& [text, error] : cases) {
    const auto read = parse_plans(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(read.status().text()), HasSubstr(error));
    EXPECT_THAT(std::string(read.status().text()), StartsWith("line "));
  }
}

/// One random edit of a text: a byte, a piece copied elsewhere, a piece cut out.
std::string mutate(std::string text, std::mt19937& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  const size_t at = below(text.size());
  const size_t length = below(std::min<size_t>(text.size() - at, 20));
  switch (below(4)) {
    case 0: text[at] = static_cast<char>(random()); break;
    case 1: text.insert(below(text.size()), text.substr(at, length)); break;
    case 2: text.erase(at, length); break;
    default: text[at] = "0123456789 \n+->,.@#"[below(19)]; break;
  }
  return text;
}

// What is read from a damaged text prints and reads back, and the verifier survives it.
// tests/fuzz/plan_text_fuzz.cc is the same without a bound.
TEST(PlanTextTest, DamagedTextsAreReadOrRefused) {
  constexpr uint32_t kSeed = 20250101;
  constexpr int kTexts = 20000;
  std::mt19937 random(kSeed);
  const std::vector<NamedPlans> samples = all_samples();
  int read_count = 0;
  int right_count = 0;
  for (int i = 0; i < kTexts; ++i) {
    // Small ones: the time goes into edits, not into reading.
    std::string text = print_plans(samples[random() % (samples.size() / 2)].plans);
    for (uint32_t edits = 1 + random() % 2; edits > 0 && !text.empty(); --edits) text = mutate(text, random);
    const auto plans = parse_plans(text);
    if (!plans) {
      ASSERT_THAT(std::string(plans.status().text()), StartsWith("line "))
          << "seed " << kSeed << " text " << i;
      continue;
    }
    ++read_count;
    const auto again = parse_plans(print_plans(*plans));
    ASSERT_TRUE(again) << "seed " << kSeed << " text " << i << ": " << again.status().text();
    ASSERT_EQ(*again, *plans) << "seed " << kSeed << " text " << i;
    right_count += verify_plans(*plans).is_ok() ? 1 : 0;
  }
  RecordProperty("read", read_count);
  RecordProperty("right", right_count);
  EXPECT_GT(read_count, kTexts / 50);
}

}  // namespace
}  // namespace tutti::test
