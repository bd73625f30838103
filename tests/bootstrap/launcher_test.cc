// Launchers: what each puts into the environment, and what is said when it contradicts itself.
#include "bootstrap/launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace tutti {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<LaunchContext>> find(Variables variables) {
  return find_launch_context([variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

/// Expects a context; an empty one when there is none, so that the test goes on.
LaunchContext context_of(const Variables& variables) {
  const auto context = find(variables);
  EXPECT_TRUE(context.is_ok()) << context.status().text();
  EXPECT_TRUE(context.is_ok() && context->has_value());
  return context.is_ok() && *context ? **context : LaunchContext{};
}

std::string error_of(const Variables& variables) {
  const auto context = find(variables);
  EXPECT_FALSE(context.is_ok());
  EXPECT_EQ(context.status().code(), Code::kInvalidUsage);
  return std::string(context.status().text());
}

const Variables kTorchrun = {
    {"RANK", "5"},       {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},      {"LOCAL_WORLD_SIZE", "4"},
    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29400"}, {"TORCHELASTIC_RUN_ID", "run7"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "686096385"},     {"PMIX_RANK", "1"}};
const Variables kMpich = {{"PMI_RANK", "2"},
                          {"PMI_SIZE", "3"},
                          {"MPI_LOCALRANKID", "2"},
                          {"MPI_LOCALNRANKS", "3"},
                          {"PMI_FD", "6"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_ID", "17"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(LauncherTest, NoLauncherIsNoPlace) {
  for (const Variables& variables :
       {Variables{}, Variables{{"SLURM_NTASKS", "4"}}, Variables{{"WORLD_SIZE", "1"}},
        Variables{{"JOB_COMPLETION_INDEX", "3"}}, Variables{{"RANK", ""}}}) {
    const auto context = find(variables);
    ASSERT_TRUE(context.is_ok()) << context.status().text();
    EXPECT_FALSE(context->has_value());
  }
}

TEST(LauncherTest, TorchrunGivesPlaceAndAddress) {
  const LaunchContext context = context_of(kTorchrun);
  EXPECT_EQ(context.launcher, "torchrun");
  EXPECT_EQ(context.rank, 5u);
  EXPECT_EQ(context.rank_count, 8u);
  EXPECT_EQ(context.local_rank, 1u);
  EXPECT_EQ(context.local_count, 4u);
  EXPECT_FALSE(context.is_one_host());
  // The port beside the one that torch's own store listens at.
  EXPECT_EQ(context.rendezvous, (HostPort{"node0", 29401}));
  EXPECT_NE(context.job.find("run7"), std::string::npos);
}

TEST(LauncherTest, OpenMpiHasAPmixServer) {
  const LaunchContext context = context_of(kOpenMpi);
  EXPECT_EQ(context.launcher, "Open MPI");
  EXPECT_EQ(context.rank, 1u);
  EXPECT_EQ(context.rank_count, 2u);
  EXPECT_EQ(context.channel, LaunchChannel::kPmix);
  EXPECT_TRUE(context.is_one_host());
  EXPECT_FALSE(context.rendezvous.has_value());
}

TEST(LauncherTest, MpichHasAProcessManager) {
  const LaunchContext context = context_of(kMpich);
  EXPECT_EQ(context.launcher, "MPICH");
  EXPECT_EQ(context.rank, 2u);
  EXPECT_EQ(context.local_rank, 2u);
  EXPECT_EQ(context.channel, LaunchChannel::kPmi1);
  EXPECT_EQ(context_of(without(kMpich, "PMI_FD")).channel, LaunchChannel::kNone);
}

// Goal: srun --mpi=pmi2 is Slurm, though it sets MPICH's variables too. It was taken for MPICH without a way
// to meet. Its PMI speaks another version on that descriptor.
TEST(LauncherTest, Pmi2OfSlurmIsSlurm) {
  const Variables pmi2 = {{"PMI_RANK", "3"},
                          {"PMI_SIZE", "4"},
                          {"PMI_FD", "6"},
                          {"PMI_JOBID", "17.0"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_STEP_NUM_NODES", "1"}};
  const LaunchContext context = context_of(with(kSlurm, pmi2));
  EXPECT_EQ(context.launcher, "Slurm");
  EXPECT_EQ(context.channel, LaunchChannel::kNone);
  EXPECT_TRUE(context.is_one_host());
  // MPICH's launcher under srun: Slurm's variables are of its own single process.
  const Variables around = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_EQ(context_of(with(with(kSlurm, around), kMpich)).launcher, "MPICH");
}

TEST(LauncherTest, SlurmNamesTheFirstHost) {
  const LaunchContext context = context_of(kSlurm);
  EXPECT_EQ(context.launcher, "Slurm");
  EXPECT_EQ(context.rank, 3u);
  EXPECT_EQ(context.rank_count, 4u);
  EXPECT_EQ(context.local_rank, 1u);
  ASSERT_TRUE(context.rendezvous.has_value());
  EXPECT_EQ(context.rendezvous->host, "gpu07");
  EXPECT_GE(context.rendezvous->port, 20000);
  EXPECT_LT(context.rendezvous->port, 30000);
  EXPECT_EQ(context_of(with(kSlurm, {{"SLURM_PROCID", "0"}})).rendezvous, context.rendezvous)
      << "all ranks compute the same";
  EXPECT_NE(context_of(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).rendezvous->port, context.rendezvous->port);
  EXPECT_EQ(context_of(without(kSlurm, "SLURM_STEP_NODELIST")).rendezvous->host, "10.0.0.1");
  EXPECT_TRUE(context_of(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}})).is_one_host());
  EXPECT_EQ(context_of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "6"}})).rank_count, 6u)
      << "of the step, not the job";
  const Variables pmix = {{"PMIX_NAMESPACE", "slurm.pmix.17.0"}, {"PMIX_RANK", "3"}};
  EXPECT_EQ(context_of(with(kSlurm, pmix)).channel, LaunchChannel::kPmix);
}

TEST(LauncherTest, KubernetesIndexIsTheRank) {
  const LaunchContext context =
      context_of({{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-0.job"}});
  EXPECT_EQ(context.launcher, "Kubernetes");
  EXPECT_EQ(context.rank, 2u);
  EXPECT_EQ(context.rank_count, 3u);
  ASSERT_TRUE(context.rendezvous.has_value());
  EXPECT_EQ(context.rendezvous->host, "job-0.job");
}

// Goal: mpirun inside a Slurm allocation: what Slurm says is about the allocation.
TEST(LauncherTest, LaterLaunchersAreLeftOver) {
  EXPECT_EQ(context_of(with(kSlurm, kOpenMpi)).launcher, "Open MPI");
  EXPECT_EQ(context_of(with(kSlurm, kMpich)).launcher, "MPICH");
  EXPECT_EQ(context_of(with(kTorchrun, {{"JOB_COMPLETION_INDEX", "0"}})).rank, 5u);
}

// Goal: a script that sets RANK and WORLD_SIZE from mpirun's variables agrees with it and keeps its channel.
TEST(LauncherTest, TheSamePlaceTwiceIsOnePlace) {
  const LaunchContext context = context_of(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  EXPECT_EQ(context.launcher, "Open MPI");
  EXPECT_EQ(context.channel, LaunchChannel::kPmix);
  EXPECT_TRUE(context.is_one_host());
}

TEST(LauncherTest, ContradictionsNameTheVariables) {
  const std::vector<std::pair<Variables, std::vector<std::string>>> wrong = {
      {with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
       {"rank 0 of 2 by RANK and WORLD_SIZE", "rank 1 of 2 by OMPI_COMM_WORLD_RANK"}},
      {with(kOpenMpi, kMpich), {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}},
      {without(kTorchrun, "WORLD_SIZE"), {"RANK is set but WORLD_SIZE is not"}},
      {without(kTorchrun, "RANK"), {"WORLD_SIZE is \"8\"", "RANK is not set"}},
      {without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_SIZE"}},
      {with(kTorchrun, {{"RANK", "8"}}), {"RANK is 8", "WORLD_SIZE is 8"}},
      {with(kTorchrun, {{"RANK", "-1"}}), {"RANK is \"-1\""}},
      {with(kTorchrun, {{"WORLD_SIZE", "many"}}), {"WORLD_SIZE is \"many\""}},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), {"LOCAL_WORLD_SIZE"}},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), {"MASTER_PORT is \"0\""}},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT"}},
      {with(kSlurm, {{"SLURM_PROCID", "4"}}), {"SLURM_PROCID is 4", "SLURM_NTASKS is 4"}},
  };
  for (const auto& [variables, parts] : wrong) {
    const std::string error = error_of(variables);
    for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(LauncherTest, NodeListsBeginWithTheirFirstHost) {
  const std::vector<std::pair<const char*, const char*>> lists = {{"n1", "n1"},
                                                                  {"n1,n2", "n1"},
                                                                  {"n[1-4]", "n1"},
                                                                  {"n[01-04,07]", "n01"},
                                                                  {"n[3,5]-ib", "n3-ib"},
                                                                  {"a,b[1-2]", "a"},
                                                                  {"n[1-2],m[3-4]", "n1"},
                                                                  {"n[7]x,m", "n7x"},
                                                                  {"n[1", ""},
                                                                  {"", ""}};
  for (const auto& [list, first] : lists) EXPECT_EQ(first_host_of(list), first) << list;
}

}  // namespace
}  // namespace tutti
