#include "gpt/distributed/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "gpt/core/error.h"

namespace gpt::distributed {
namespace {

// The names under which a launcher says who a process is. Where the number of processes of a machine is not known, all are on one.
struct Launcher {
  const char *name, *rank, *size, *local_rank, *local_size, *id;
};

// Slurm sets the first two for a batch script too, which is no process of a step.
constexpr std::array kLaunchers = {
    Launcher{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    Launcher{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_PORT"},
    Launcher{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
             "SLURM_JOB_ID"},
};

class Variables {
 public:
  explicit Variables(const Environment& get) : get_(get) {}

  bool has(const char* name) const { return get_(name) != nullptr; }
  std::string text(const char* name) const { return has(name) ? get_(name) : ""; }

  // Slurm writes "4(x2)" for four tasks on each of two machines: the number at the beginning counts.
  int64_t number(const char* name, int64_t least, int64_t most) const {
    const std::string value = text(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && number >= least && number <= most) return number;
    throw Error(ExitCode::config, fmt::format("environment variable {}: must be a whole number from {} to {}, got '{}'",
                                              name, least, most, value));
  }

 private:
  const Environment& get_;
};

constexpr int64_t kMost = 1 << 20;

void read_place(const Variables& variables, const Launcher& names, Ranks& ranks) {
  ranks.launcher = names.name;
  ranks.size = variables.number(names.size, 1, kMost);
  ranks.rank = variables.number(names.rank, 0, ranks.size - 1);
  ranks.local_size = variables.has(names.local_size) ? variables.number(names.local_size, 1, ranks.size) : ranks.size;
  ranks.local_rank =
      variables.has(names.local_rank) ? variables.number(names.local_rank, 0, ranks.local_size - 1) : ranks.rank;
  ranks.id = variables.text(names.id);
  // The processes of a machine have the same parent.
  if (ranks.id.empty() && ranks.is_one_machine()) ranks.id = fmt::format("parent-{}", getppid());
  std::replace(ranks.id.begin(), ranks.id.end(), '/', '-');
}

void read_meeting_point(const Variables& variables, Ranks& ranks) {
  if (!variables.has("MASTER_ADDR")) return;
  ranks.address = variables.text("MASTER_ADDR");
  ranks.port = static_cast<uint16_t>(variables.number("MASTER_PORT", 1, std::numeric_limits<uint16_t>::max()));
}

}  // namespace

Ranks find_ranks(const Environment& get) {
  const Variables variables(get);
  Ranks ranks;
  if (variables.has("RANK") && variables.has("WORLD_SIZE") && variables.has("MASTER_ADDR")) {
    read_place(variables, {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
               ranks);
    ranks.is_served = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (variables.has("TORCHELASTIC_RESTART_COUNT"))
      ranks.restart = variables.number("TORCHELASTIC_RESTART_COUNT", 0, kMost);
    if (variables.has("GPT_TRAIN_LISTENER")) {
      ranks.launcher = "gpt-train";
      ranks.restart = variables.number("GPT_TRAIN_RESTART", 0, kMost);
      if (ranks.is_first()) {
        ranks.listener = static_cast<int>(variables.number("GPT_TRAIN_LISTENER", 0, kMost));
        ranks.met = static_cast<int>(variables.number("GPT_TRAIN_MET", 0, kMost));
      }
    }
    read_meeting_point(variables, ranks);
  } else {
    for (const Launcher& launcher : kLaunchers) {
      if (!variables.has(launcher.rank) || !variables.has(launcher.size)) continue;
      read_place(variables, launcher, ranks);
      read_meeting_point(variables, ranks);
      break;
    }
  }
  return ranks.size == 1 ? Ranks{} : ranks;
}

Ranks find_ranks() {
  return find_ranks([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace gpt::distributed
