// Places from environments, and the pipe that brings the unique id to workers.
#include "perf/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "perf/worker_environment.h"

namespace tutti::perf {
namespace {

// Environments as functions, because GetEnv is a plain pointer.
const char* find(std::initializer_list<std::pair<const char*, const char*>> list, const char* name) {
  for (const auto& [key, value] : list)
    if (std::strcmp(key, name) == 0) return value;
  return nullptr;
}
const char* nothing(const char*) {
  return nullptr;
}
const char* torchrun(const char* name) {
  return find({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"TUTTI_ID_FILE", "/tmp/id"}}, name);
}
const char* mpirun(const char* name) {
  return find({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"TUTTI_ID_FILE", "/tmp/id"}},
              name);
}
const char* lone_slurm(const char* name) {
  return find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, name);
}
const char* without_file(const char* name) {
  return find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, name);
}
const char* contradictory(const char* name) {
  return find({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, name);
}
const char* worker(const char* name) {
  return find({{kWorkerVariable, "1 3 5"}}, name);
}
const char* broken_worker(const char* name) {
  return find({{kWorkerVariable, "3 3 5"}}, name);
}

TEST(LaunchTest, AloneWithoutAnyLauncher) {
  const Result<ProcessContext> context = find_process_context({}, nothing);
  ASSERT_TRUE(context.is_ok());
  EXPECT_EQ(context->process_count, 1);
  EXPECT_EQ(context->channel, ProcessContext::Channel::kNone);
}

TEST(LaunchTest, LaunchersGiveRankAndSize) {
  const Result<ProcessContext> torch = find_process_context({}, torchrun);
  ASSERT_TRUE(torch.is_ok());
  EXPECT_EQ(torch->process, 2);
  EXPECT_EQ(torch->process_count, 4);
  EXPECT_EQ(torch->channel, ProcessContext::Channel::kLauncher);
  EXPECT_EQ(find_process_context({}, mpirun)->process_count, 2);
  EXPECT_EQ(find_process_context({}, lone_slurm)->channel, ProcessContext::Channel::kNone);
}

TEST(LaunchTest, ContradictoryVariablesAreNamed) {
  const Result<ProcessContext> wrong = find_process_context({}, contradictory);
  ASSERT_FALSE(wrong.is_ok());
  EXPECT_THAT(std::string(wrong.status().text()), testing::HasSubstr("WORLD_SIZE"));
}

TEST(LaunchTest, AWorkerKnowsItsPlaceAndDoesNotSupervise) {
  LaunchOptions options;
  options.processes = 3;
  EXPECT_TRUE(is_supervisor(options, nothing));
  EXPECT_FALSE(is_supervisor(options, worker));
  const Result<ProcessContext> context = find_process_context(options, worker);
  ASSERT_TRUE(context.is_ok());
  EXPECT_EQ(context->process, 1);
  EXPECT_EQ(context->process_count, 3);
  EXPECT_EQ(context->pipe_descriptor, 5);
  EXPECT_FALSE(find_process_context(options, broken_worker).is_ok());
}

const char* slurm_script(const char* name) {
  return find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, name);
}
const char* slurm_step(const char* name) {
  return find({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}}, name);
}

// Goal: --procs under a launcher, which would be many runs instead of one, is refused; alone it is not.
TEST(LaunchTest, ASupervisorIsTheOnlyOne) {
  LaunchOptions options;
  options.processes = 3;
  for (const Environment several : {torchrun, mpirun, without_file, slurm_step}) {
    const Status status = check_alone(options, several);
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_THAT(std::string(status.text()), testing::HasSubstr("--procs 3"));
  }
  for (const Environment one : {nothing, lone_slurm, slurm_script, contradictory})
    EXPECT_TRUE(check_alone(options, one).is_ok());
}

tutti_unique_id_t sample_id() {
  tutti_unique_id_t id;
  for (size_t i = 0; i < sizeof(id.bytes); ++i) id.bytes[i] = static_cast<char>(i * 7);
  return id;
}

TEST(LaunchTest, ThePipeCarriesTheIdToEveryProcess) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto context = [&](int process, int descriptor) {
    ProcessContext one;
    one.process = process;
    one.process_count = 3;
    one.channel = ProcessContext::Channel::kPipe;
    one.pipe_descriptor = descriptor;
    return one;
  };
  tutti_unique_id_t id = sample_id();
  ASSERT_TRUE(share_id(context(0, ends[1]), &id).is_ok());
  ::close(ends[1]);
  for (int process = 1; process < 3; ++process) {
    tutti_unique_id_t got{};
    ASSERT_TRUE(share_id(context(process, ends[0]), &got).is_ok());
    EXPECT_EQ(std::memcmp(&got, &id, sizeof(id)), 0);
  }
  // Nobody wrote for a third reader: it learns that process 0 is gone instead of waiting.
  tutti_unique_id_t none{};
  EXPECT_EQ(share_id(context(2, ends[0]), &none).code(), Code::kPeerLost);
  ::close(ends[0]);
}

}  // namespace
}  // namespace tutti::perf
