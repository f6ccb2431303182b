#include "gpt/core/detached_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "gpt/core/child_process.h"
#include "gpt/core/error.h"

namespace gpt {
namespace {

struct Actions {
  posix_spawn_file_actions_t value;
  Actions() { posix_spawn_file_actions_init(&value); }
  ~Actions() { posix_spawn_file_actions_destroy(&value); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
};

struct Attributes {
  posix_spawnattr_t value;
  Attributes() { posix_spawnattr_init(&value); }
  ~Attributes() { posix_spawnattr_destroy(&value); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
};

bool can_be_run(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

// Signals are as this process found them: those that it blocks or ignores are its own affair.
pid_t start_detached(const std::vector<std::string>& command, const std::string& input) {
  MemoryFile in("input");
  in.write(input);
  Actions actions;
  posix_spawn_file_actions_adddup2(&actions.value, in.descriptor(), STDIN_FILENO);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions.value, output, "/dev/null", O_WRONLY, 0);
  Attributes attributes;
  sigset_t none, ignored_here;
  sigemptyset(&none);
  sigemptyset(&ignored_here);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&ignored_here, signal);
  posix_spawnattr_setsigmask(&attributes.value, &none);
  posix_spawnattr_setsigdefault(&attributes.value, &ignored_here);
  posix_spawnattr_setpgroup(&attributes.value, 0);
  posix_spawnattr_setflags(&attributes.value, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = -1;
  const int error = posix_spawnp(&child, words[0], &actions.value, &attributes.value, words.data(), environ);
  if (error != 0)
    throw Error(ExitCode::failed_check,
                fmt::format("cannot start {}: {}", command[0], std::generic_category().message(error)));
  return child;
}

bool is_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return can_be_run(name);
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path ? path : "/bin:/usr/bin"; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!name.empty() && can_be_run(fmt::format("{}/{}", folder.empty() ? "." : folder, name))) return true;
  }
  return false;
}

}  // namespace gpt
