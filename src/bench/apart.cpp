#include "gpt/bench/apart.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/process.h"

namespace gpt::bench {
namespace {

constexpr int kNotStarted = 127;

[[noreturn]] void fail(const std::string& what, int number) {
  throw Error(ExitCode::failed_check, fmt::format("cannot {}: {}", what, std::generic_category().message(number)));
}

// A file without a name, which nobody has to remove.
class MemoryFile {
 public:
  explicit MemoryFile(const char* what) : fd_(memfd_create(what, MFD_CLOEXEC)) {
    if (fd_ < 0) fail("start a measurement", errno);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return fd_; }

  void write(const std::string& text) {
    if (pwrite(fd_, text.data(), text.size(), 0) != std::ssize(text)) fail("start a measurement", errno);
  }

  std::string last_line() const {
    std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(fd_, text.data(), text.size(), 0))));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

 private:
  int fd_;
};

std::string path_of_this_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail("read /proc/self/exe", error.value());
  return path.string();
}

// Its standard streams are the files. Between fork() and exec() only what a signal handler may do is allowed.
pid_t start(const std::vector<std::string>& command, const MemoryFile& in, const MemoryFile& out,
            const MemoryFile& errors) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) fail("start a measurement", errno);
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotStarted);  // it ended before the line above
  dup2(in.descriptor(), STDIN_FILENO);
  dup2(out.descriptor(), STDOUT_FILENO);
  dup2(errors.descriptor(), STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(kNotStarted);
}

// The status that waitpid() gives. A thread of its own takes the signals that stop this process (gpt/core/process.h), so that none
// interrupts waitpid(). The first is passed on, for it may have been sent to this process alone.
int wait_for(pid_t child) {
  constexpr std::chrono::milliseconds kPause(20);
  int status = 0;
  bool is_told = false;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (const int signal = process::stop_signal(); signal != 0 && !is_told) is_told = kill(child, signal) == 0;
    std::this_thread::sleep_for(kPause);
  }
  return status;
}

// The last line of what `VERB --config FILE OPTIONS...` writes.
std::optional<std::string> run_apart(const char* verb, const Config& config, const std::vector<std::string>& options) {
  if (process::stop_signal() != 0) return std::nullopt;
  MemoryFile settings("settings"), result("result"), errors("errors");
  settings.write(config::dump(config));
  std::vector<std::string> command{path_of_this_program(), verb, "--config", "/dev/stdin"};
  command.insert(command.end(), options.begin(), options.end());
  const int status = wait_for(start(command, settings, result, errors));
  if (process::stop_signal() != 0) return std::nullopt;
  if (WIFSIGNALED(status)) {
    throw Error(ExitCode::failed_check,
                fmt::format("the measurement was ended by SIG{}", sigabbrev_np(WTERMSIG(status))));
  }
  const int code = WEXITSTATUS(status);
  if (code == kNotStarted) throw Error(ExitCode::failed_check, "cannot start " + command[0]);
  if (code == 0) return result.last_line();
  std::string why = errors.last_line();
  constexpr std::string_view kPrefix = "error: ";
  if (why.starts_with(kPrefix)) why.erase(0, kPrefix.size());
  throw Error(static_cast<ExitCode>(code), why);
}

}  // namespace

std::optional<Measurement> measure_apart(const Config& config, const MeasurementLength& length) {
  const auto json =
      run_apart("measure", config,
                {"--warm-up", fmt::format("{}", length.warm_up), "--updates", fmt::format("{}", length.updates)});
  return json ? std::optional(measurement_from_json(*json)) : std::nullopt;
}

std::optional<Learning> learn_apart(const Config& config, const LearningLength& length) {
  const auto json = run_apart("learn", config,
                              {"--updates", fmt::format("{}", length.updates), "--evaluations",
                               fmt::format("{}", length.evaluations)});
  return json ? std::optional(learning_from_json(*json)) : std::nullopt;
}

}  // namespace gpt::bench
