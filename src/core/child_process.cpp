#include "gpt/core/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

#include "gpt/core/error.h"
#include "gpt/core/process.h"
#include "gpt/core/surroundings.h"

namespace gpt {
namespace {

[[noreturn]] void fail(const std::string& what, int number) {
  throw Error(ExitCode::failed_check, fmt::format("cannot {}: {}", what, std::generic_category().message(number)));
}

// For exec(), as long as the texts live.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> variables = additions;
  const auto name_of = [](std::string_view variable) { return variable.substr(0, variable.find('=')); };
  for (char** variable = environ; *variable; ++variable) {
    const auto has_name = [&](const std::string& addition) { return name_of(addition) == name_of(*variable); };
    if (std::none_of(additions.begin(), additions.end(), has_name)) variables.emplace_back(*variable);
  }
  return variables;
}

}  // namespace

MemoryFile::MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {
  if (fd_ < 0) fail("make a file in memory", errno);
}

MemoryFile::~MemoryFile() { close(fd_); }

void MemoryFile::write(const std::string& text) {
  if (pwrite(fd_, text.data(), text.size(), 0) != std::ssize(text)) fail("write a file in memory", errno);
}

std::string MemoryFile::last_line() const {
  std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(fd_, text.data(), text.size(), 0))));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

std::string path_of_this_program() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return path.string();
  const int number = error.value();
  const auto* const started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));  // there may be no /proc
  if (started) path = std::filesystem::canonical(started, error);
  if (!started || error) fail("read /proc/self/exe", number);
  return path.string();
}

// Between fork() and exec() only what a signal handler may do is allowed.
pid_t start_child(const std::vector<std::string>& command, const ChildStreams& streams,
                  const ChildAdditions& additions) {
  const std::vector<std::string> variables = environment_with(additions.environment);
  const std::vector<char*> arguments = pointers_to(command), environment = pointers_to(variables);
  const pid_t parent = getpid(), child = fork();
  if (child < 0 && errno == EAGAIN)
    throw Error(ExitCode::memory, fmt::format("cannot start {}: {}", command[0], surroundings::kThreadsRemedy));
  if (child < 0) fail("start " + command[0], errno);
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotStarted);  // it ended before the line above
  if (additions.has_own_group) setpgid(0, 0);
  dup2(streams.in, STDIN_FILENO);
  dup2(streams.out, STDOUT_FILENO);
  dup2(streams.errors, STDERR_FILENO);
  for (const int descriptor : additions.descriptors) fcntl(descriptor, F_SETFD, 0);
  execve(arguments[0], arguments.data(), environment.data());
  _exit(kNotStarted);
}

// A thread of its own takes the signals that stop this process (process.h), so that none interrupts waitpid().
int wait_for_child(pid_t child) {
  constexpr std::chrono::milliseconds kPause(20);
  int status = 0;
  bool is_told = false;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (const int signal = process::stop_signal(); signal != 0 && !is_told) is_told = kill(child, signal) == 0;
    std::this_thread::sleep_for(kPause);
  }
  return status;
}

}  // namespace gpt
