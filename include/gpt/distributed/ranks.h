// Who this process is among those that compute a run together, as its launcher says: gpt-train itself, torchrun, mpirun or srun.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace gpt::distributed {

struct Ranks {
  int64_t rank = 0, size = 1;              // among all
  int64_t local_rank = 0, local_size = 1;  // among those of this machine
  std::string launcher = {};               // its name; empty: nobody has started several
  std::string address = {};  // where the processes meet; empty: at the one that a file of the run's folder names
  uint16_t port = 0;
  std::optional<int> listener = {};  // a bound socket at that port, which gpt-train has handed to its first process
  std::optional<int> met = {};       // a pipe to gpt-train, in which that process says that all have met
  bool is_served = false;            // the launcher listens at that port itself
  int64_t restart = 0;               // how often the launcher has started the run again
  std::string id = {};               // tells this start from others in the same folder; empty: the launcher gives none

  bool is_first() const { return rank == 0; }
  bool is_one_machine() const { return local_size == size; }
};

// Ranks by the variables that launchers set. Throws gpt::Error(config) where they contradict each other.
using Environment = std::function<const char*(const char* name)>;
Ranks find_ranks(const Environment& get);
Ranks find_ranks();  // in the environment of this process

// What the launcher of that name does with signals and exit statuses; empty where a user need not know.
std::string signals_under(const std::string& launcher);

}  // namespace gpt::distributed
