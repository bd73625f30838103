// Goal: right plans are proved, and each kind of defect is refused with a message that names it.
// Method: hand-made plans (sample_plans.h), whole and with one thing broken; mutation_test.cc breaks them by
// the thousand.
#include "plan/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "plan/graph.h"
#include "plan/races.h"
#include "plan/shape.h"
#include "tests/plan/sample_plans.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

/// What verify says; "" if nothing.
std::string defect(const PlanSet& plans, const VerifyOptions& options = {}) {
  const Status status = verify_plans(plans, options);
  if (status.is_ok()) return "";
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  return std::string(status.text());
}

Step& step_at(PlanSet& plans, uint32_t rank, size_t index, size_t lane = 0) {
  return plans[rank].lanes[lane].steps[index];
}

PlanSet one_rank(Collective collective, Step only) {
  PlanSet plans = empty_plans(collective, 1, "copy");
  plans[0].lanes[0].steps.push_back(std::move(only));
  return plans;
}

TEST(VerifyTest, EverySampleIsProved) {
  for (const NamedPlans& sample : all_samples()) {
    EXPECT_EQ(defect(sample.plans, {.in_place = sample.in_place}), "") << sample.name;
  }
}

TEST(VerifyTest, OneRankCopiesItsInput) {
  for (const auto collective : {Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll,
                                Collective::kGather, Collective::kScatter, Collective::kBarrier}) {
    EXPECT_EQ(defect(one_rank(collective, step({input(0)}, {output(0)}, 0))), "")
        << collective_name(collective);
  }
  for (const auto collective : {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    EXPECT_EQ(defect(one_rank(collective, finish({input(0)}, {output(0)}, 0))), "");
    EXPECT_THAT(defect(one_rank(collective, step({input(0)}, {output(0)}, 0))),
                HasSubstr("no step has 'finish'"));
  }
}

TEST(VerifyTest, SetsMustBeComplete) {
  EXPECT_THAT(defect({}), HasSubstr("there is no plan"));
  PlanSet plans = ring_all_reduce(4);
  plans.pop_back();
  EXPECT_THAT(defect(plans), HasSubstr("3 plans for 4 ranks"));
  plans = ring_all_reduce(4);
  std::swap(plans[1], plans[2]);
  EXPECT_THAT(defect(plans), HasSubstr("plan 1 is that of rank 2"));
  plans = ring_all_reduce(4);
  for (Plan& plan : plans) plan.collective = Collective::kSendRecv;
  EXPECT_THAT(defect(plans), HasSubstr("send_recv"));
}

TEST(VerifyTest, RanksMustAgree) {
  const auto refuses = [](const char* what, auto change) {
    PlanSet plans = star_reduce(3, 1);
    change(plans[2]);
    EXPECT_THAT(defect(plans), HasSubstr(std::string("rank 2 states another ") + what));
  };
  refuses("root", [](Plan& plan) { plan.root = 0; });
  refuses("chunks_per_block", [](Plan& plan) { plan.chunks_per_block = 2; });
  refuses("scratch_chunks", [](Plan& plan) { plan.scratch_chunks = 1; });
  refuses("slots_needed", [](Plan& plan) { plan.slots_needed = 3; });
  refuses("association", [](Plan& plan) { plan.association = PlanAssociation::kAny; });
  refuses("collective", [](Plan& plan) { plan.collective = Collective::kGather; });
}

TEST(VerifyTest, RootMustBeARank) {
  PlanSet plans = chain_broadcast(3, 0, 1);
  for (Plan& plan : plans) plan.root = 3;
  EXPECT_THAT(defect(plans), HasSubstr("root 3 is not one of 3 ranks"));
}

/// A table of single steps that are wrong in themselves, in the place of rank 1's second step of a ring of
/// four.
TEST(VerifyTest, StepsMustHaveAShape) {
  const std::vector<End> nine(9, input(0));
  const std::vector<std::pair<Step, const char*>> cases = {
      {step({}, {output(0)}, 0), "has 0 sources"},
      {step(nine, {output(0)}, 0), "has 9 sources"},
      {step({input(0)}, {}, 0), "has 0 sinks"},
      {step({input(0)}, {input(0)}, 0), "writes the input"},
      {step({publish()}, {output(0)}, 0), "publish as a source"},
      {step({input(4)}, {output(0)}, 0), "names chunk 4 of a buffer of 4"},
      {step({input(UINT32_MAX)}, {output(0)}, 0), "names chunk 4294967295"},
      {step({input(0)}, {scratch(0)}, 0), "names chunk 0 of a buffer of 0"},
      {step({input(0, 2)}, {output(0)}, 0), "an end of 2 chunks in a step of 1"},
      {step({input(0, 0)}, {output(0, 0)}, 0, 0), "covers no chunk"},
      {step({input(0)}, {output(0)}, 4), "covers chunks 4.. + 1 of 4"},
      {step({link(4)}, {output(0)}, 0), "a link to rank 4 of 4"},
      {step({link(1)}, {output(0)}, 0), "a link to its own rank"},
      {step({link(2, 4)}, {output(0)}, 0), "a link on channel 4; a plan has channels 0 to 3"},
      {step({input(0)}, {link(2, 253)}, 0), "a link on channel 253"},
      {step({input(0)}, {published(2)}, 0), "the channel of published messages"},
      {step({input(0)}, {ref(output(0))}, 0), "'ref' on a buffer that it writes"},
      {step({input(0)}, {output(0), output(0)}, 0), "writes to one place twice"},
      {step({input(0)}, {link(2), link(2)}, 0), "writes to one place twice"},
      {step({input(0)}, {publish(), publish()}, 0), "writes to one place twice"},
      {step({link(2), link(2)}, {output(0)}, 0), "reads one link twice"},
      {step({output(0, 2)}, {output(1, 2)}, 0, 2), "overlapping chunks at different places"},
      {step({input(0, 3)}, {link(2)}, 0, 3), "moves 3 chunks over a link, but the plan states 2 slots"},
  };
  for (const auto& [bad, text] : cases) {
    PlanSet plans = ring_all_reduce(4);
    step_at(plans, 1, 1) = bad;
    EXPECT_THAT(defect(plans), HasSubstr(text));
    EXPECT_THAT(defect(plans), HasSubstr("rank 1 lane 0 step 1 ("));
  }
}

TEST(VerifyTest, OnlyReductionsReduceAndFinish) {
  PlanSet plans = chain_broadcast(2, 0, 1);
  step_at(plans, 0, 0).finish = true;
  EXPECT_THAT(defect(plans), HasSubstr("finishes a reduction in a collective that has none"));
  plans = chain_broadcast(2, 0, 1);
  step_at(plans, 0, 0).sources.push_back(output(0));
  EXPECT_THAT(defect(plans), HasSubstr("reduces in a collective that does not"));
}

// Non-roots may have no such buffer at all: the pointer may be null.
TEST(VerifyTest, BuffersOfTheRootAreTheRootsAlone) {
  PlanSet plans = star_reduce(3, 0);
  step_at(plans, 1, 0).sinks.push_back(output(0));
  EXPECT_THAT(defect(plans), HasSubstr("writes the output, which only root 0 has"));
  plans = star_gather(3, 2);
  step_at(plans, 1, 0).sinks.push_back(output(1));
  EXPECT_THAT(defect(plans), HasSubstr("writes the output, which only root 2 has"));
  plans = chain_broadcast(3, 0, 1);
  step_at(plans, 1, 0).sources = {input(0)};
  EXPECT_THAT(defect(plans), HasSubstr("reads the input, which only root 0 has"));
  plans = star_scatter(3, 0);
  step_at(plans, 1, 0).sources = {input(1)};
  EXPECT_THAT(defect(plans), HasSubstr("reads the input, which only root 0 has"));
}

TEST(VerifyTest, EverySendMeetsAReceiveOfItsLength) {
  PlanSet plans = star_gather(3, 0);
  plans[0].lanes[0].steps.pop_back();
  EXPECT_THAT(defect(plans), HasSubstr("sends a message on link 2 -> 0@0 that is never received"));
  plans = star_gather(3, 0);
  plans[2].lanes[0].steps.clear();
  EXPECT_THAT(defect(plans), HasSubstr("waits for a message on link 2 -> 0@0 that is never sent"));
  plans = bruck_all_gather(4);
  step_at(plans, 1, 3).chunk_count = 1;
  step_at(plans, 1, 3).sources[0].chunk_count = 1;
  EXPECT_THAT(defect(plans), HasSubstr("expects 2 chunks, but rank 1 lane 0 step 3"));
}

TEST(VerifyTest, EveryRankReceivesWhatIsPublished) {
  PlanSet plans = one_shot_all_reduce(3);
  std::vector<End>& sources = step_at(plans, 2, 1).sources;
  sources.erase(sources.begin());
  EXPECT_THAT(defect(plans), HasSubstr("sends a message on publication 0 -> 2@255 that is never received"));
}

/// Three ranks that each collect a chunk: steps 0 to 2 contribute, 3 collects, 4 and 5 receive.
PlanSet three_collectors() {
  return collecting_all_reduce(3);
}

TEST(VerifyTest, EveryRankContributesToWhatIsCollected) {
  PlanSet plans = three_collectors();
  plans[1].lanes[0].steps.erase(plans[1].lanes[0].steps.begin());
  EXPECT_THAT(defect(plans), HasSubstr("waits for a message on contribution 1 -> 0@254 that is never sent"));
  plans = three_collectors();
  plans[1].lanes[0].steps.erase(plans[1].lanes[0].steps.begin() + 1);
  EXPECT_THAT(defect(plans), HasSubstr("waits for a message on contribution 1 -> 1@254 that is never sent"))
      << "its own, too";
}

TEST(VerifyTest, NobodyContributesTwice) {
  PlanSet plans = three_collectors();
  auto& steps = plans[1].lanes[0].steps;
  steps.insert(steps.begin(), steps[0]);
  EXPECT_THAT(defect(plans), HasSubstr("sends a message on contribution 1 -> 0@254 that is never received"));
}

TEST(VerifyTest, ContributionsAreOfOneChunkAndOfDifferentRanks) {
  PlanSet plans = three_collectors();
  step_at(plans, 1, 0).sources = {input(1)};
  step_at(plans, 1, 0).first_chunk = 1;
  EXPECT_THAT(defect(plans), HasSubstr("reduces rank 0 of input chunk 0 with rank 1 of input chunk 1"));
  // Rank 1 passes rank 0's operand on in place of its own.
  plans = three_collectors();
  step_at(plans, 0, 2).sinks.push_back(link(1));
  step_at(plans, 1, 2).sources = {link(0)};
  EXPECT_THAT(defect(plans), HasSubstr("counts an operand twice: rank 0 of input chunk 2"));
}

TEST(VerifyTest, OnlyUnfinishedValuesAreCollectedAndTheResultFinishesOnce) {
  PlanSet plans = three_collectors();
  step_at(plans, 1, 0).finish = true;
  EXPECT_THAT(defect(plans), HasSubstr("collects a value that is already finished"));
  plans = three_collectors();
  step_at(plans, 1, 3).finish = false;
  EXPECT_THAT(defect(plans), HasSubstr("no step has 'finish'"));
}

TEST(VerifyTest, ACollectComesAfterTheOwnContribution) {
  PlanSet plans = three_collectors();
  std::swap(step_at(plans, 1, 1), step_at(plans, 1, 3));
  EXPECT_THAT(defect(plans), HasSubstr("a deadlock with any number of slots"));
}

// A contribution leaves its slot when the collector has read it: two of a round need two slots.
TEST(VerifyTest, ContributionsWaitForASlot) {
  PlanSet plans = empty_plans(Collective::kAllReduce, 2, "two at a time");
  for (Plan& plan : plans) {
    plan.association = PlanAssociation::kAny;
    plan.chunks_per_block = 2;
    std::vector<Step>& steps = plan.lanes[0].steps;
    for (uint32_t c = 0; c < 2; ++c) steps.push_back(step({input(c)}, {contribution(0)}, c));
    for (uint32_t c = 0; c < 2; ++c)
      steps.push_back(plan.rank == 0 ? finish({collect()}, {output(c), publish()}, c)
                                     : step({published(0)}, {output(c)}, c));
  }
  EXPECT_THAT(defect(plans), HasSubstr("waits forever for a free slot to rank 0"));
  for (Plan& plan : plans) plan.slots_needed = 2;
  EXPECT_EQ(defect(plans), "");
}

// Hardware reduces in an order of its own, so that no order of contributions makes the canonical tree.
TEST(VerifyTest, WhatIsCollectedIsNeverCanonical) {
  for (const uint32_t ranks : {2u, 3u}) {
    PlanSet plans = collecting_all_reduce(ranks);
    for (Plan& plan : plans) plan.association = PlanAssociation::kCanonical;
    EXPECT_THAT(defect(plans), HasSubstr("state the association 'canonical', but it is 'any'")) << ranks;
  }
}

TEST(VerifyTest, ACollectStandsAloneAndNothingOfItIsAReference) {
  PlanSet plans = three_collectors();
  step_at(plans, 0, 3).sources.push_back(input(0));
  EXPECT_THAT(defect(plans), HasSubstr("has a source beside collect"));
  plans = three_collectors();
  step_at(plans, 0, 3).sources = {contribution(1)};
  EXPECT_THAT(defect(plans), HasSubstr("reads the channel of contributions; use collect"));
  plans = three_collectors();
  step_at(plans, 0, 0).sinks = {collect()};
  EXPECT_THAT(defect(plans), HasSubstr("has collect as a sink"));
  plans = three_collectors();
  step_at(plans, 0, 0).sinks = {ref(contribution(0))};
  EXPECT_THAT(defect(plans), HasSubstr("lets a contribution travel as a reference"));
  plans = three_collectors();
  step_at(plans, 0, 0).sources = {ref(input(0))};
  EXPECT_THAT(defect(plans), HasSubstr("lets a contribution travel as a reference"));
  plans = dissemination_barrier(2);
  step_at(plans, 0, 1).sources = {collect()};
  EXPECT_THAT(defect(plans), HasSubstr("collects in a collective that does not reduce"));
}

TEST(VerifyTest, WhatIsPublishedAfterACollectIsReadOnce) {
  PlanSet plans = three_collectors();
  auto& steps = plans[1].lanes[0].steps;
  steps.push_back(steps.back());
  EXPECT_THAT(defect(plans), HasSubstr("that is never sent"));
}

TEST(VerifyTest, ALinkHasOneLaneAtEachEnd) {
  PlanSet plans = chain_broadcast(2, 0, 2);
  plans[0].lanes.resize(2);
  plans[0].lanes[1].steps.push_back(plans[0].lanes[0].steps[1]);
  plans[0].lanes[0].steps.pop_back();
  EXPECT_THAT(defect(plans), HasSubstr("is in the second lane that writes link 0 -> 1@0"));
  plans = chain_broadcast(2, 0, 2);
  plans[1].lanes.resize(2);
  plans[1].lanes[1].steps.push_back(plans[1].lanes[0].steps[1]);
  plans[1].lanes[0].steps.pop_back();
  EXPECT_THAT(defect(plans), HasSubstr("is in the second lane that reads link 0 -> 1@0"));
}

TEST(VerifyTest, ACircleOfWaitsIsADeadlock) {
  PlanSet plans = doubling_all_reduce(2);
  for (Plan& plan : plans) std::swap(plan.lanes[0].steps[0], plan.lanes[0].steps[1]);
  EXPECT_THAT(defect(plans), HasSubstr("waits for"));
  EXPECT_THAT(defect(plans), HasSubstr("a deadlock with any number of slots"));
}

// In a ring every rank sends its next chunk while the one before still lies in the link.
TEST(VerifyTest, ARingNeedsTwoSlots) {
  PlanSet plans = ring_all_reduce(4);
  for (Plan& plan : plans) plan.slots_needed = 1;
  EXPECT_THAT(defect(plans), HasSubstr("waits forever for a free slot to rank"));
}

TEST(VerifyTest, EveryOperandIsNeeded) {
  PlanSet plans = star_reduce(3, 0);
  step_at(plans, 0, 0).sources = {link(1), link(2)};
  EXPECT_THAT(defect(plans), HasSubstr("holds finished (1+2) of input chunk 0; expected"));
}

TEST(VerifyTest, NoOperandCountsTwice) {
  PlanSet plans = star_reduce(3, 0);
  step_at(plans, 0, 0).sources.push_back(input(0));
  EXPECT_THAT(defect(plans), HasSubstr("counts an operand twice: rank 0 of input chunk 0"));
}

TEST(VerifyTest, ReductionsFinishOnce) {
  PlanSet plans = ring_all_reduce(4);
  step_at(plans, 0, 3).finish = false;
  EXPECT_THAT(defect(plans), HasSubstr("no step has 'finish'"));
  plans = ring_all_reduce(4);
  step_at(plans, 0, 4).finish = true;
  EXPECT_THAT(defect(plans), HasSubstr("already finished"));
}

TEST(VerifyTest, ChunksDoNotMix) {
  PlanSet plans = ring_all_reduce(4);
  step_at(plans, 1, 1).sources[1] = input(2);
  EXPECT_THAT(defect(plans), HasSubstr("covers chunk 0, but its data is rank 1 of input chunk 2"));
  plans = direct_reduce_scatter(4);
  step_at(plans, 1, 0).sources[0] = input(3);
  EXPECT_THAT(defect(plans), HasSubstr("reduces"));
}

TEST(VerifyTest, EveryOutputChunkIsWritten) {
  PlanSet plans = pairwise_all_to_all(3);
  plans[1].lanes[0].steps.erase(plans[1].lanes[0].steps.begin());
  EXPECT_THAT(defect(plans), HasSubstr("output chunk 1 of rank 1 holds nothing"));
}

TEST(VerifyTest, BlocksLandAtTheirRank) {
  PlanSet plans = pairwise_all_to_all(3);
  std::swap(step_at(plans, 1, 2).sinks[0].first_chunk, step_at(plans, 1, 4).sinks[0].first_chunk);
  EXPECT_THAT(defect(plans), HasSubstr("of rank 1 holds"));
}

TEST(VerifyTest, NothingIsReadBeforeItIsWritten) {
  PlanSet plans = doubling_all_reduce(4);
  step_at(plans, 0, 0).sources = {scratch(0)};
  EXPECT_THAT(defect(plans), HasSubstr("reads scratch chunk 0 before anything is written there"));
  plans = doubling_all_reduce(4);
  step_at(plans, 0, 0).sources = {output(0)};
  EXPECT_THAT(defect(plans), HasSubstr("reads output chunk 0 before anything is written there"));
}

TEST(VerifyTest, ABarrierHearsFromEveryRank) {
  PlanSet plans = dissemination_barrier(5);
  step_at(plans, 3, 5).sources.resize(1);
  EXPECT_THAT(defect(plans), HasSubstr("expected something of every rank"));
}

// The block that goes to a peer and the one that comes from it share their memory.
TEST(VerifyTest, InPlaceASentBlockIsNotOverwrittenWhileItIsReferredTo) {
  PlanSet plans = pairwise_all_to_all(4);
  EXPECT_EQ(defect(plans, {.in_place = false}), "");
  EXPECT_THAT(defect(plans), HasSubstr("(in place)"));
}

// Pre-multiplication scales whatever is read from the input: it must not be a result by then.
TEST(VerifyTest, InPlaceTheInputIsReadBeforeItIsOverwritten) {
  PlanSet plans = one_shot_all_reduce(2);
  for (Plan& plan : plans) {
    Step send = step({input(0)}, {publish()}, 0);
    plan.scratch_chunks = 1;
    plan.lanes[0].steps = {
        send, step({published(1 - plan.rank)}, {output(0)}, 0),
        finish({plan.rank == 0 ? input(0) : output(0), plan.rank == 0 ? output(0) : input(0)}, {output(0)},
               0)};
  }
  EXPECT_EQ(defect(plans, {.in_place = false}), "");
  EXPECT_THAT(defect(plans),
              HasSubstr("reads input chunk 0 after it was overwritten by rank 0 of input chunk 0"));
}

// Found by mutation: a copy of the input to the output is scaled; read again as the input it would be scaled
// twice.
TEST(VerifyTest, InPlaceACopyOfTheInputIsNotTheInput) {
  PlanSet plans = one_shot_all_reduce(3);
  step_at(plans, 1, 0).sinks.push_back(output(0));
  EXPECT_EQ(defect(plans, {.in_place = false}), "");
  EXPECT_THAT(defect(plans),
              HasSubstr("reads input chunk 0 after it was overwritten by rank 1 of input chunk 0"));
}

// A reference is read when the receiver gets to it: here after the sender has used the chunk for something
// else.
TEST(VerifyTest, AReferredChunkIsNotOverwritten) {
  PlanSet plans = empty_plans(Collective::kAllReduce, 2, "reuse");
  for (Plan& plan : plans) {
    plan.association = PlanAssociation::kCanonical;
    const uint32_t peer = 1 - plan.rank;
    const std::vector<End> ordered =
        plan.rank == 0 ? std::vector{output(0), link(peer)} : std::vector{link(peer), output(0)};
    plan.lanes[0].steps = {step({input(0)}, {output(0)}, 0), step({output(0)}, {link(peer)}, 0),
                           finish(ordered, {output(0)}, 0)};
  }
  EXPECT_EQ(defect(plans, {.in_place = false}), "");
  step_at(plans, 0, 1).sinks[0].reference_ok = true;
  EXPECT_THAT(defect(plans, {.in_place = false}), HasSubstr("(by reference)"));
  EXPECT_EQ(defect(plans, {.in_place = false, .by_reference = false}), "");
  step_at(plans, 0, 1).sinks[0].reference_ok = false;
  step_at(plans, 0, 1).sources[0].reference_ok = true;
  EXPECT_THAT(defect(plans, {.in_place = false}), HasSubstr("(by reference)"));
}

// An engine refers on all links of a step or on none.
TEST(VerifyTest, AMarkedLinkLetsTheOthersOfItsStepReferToo) {
  PlanSet plans = empty_plans(Collective::kBroadcast, 3, "marked");
  // Rank 0 writes its output again when rank 1 has answered, whatever rank 2 does.
  plans[0].lanes[0].steps = {step({input(0)}, {output(0), link(1), link(2)}, 0),
                             step({link(1)}, {output(0)}, 0)};
  plans[1].lanes[0].steps = {step({link(0)}, {output(0)}, 0), step({output(0)}, {link(0)}, 0)};
  plans[2].lanes[0].steps = {step({link(0)}, {output(0)}, 0)};
  EXPECT_EQ(defect(plans, {.in_place = false}), "");
  step_at(plans, 0, 0).sinks[1].reference_ok = true;
  EXPECT_THAT(defect(plans, {.in_place = false}), HasSubstr("(by reference)"));
}

/// Two-shot all-reduce of two ranks in two chunks; each rank places its result.
PlanSet direct_write_plans() {
  PlanSet plans = empty_plans(Collective::kAllReduce, 2, "placing");
  for (Plan& plan : plans) {
    plan.association = PlanAssociation::kCanonical;
    plan.chunks_per_block = 2;
    plan.slots_needed = 2;
    const uint32_t own = plan.rank;
    const uint32_t peer = 1 - own;
    const std::vector<End> ordered =
        own == 0 ? std::vector{input(own), link(peer)} : std::vector{link(peer), input(own)};
    plan.lanes[0].steps = {step({input(peer)}, {link(peer)}, peer),
                           finish(ordered, {output(own), link(peer)}, own),
                           step({link(peer)}, {output(peer)}, peer)};
    End& result = plan.lanes[0].steps[1].sinks[1];
    result.reference_ok = result.direct_write_ok = true;
  }
  return plans;
}

TEST(VerifyTest, AResultIsPlacedOnlyWhereTheReceiverCopiesIt) {
  EXPECT_EQ(defect(direct_write_plans()), "");
  PlanSet elsewhere = direct_write_plans();
  for (Plan& plan : elsewhere) plan.scratch_chunks = 1;
  step_at(elsewhere, 1, 2) = step({link(0)}, {scratch(0)}, 0);
  elsewhere[1].lanes[0].steps.push_back(step({scratch(0)}, {output(0)}, 0));
  EXPECT_THAT(defect(elsewhere), HasSubstr("does not copy to the same chunks"));
  step_at(elsewhere, 0, 1).sinks[1].direct_write_ok = false;
  EXPECT_EQ(defect(elsewhere), "");
}

TEST(VerifyTest, AResultIsNotPlacedOverWhatTheReceiverStillNeeds) {
  // Rank 1 keeps a copy of its input in the output until the result has come.
  PlanSet plans = direct_write_plans();
  auto& steps = plans[1].lanes[0].steps;
  steps.insert(steps.begin() + 2, step({input(0)}, {output(0)}, 0));
  EXPECT_THAT(defect(plans, {.in_place = false}), HasSubstr("(direct writes)"));
  step_at(plans, 0, 1).sinks[1].direct_write_ok = false;
  EXPECT_EQ(defect(plans, {.in_place = false}), "");
}

TEST(VerifyTest, OnlyAStepThatWritesTheOutputPlaces) {
  PlanSet plans = direct_write_plans();
  step_at(plans, 0, 0).sinks[0].reference_ok = true;
  step_at(plans, 0, 0).sinks[0].direct_write_ok = true;
  EXPECT_THAT(defect(plans), HasSubstr("has 'direct'"));
  plans = direct_write_plans();
  step_at(plans, 0, 1).sinks[1].reference_ok = false;
  EXPECT_THAT(defect(plans), HasSubstr("has 'direct'"));
}

// Lanes of one rank are ordered by messages alone.
TEST(VerifyTest, LanesThatShareAChunkRace) {
  PlanSet plans = chain_broadcast(2, 0, 1);
  for (Plan& plan : plans) plan.scratch_chunks = 1;
  plans[0].lanes[0].steps = {step({input(0)}, {scratch(0)}, 0), step({input(0)}, {output(0)}, 0)};
  plans[0].lanes.push_back({{step({scratch(0)}, {link(1)}, 0)}});
  EXPECT_THAT(defect(plans), HasSubstr("race: "));
}

/// Two lanes of rank 0 pass a chunk of scratch through an echo of rank 1, which orders them within a round.
PlanSet echo_plans(bool echo_back) {
  PlanSet plans = empty_plans(Collective::kBroadcast, 2, "echo");
  for (Plan& plan : plans) plan.scratch_chunks = 1;
  plans[0].lanes = {{{step({input(0)}, {scratch(0), link(1, 0)}, 0)}},
                    {{step({link(1, 0)}, {output(0)}, 0), step({scratch(0)}, {link(1, 1)}, 0)}}};
  plans[1].lanes[0].steps = {step({link(0, 0)}, {link(0, 0)}, 0), step({link(0, 1)}, {output(0)}, 0)};
  if (echo_back) {
    plans[0].lanes[0].steps.push_back(step({link(1, 1)}, {output(0)}, 0));
    plans[0].lanes[1].steps[0].sinks = {link(1, 2)};
    plans[1].lanes[0].steps[1].sinks.push_back(link(0, 1));
    plans[1].lanes.push_back({{step({link(0, 2)}, {scratch(0)}, 0)}});
  }
  return plans;
}

// A round overwrites the scratch of the round before, which another lane may still read.
TEST(VerifyTest, ScratchIsSafeOverRounds) {
  EXPECT_THAT(defect(echo_plans(false)), HasSubstr("of the next round access one chunk"));
  EXPECT_EQ(defect(echo_plans(true)), "");
}

// Slices flow through an echo while the step that sends them is still running: chunk 2 is sent second and
// must not be the first that the echo overwrites. A third message keeps the rounds apart.
TEST(VerifyTest, MessagesOrderOnlyEarlierPlaces) {
  const auto echo_into = [](uint32_t first) {
    PlanSet plans = empty_plans(Collective::kAllGather, 2, "shift");
    for (Plan& plan : plans) plan.scratch_chunks = 4;
    for (Plan& plan : plans) plan.slots_needed = 2;
    plans[0].lanes = {{{step({scratch(1, 2)}, {link(1, 0)}, 0, 2), step({link(1, 1)}, {output(1)}, 1)}},
                      {{step({link(1, 0)}, {scratch(first, 2)}, 0, 2), step({input(0)}, {link(1, 2)}, 1)}}};
    plans[1].lanes = {{{step({link(0, 0)}, {link(0, 0)}, 0, 2)}}, {{step({link(0, 2)}, {link(0, 1)}, 1)}}};
    EXPECT_TRUE(check_shape(plans).is_ok());
    const auto graph = PlanGraph::build(plans);
    return std::string(check_races(plans, *graph, {}).text());
  };
  EXPECT_EQ(echo_into(0), "");
  EXPECT_EQ(echo_into(1), "");
  EXPECT_THAT(echo_into(2), HasSubstr("race: "));
}

// The last chunk of a block may be short: a longer chunk in its place would run over its end.
TEST(VerifyTest, ChunksOfOtherSizesDoNotFitAnOutputChunk) {
  PlanSet plans = chain_broadcast(2, 0, 3);
  std::vector<Step>& steps = plans[0].lanes[0].steps;
  steps.insert(steps.begin(), step({input(0)}, {output(2)}, 0));
  EXPECT_THAT(defect(plans), HasSubstr("writes chunk 0 to output chunk 2, which has another size"));
}

TEST(VerifyTest, AssociationIsWhatWasFound) {
  EXPECT_EQ(*find_association(ring_all_reduce(4)), PlanAssociation::kAny);
  EXPECT_EQ(*find_association(one_shot_all_reduce(5)), PlanAssociation::kCanonical);
  EXPECT_EQ(*find_association(doubling_all_reduce(8)), PlanAssociation::kCanonical);
  EXPECT_EQ(*find_association(two_lane_all_gather(4)), PlanAssociation::kNone);
  EXPECT_EQ(*find_association(dissemination_barrier(4)), PlanAssociation::kNone);
  PlanSet plans = ring_all_reduce(4);
  for (Plan& plan : plans) plan.association = PlanAssociation::kCanonical;
  EXPECT_THAT(defect(plans), HasSubstr("state the association 'canonical', but it is 'any'"));
}

// The tree over ranks is one tree: swapping the operands of one node leaves it.
TEST(VerifyTest, CanonicalMeansLowerRanksLeft) {
  PlanSet plans = doubling_all_reduce(4);
  std::swap(step_at(plans, 2, 1).sources[0], step_at(plans, 2, 1).sources[1]);
  EXPECT_EQ(*find_association(plans), PlanAssociation::kAny);
}

// With blocks of different sizes it matters which block a step names.
TEST(VerifyTest, VariableCountsNeedTheVeryBlock) {
  EXPECT_EQ(defect(two_lane_all_gather(4), {.variable_counts = true}), "");
  EXPECT_EQ(defect(direct_reduce_scatter(4), {.variable_counts = true}), "");
  EXPECT_THAT(defect(bruck_all_gather(4), {.variable_counts = true}),
              HasSubstr("covers chunk 0, but its data is"));
}

// Goal: in an all_to_all a rank knows the sizes of its own blocks, and of those that it copies to scratch.
// Method: rank 1 hands on the block of rank 0 for rank 2, first through scratch.
TEST(VerifyTest, VariableCountsOfAnAllToAllNeedABuffer) {
  PlanSet plans = pairwise_all_to_all(3);
  EXPECT_EQ(defect(plans, {.in_place = false, .variable_counts = true}), "");
  for (Step& step : plans[0].lanes[0].steps) {
    if (step.sinks[0].kind == EndKind::kLink && step.sinks[0].peer == 2) step.sinks[0] = link(1, 1);
  }
  for (Step& step : plans[2].lanes[0].steps) {
    if (step.sources[0].kind == EndKind::kLink && step.sources[0].peer == 0) step.sources[0] = link(1, 1);
  }
  PlanSet direct = plans;
  auto& steps = plans[1].lanes[0].steps;
  for (Plan& plan : plans) plan.scratch_chunks = 1;
  steps.insert(steps.begin(), {step({link(0, 1)}, {scratch(0)}, 2), step({scratch(0)}, {link(2, 1)}, 2)});
  EXPECT_EQ(defect(plans, {.in_place = false, .variable_counts = true}), "");
  auto& other = direct[1].lanes[0].steps;
  other.insert(other.begin(), step({link(0, 1)}, {link(2, 1)}, 2));
  EXPECT_EQ(defect(direct, {.in_place = false}), "");
  EXPECT_THAT(defect(direct, {.in_place = false, .variable_counts = true}),
              HasSubstr("rank 1 has a step that does not copy from or to one buffer"));
}

double seconds_of(const PlanSet& plans, const VerifyOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(defect(plans, options), "");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The bounds are those of the design with room for sanitizers; the figures are printed for the record.
TEST(VerifyTest, SixtyFourRanksAreProvedInUnderASecond) {
  const double all_to_all = seconds_of(pairwise_all_to_all(64), {.in_place = false});
  const double ring = seconds_of(ring_all_reduce(64), {});
  RecordProperty("all_to_all_ms", std::to_string(all_to_all * 1e3));
  RecordProperty("ring_ms", std::to_string(ring * 1e3));
  EXPECT_LT(all_to_all, 20.0);
  EXPECT_LT(ring, 20.0);
}

}  // namespace
}  // namespace tutti::test
