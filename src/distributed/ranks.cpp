#include "gpt/distributed/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "gpt/core/error.h"

namespace gpt::distributed {
namespace {

// The names under which a launcher says who a process is.
struct Launcher {
  const char *name, *rank, *size, *local_rank, *local_size, *id, *signals = "";
};

constexpr Launcher kOpenMpi{
    "Open MPI's mpirun",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_NAMESPACE",
    "mpirun kills its processes a quarter of a second after Ctrl-C, SIGTERM or SIGHUP, which may be too short to save, and "
    "ends with status 1; it passes SIGUSR1 on, which saves"};
constexpr Launcher kMpich{"MPICH's mpirun",
                          "PMI_RANK",
                          "PMI_SIZE",
                          "MPI_LOCALRANKID",
                          "MPI_LOCALNRANKS",
                          "PMI_PORT",
                          "mpirun passes Ctrl-C, SIGTERM and SIGUSR1 on; SIGHUP and SIGUSR2 end it, and its processes "
                          "without saving"};
// Slurm sets the first two for a batch script too, which is no process of a step.
constexpr Launcher kSlurm{
    "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"};
constexpr Launcher kTorchrun{
    "torchrun",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "torchrun ends at SIGUSR1 and leaves its processes running, and every other status than 0 becomes 1"};

class Variables {
 public:
  explicit Variables(const Environment& get) : get_(get) {}

  bool has(const char* name) const { return get_(name) != nullptr; }
  std::string text(const char* name) const { return has(name) ? get_(name) : ""; }

  // The whole text must be the number.
  int64_t number(const char* name, int64_t least, int64_t most) const {
    return number_in(text(name), name, least, most);
  }

  int64_t number_in(const std::string& value, const char* name, int64_t least, int64_t most) const {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size() && number >= least && number <= most) return number;
    throw Error(ExitCode::config, fmt::format("environment variable {}: must be a whole number from {} to {}, got '{}'",
                                              name, least, most, text(name)));
  }

 private:
  const Environment& get_;
};

constexpr int64_t kMost = 1 << 20;

// Slurm writes "4(x2),1" for four processes on each of two machines and one on a third.
int64_t processes_of_node(const Variables& variables, const char* name, int64_t node, int64_t most) {
  const std::string all = variables.text(name);
  for (size_t begin = 0;;) {
    const size_t end = std::min(all.find(',', begin), all.size());
    const std::string entry = all.substr(begin, end - begin);
    const size_t times = entry.find("(x");
    const int64_t count = variables.number_in(entry.substr(0, times), name, 1, most);
    if (times != std::string::npos) node -= std::max<int64_t>(1, std::strtoll(entry.c_str() + times + 2, nullptr, 10));
    if (times == std::string::npos) --node;
    if (node < 0 || end == all.size()) return count;
    begin = end + 1;
  }
}

// `are_together`: on one machine, where the launcher does not say how many are.
void read_place(const Variables& variables, const Launcher& names, bool are_together, Ranks& ranks) {
  ranks.launcher = names.name;
  ranks.size = variables.number(names.size, 1, kMost);
  ranks.rank = variables.number(names.rank, 0, ranks.size - 1);
  ranks.id = variables.text(names.id);
  ranks.local_size = variables.has(names.local_size) ? variables.number(names.local_size, 1, ranks.size)
                     : are_together                  ? ranks.size
                                                     : 1;
  ranks.local_rank = variables.has(names.local_rank) ? variables.number(names.local_rank, 0, ranks.local_size - 1)
                     : are_together                  ? ranks.rank
                                                     : 0;
}

// "JOB.STEP.RESTART": a job has one number in all of its steps, and after it was requeued.
void read_slurm(const Variables& variables, Ranks& ranks) {
  Launcher names = kSlurm;
  names.local_size = names.local_rank = "";  // below
  read_place(variables, names, /*are_together=*/false, ranks);
  const int64_t node = variables.has("SLURM_NODEID") ? variables.number("SLURM_NODEID", 0, kMost) : 0;
  if (variables.has(kSlurm.local_size))
    ranks.local_size = processes_of_node(variables, kSlurm.local_size, node, ranks.size);
  if (variables.has(kSlurm.local_rank)) ranks.local_rank = variables.number(kSlurm.local_rank, 0, ranks.local_size - 1);
  for (const char* part : {"SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
    ranks.id += "." + (variables.has(part) ? variables.text(part) : "0");
}

void read_meeting_point(const Variables& variables, Ranks& ranks) {
  if (!variables.has("MASTER_ADDR")) return;
  ranks.address = variables.text("MASTER_ADDR");
  ranks.port = static_cast<uint16_t>(variables.number("MASTER_PORT", 1, std::numeric_limits<uint16_t>::max()));
}

// A process that is told of no others on its machine is alone there, as in a pod, unless all meet at the loopback. In a pod that may be
// what the first one is told.
bool are_together(const Variables& variables, const std::string& address) {
  const bool is_loopback = address == "localhost" || address == "::1" || address.starts_with("127.");
  return is_loopback && !variables.has("KUBERNETES_SERVICE_HOST");
}

void require_local_size(const Variables& variables) {
  const std::string local_rank = variables.text(kTorchrun.local_rank);
  if (local_rank.empty() || local_rank == "0" || variables.has(kTorchrun.local_size)) return;
  throw Error(
      ExitCode::config,
      fmt::format("environment variable LOCAL_WORLD_SIZE: not set, but LOCAL_RANK is {}; set it to the number of "
                  "processes on this machine",
                  local_rank));
}

// torchrun's variables, which others set as well: gpt-train itself, operators that start pods, people.
void read_torchrun(const Variables& variables, Ranks& ranks) {
  read_meeting_point(variables, ranks);
  const bool is_one_machine = are_together(variables, ranks.address);
  if (!is_one_machine) require_local_size(variables);
  read_place(variables, kTorchrun, is_one_machine, ranks);
  ranks.is_served = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (variables.has("TORCHELASTIC_RESTART_COUNT"))
    ranks.restart = variables.number("TORCHELASTIC_RESTART_COUNT", 0, kMost);
  if (!ranks.is_served && ranks.id.empty()) ranks.launcher = "RANK and WORLD_SIZE";
  if (!variables.has("GPT_TRAIN_LISTENER")) return;
  ranks.launcher = "gpt-train";
  ranks.restart = variables.number("GPT_TRAIN_RESTART", 0, kMost);
  if (!ranks.is_first()) return;
  ranks.listener = static_cast<int>(variables.number("GPT_TRAIN_LISTENER", 0, kMost));
  ranks.met = static_cast<int>(variables.number("GPT_TRAIN_MET", 0, kMost));
}

}  // namespace

// The launcher is the one that has started this process itself. mpirun may run in Slurm, where its processes have the variables of the step
// that has started one of its own on each machine; and srun --mpi=pmi2 sets PMI's too, but not those that say who is on a machine.
Ranks find_ranks(const Environment& get) {
  const Variables variables(get);
  const auto is_named_by = [&variables](const Launcher& names) {
    return variables.has(names.rank) && variables.has(names.size);
  };
  Ranks ranks;
  if (is_named_by(kTorchrun) && variables.has("MASTER_ADDR")) {
    read_torchrun(variables, ranks);
  } else if (is_named_by(kOpenMpi)) {
    read_place(variables, kOpenMpi, /*are_together=*/true, ranks);
  } else if (is_named_by(kSlurm) && !variables.has(kMpich.local_rank)) {
    read_slurm(variables, ranks);
  } else if (is_named_by(kMpich)) {
    read_place(variables, kMpich, /*are_together=*/true, ranks);
  }
  if (ranks.size == 1) return {};
  if (ranks.address.empty()) read_meeting_point(variables, ranks);
  // The processes of a machine have the same parent.
  if (ranks.id.empty() && ranks.is_one_machine()) ranks.id = fmt::format("parent-{}", getppid());
  std::replace(ranks.id.begin(), ranks.id.end(), '/', '-');
  return ranks;
}

Ranks find_ranks() {
  return find_ranks([](const char* name) -> const char* { return std::getenv(name); });
}

std::string signals_under(const std::string& launcher) {
  for (const Launcher& one : {kTorchrun, kOpenMpi, kMpich})
    if (launcher == one.name) return one.signals;
  return "";
}

}  // namespace gpt::distributed
