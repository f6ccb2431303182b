#include "gpt/distributed/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "gpt/core/child_process.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/core/sockets.h"
#include "sockets.h"

namespace gpt::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kPeer = static_cast<int>(ExitCode::peer);

// The processes of one start.
class Processes {
 public:
  Processes(const std::vector<std::string>& command, int64_t count, int64_t restart) {
    const ListeningSocket listener = listen_at(kLoopback);
    std::array<int, 2> met{-1, -1};
    if (pipe2(met.data(), O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error(ExitCode::failed_check, fmt::format("cannot make a pipe: {}", strerror(errno)));
    met_ = met[0];
    for (int64_t rank = 0; rank < count; ++rank) {
      ChildAdditions additions{.environment = variables(rank, count, restart, listener, met[1])};
      if (rank == 0) additions.descriptors = {listener.fd, met[1]};
      running_.push_back(
          {.rank = rank, .pid = start_child(command, {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}, additions)});
    }
    close(listener.fd);
    close(met[1]);
  }

  ~Processes() {
    kill_all(SIGKILL);
    close(met_);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Until all have ended. Where one fails the others notice by themselves, if they have met, and the first of them saves what it can;
  // those that do not end then are ended.
  std::vector<Ending> wait(Seconds timeout) {
    constexpr std::chrono::milliseconds kPause(20);
    while (!running_.empty()) {
      pass_signal_on();
      collect();
      if (const auto since = waits_since(); since && is_overdue(Clock::now() - *since, timeout)) end_the_rest();
      std::this_thread::sleep_for(kPause);
    }
    return endings_;
  }

  // The first process has said so.
  bool have_met() {
    char said = 0;
    have_met_ = have_met_ || read(met_, &said, 1) == 1;
    return have_met_;
  }

 private:
  struct Process {
    int64_t rank;
    pid_t pid;
    bool is_stopped = false;
  };

  static std::vector<std::string> variables(int64_t rank, int64_t count, int64_t restart,
                                            const ListeningSocket& listener, int met) {
    return {fmt::format("RANK={}", rank),
            fmt::format("LOCAL_RANK={}", rank),
            fmt::format("WORLD_SIZE={}", count),
            fmt::format("LOCAL_WORLD_SIZE={}", count),
            fmt::format("MASTER_ADDR={}", kLoopback),
            fmt::format("MASTER_PORT={}", listener.port),
            fmt::format("GPT_TRAIN_LISTENER={}", listener.fd),
            fmt::format("GPT_TRAIN_MET={}", met),
            fmt::format("GPT_TRAIN_RESTART={}", restart)};
  }

  // It may have been sent to this process alone; one that comes twice within a second changes nothing. Before all have met nothing can be lost.
  void pass_signal_on() {
    if (process::take_save_request()) kill_all(SIGUSR1);
    const int signal = process::take_stop_signal();
    if (signal == 0) return;
    kill_all(signal);
    if (have_met() || is_ending_) return;
    log::info(fmt::format("Stopped by SIG{} before the processes had met: nothing had begun", sigabbrev_np(signal)));
    is_ending_ = true;
    kill_all(SIGKILL);
  }

  void kill_all(int signal) const {
    for (const Process& process : running_) kill(process.pid, signal);
  }

  void collect() {
    std::erase_if(running_, [this](Process& process) {
      int status = 0;
      if (waitpid(process.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != process.pid) return false;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        process.is_stopped = WIFSTOPPED(status);
        return false;
      }
      note(process, status);
      return true;
    });
  }

  void note(const Process& process, int status) {
    constexpr int kSignalled = 128;
    Ending ending{.rank = process.rank, .is_stopped = process.is_stopped};
    ending.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ending.status = ending.signal != 0 ? kSignalled + ending.signal : WEXITSTATUS(status);
    endings_.push_back(ending);
    if (!ended_at_) ended_at_ = Clock::now();
    if (ending.status != 0 && !failed_at_) failed_at_ = Clock::now();
    if (ending.signal == 0 || is_ending_) return;
    log::error(fmt::format("rank {} (PID {}) was killed by SIG{}{}", process.rank, process.pid,
                           sigabbrev_np(ending.signal),
                           ending.signal == SIGKILL ? ", perhaps because the machine ran out of memory" : ""));
  }

  // The first failure; or where nobody has failed and all that are left are stopped, as one may be when the others are done, the first end.
  std::optional<Clock::time_point> waits_since() {
    return !failed_at_ && have_met() && are_all_stopped() ? ended_at_ : failed_at_;
  }

  bool are_all_stopped() const {
    const auto is_stopped = [](const Process& process) { return process.is_stopped; };
    return !running_.empty() && std::all_of(running_.begin(), running_.end(), is_stopped);
  }

  // The others need the timeout to notice; the first one may then save for long, unless it does not run.
  bool is_overdue(Seconds since, Seconds timeout) {
    constexpr Seconds kForSaving(600), kToNotice(15), kToFailToo(2);
    if (!have_met()) return since > kToFailToo;
    if (are_all_stopped()) return since > timeout;
    const auto saves = [](const Process& process) { return process.rank == 0 && !process.is_stopped; };
    const bool may_save = std::any_of(running_.begin(), running_.end(), saves);
    return since > timeout + (may_save ? kForSaving : kToNotice);
  }

  void end_the_rest() {
    if (!std::exchange(is_ending_, true) && !have_met()) {
      const auto failed = std::find_if(endings_.begin(), endings_.end(), [](const Ending& e) { return e.status != 0; });
      log::error(fmt::format("rank {} ended before all had met, so the others are ended too", failed->rank));
    }
    kill_all(SIGKILL);
  }

  std::vector<Process> running_;
  std::vector<Ending> endings_;
  std::optional<Clock::time_point> failed_at_, ended_at_;
  int met_ = -1;
  bool have_met_ = false, is_ending_ = false;
};

bool is_lost(const Ending& ending) { return ending.signal != 0 || ending.is_stopped; }

// Changes whenever the file is written.
struct Version {
  ino_t file = 0;
  time_t seconds = 0;
  int64_t nanoseconds = 0;
  bool operator==(const Version&) const = default;
};

Version version_of(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

// False where a signal ends it.
bool pause_for(std::chrono::seconds time) {
  constexpr std::chrono::milliseconds kLookAgain(20);
  for (const auto end = Clock::now() + time; Clock::now() < end; std::this_thread::sleep_for(kLookAgain))
    if (process::stop_signal() != 0) return false;
  return process::stop_signal() == 0;
}

void announce_restart(int64_t count, int64_t restart, const DistributedConfig& config, int64_t fruitless) {
  const std::string pause =
      fruitless == 0
          ? ""
          : fmt::format(" in {} s, because {} has saved nothing", pause_after(fruitless).count(),
                        fruitless == 1 ? "this start" : fmt::format("none of the last {} starts", fruitless));
  log::warn(fmt::format("starting again from the last checkpoint with {}{} (restart {} of {})",
                        count == 1 ? "1 process" : fmt::format("{} processes", count), pause, restart,
                        config.restarts));
}

}  // namespace

int status_of(const std::vector<Ending>& endings) {
  const auto failed_by_itself = [](const Ending& ending) {
    return ending.status != 0 && ending.signal == 0 && ending.status != kPeer;
  };
  const Ending* failed = nullptr;
  bool is_complete = true;
  for (const Ending& ending : endings) {
    is_complete = is_complete && ending.status == 0;
    if (failed_by_itself(ending) && (!failed || ending.rank == 0)) failed = &ending;
  }
  return is_complete ? 0 : failed ? failed->status : kPeer;
}

std::optional<int64_t> processes_after(const std::vector<Ending>& endings, const DistributedConfig& config) {
  const int64_t before = std::ssize(endings), least = config.min_processes.value_or(config.processes);
  if (least >= before) return before;
  int64_t count = before - std::count_if(endings.begin(), endings.end(), is_lost);
  const auto fits = [&config](int64_t processes) {
    const int64_t groups = processes / config.model_processes();
    return groups > 0 && processes % config.model_processes() == 0 && (config.lanes == 1 || config.lanes % groups == 0);
  };
  while (count > least && !fits(count)) --count;
  if (count % config.model_processes() != 0) return std::nullopt;
  return count >= std::max<int64_t>(1, least) ? std::optional(count) : std::nullopt;
}

std::chrono::seconds pause_after(int64_t fruitless_starts) {
  constexpr int64_t kMost = 60, kDoublings = 6;
  if (fruitless_starts == 0) return std::chrono::seconds(0);
  return std::chrono::seconds(std::min(kMost, int64_t{1} << std::min(fruitless_starts - 1, kDoublings)));
}

int launch(const std::vector<std::string>& command, const DistributedConfig& config, const std::string& checkpoint) {
  require_connections({.size = config.processes, .local_size = config.processes});
  process::leave_stopping_to_children();
  int64_t count = config.processes, fruitless = 0;
  for (int64_t restart = 0;; ++restart) {
    const Version before = version_of(checkpoint);
    Processes processes(command, count, restart);
    const std::vector<Ending> endings = processes.wait(Seconds(config.timeout));
    const int status = status_of(endings);
    const bool is_stopped = process::stop_signal() != 0;
    if (is_stopped && status == kPeer && (!processes.have_met() || restart < config.restarts))
      return static_cast<int>(process::stop_code());
    if (status != kPeer || is_stopped || restart == config.restarts) return status;
    const auto next = processes_after(endings, config);
    if (!next) {
      log::error(fmt::format("fewer processes are left than distributed.min_processes {}", *config.min_processes));
      return status;
    }
    count = *next;
    fruitless = version_of(checkpoint) == before ? fruitless + 1 : 0;
    announce_restart(count, restart + 1, config, fruitless);
    if (!pause_for(pause_after(fruitless))) return static_cast<int>(process::stop_code());
  }
}

}  // namespace gpt::distributed
