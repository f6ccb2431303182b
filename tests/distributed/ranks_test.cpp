// Who a process is, by the variables of each launcher.
#include "gpt/distributed/ranks.h"

#include <gtest/gtest.h>

#include <map>

#include "support/expect_error.h"

namespace gpt::distributed {
namespace {

using Variables = std::map<std::string, std::string>;

Ranks ranks_in(const Variables& variables) {
  return find_ranks([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Ranks, WithoutALauncherThereIsOneProcess) {
  EXPECT_EQ(ranks_in({}).size, 1);
  EXPECT_EQ(ranks_in({{"RANK", "3"}}).size, 1);                                 // somebody's own variable
  EXPECT_EQ(ranks_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).size, 1);  // a batch script
  EXPECT_EQ(ranks_in({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).launcher, "");
}

TEST(Ranks, TorchrunServesTheMeetingPoint) {
  const Ranks ranks = ranks_in({{"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "29500"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(ranks.launcher, "torchrun");
  EXPECT_EQ(ranks.rank, 5);
  EXPECT_EQ(ranks.size, 8);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.local_size, 4);
  EXPECT_EQ(ranks.address, "node0");
  EXPECT_EQ(ranks.port, 29500);
  EXPECT_EQ(ranks.restart, 2);
  EXPECT_TRUE(ranks.is_served);
  EXPECT_FALSE(ranks.is_one_machine());
  EXPECT_FALSE(ranks.listener.has_value());
}

TEST(Ranks, OurLauncherHandsTheSocketToTheFirstProcessAlone) {
  Variables variables{{"RANK", "0"},
                      {"WORLD_SIZE", "2"},
                      {"LOCAL_RANK", "0"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", "4711"},
                      {"GPT_TRAIN_LISTENER", "7"},
                      {"GPT_TRAIN_MET", "8"},
                      {"GPT_TRAIN_RESTART", "1"}};
  const Ranks first = ranks_in(variables);
  EXPECT_EQ(first.launcher, "gpt-train");
  EXPECT_EQ(first.listener, 7);
  EXPECT_EQ(first.met, 8);
  EXPECT_EQ(first.restart, 1);
  EXPECT_TRUE(first.is_one_machine());
  variables["RANK"] = variables["LOCAL_RANK"] = "1";
  EXPECT_FALSE(ranks_in(variables).listener.has_value());
  EXPECT_FALSE(ranks_in(variables).met.has_value());
}

TEST(Ranks, MpirunAndSrunMayNameNoAddress) {
  const Ranks open_mpi = ranks_in({{"OMPI_COMM_WORLD_RANK", "3"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(open_mpi.launcher, "Open MPI's mpirun");
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.local_size, 2);
  EXPECT_EQ(open_mpi.address, "");
  const Ranks mpich = ranks_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(mpich.launcher, "MPICH's mpirun");
  EXPECT_EQ(mpich.local_rank, 1);  // on one machine, as nothing else is said
  const Ranks slurm = ranks_in({{"SLURM_PROCID", "6"},
                                {"SLURM_STEP_NUM_TASKS", "8"},
                                {"SLURM_LOCALID", "2"},
                                {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                                {"SLURM_JOB_ID", "99"}});
  EXPECT_EQ(slurm.launcher, "srun");
  EXPECT_EQ(slurm.local_size, 4);
  EXPECT_EQ(slurm.id, "99.0.0");
}

const Variables kSlurmStep{{"SLURM_PROCID", "2"},
                           {"SLURM_STEP_NUM_TASKS", "5"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "2"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                           {"SLURM_JOB_ID", "99"}};

Variables with(Variables variables, const Variables& more) {
  variables.insert(more.begin(), more.end());
  return variables;
}

TEST(Ranks, EachStepAndEachRestartOfASlurmJobIsAnotherStart) {
  const Ranks ranks = ranks_in(with(kSlurmStep, {{"SLURM_STEP_ID", "3"}, {"SLURM_RESTART_COUNT", "1"}}));
  EXPECT_EQ(ranks.id, "99.3.1");
  EXPECT_EQ(ranks.local_size, 1);  // on the third machine
  EXPECT_EQ(ranks_in(with(kSlurmStep, {{"SLURM_STEP_ID", "4"}})).id, "99.4.0");
}

TEST(Ranks, WhatStartedTheProcessItselfCounts) {
  const Variables pmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}};
  const Ranks pmi2 = ranks_in(with(kSlurmStep, pmi));  // srun --mpi=pmi2
  EXPECT_EQ(pmi2.launcher, "srun");
  EXPECT_EQ(pmi2.size, 5);
  // mpirun of MPICH in Slurm, which has started one step with a process for each machine.
  const Ranks mpich = ranks_in(with(with(kSlurmStep, pmi), {{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}));
  EXPECT_EQ(mpich.launcher, "MPICH's mpirun");
  EXPECT_EQ(mpich.size, 4);
  EXPECT_FALSE(mpich.is_one_machine());
  EXPECT_EQ(mpich.id, "");  // there is none that all machines have
  const Ranks open_mpi = ranks_in(with(kSlurmStep, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}));
  EXPECT_EQ(open_mpi.launcher, "Open MPI's mpirun");
  EXPECT_EQ(open_mpi.size, 4);
}

TEST(Ranks, APodIsAMachineOfItsOwn) {
  const Variables pod{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "master-0"}, {"MASTER_PORT", "23456"}};
  const Ranks ranks = ranks_in(pod);
  EXPECT_EQ(ranks.launcher, "RANK and WORLD_SIZE");
  EXPECT_EQ(ranks.local_rank, 0);
  EXPECT_EQ(ranks.local_size, 1);
  const Ranks first = ranks_in({{"RANK", "0"},
                                {"WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "localhost"},
                                {"MASTER_PORT", "23456"},
                                {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}});
  EXPECT_EQ(first.local_size, 1);
  const Ranks by_hand =
      ranks_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "23456"}});
  EXPECT_EQ(by_hand.local_rank, 1);
  EXPECT_EQ(by_hand.local_size, 2);
  EXPECT_ERROR(ranks_in(with(pod, {{"LOCAL_RANK", "1"}})), ExitCode::config,
               "environment variable LOCAL_WORLD_SIZE: not set, but LOCAL_RANK is 1");
}

TEST(Ranks, TheLogCanSayWhatALauncherDoesWithSignals) {
  const auto said = [](const Variables& variables) { return signals_under(ranks_in(variables).launcher); };
  EXPECT_NE(said({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "");
  EXPECT_NE(said({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), "");
  EXPECT_EQ(said(kSlurmStep), "");
}

TEST(Ranks, AVariableThatIsNoRankIsNamed) {
  EXPECT_ERROR((ranks_in({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})),
               ExitCode::config, "environment variable RANK: must be a whole number from 0 to 1, got '2'");
  EXPECT_ERROR((ranks_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}})), ExitCode::config,
               "environment variable MASTER_PORT");
}

}  // namespace
}  // namespace gpt::distributed
