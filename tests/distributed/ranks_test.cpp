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
  EXPECT_EQ(open_mpi.launcher, "mpirun");
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.local_size, 2);
  EXPECT_EQ(open_mpi.address, "");
  const Ranks mpich = ranks_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(mpich.launcher, "mpirun");
  EXPECT_EQ(mpich.local_rank, 1);  // on one machine, as nothing else is said
  const Ranks slurm = ranks_in({{"SLURM_PROCID", "6"},
                                {"SLURM_STEP_NUM_TASKS", "8"},
                                {"SLURM_LOCALID", "2"},
                                {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                                {"SLURM_JOB_ID", "99"}});
  EXPECT_EQ(slurm.launcher, "srun");
  EXPECT_EQ(slurm.local_size, 4);
  EXPECT_EQ(slurm.id, "99");
}

TEST(Ranks, AVariableThatIsNoRankIsNamed) {
  EXPECT_ERROR((ranks_in({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})),
               ExitCode::config, "environment variable RANK: must be a whole number from 0 to 1, got '2'");
  EXPECT_ERROR((ranks_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}})), ExitCode::config,
               "environment variable MASTER_PORT");
}

}  // namespace
}  // namespace gpt::distributed
