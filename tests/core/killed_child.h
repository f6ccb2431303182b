// Runs a body in a child that is killed at one of its system calls.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/child_process.h"

namespace gpt {

enum class Ending { killed, ended, not_permitted };

// Kills at the `stop`-th stop of the child's first thread, counted from 1: it stops before and after each system call.
template <class Body>
Ending kill_at_stop(int stop, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotPermitted);
    raise(SIGSTOP);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotPermitted) return Ending::not_permitted;
  for (int call = 0; call < stop && WIFSTOPPED(status); ++call) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  if (!WIFSTOPPED(status)) return Ending::ended;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return Ending::killed;
}

}  // namespace gpt
