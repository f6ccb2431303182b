// Runs a body in a forked child: for what changes the whole process (limits, signals, standard error).
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "gpt/core/log.h"

namespace gpt {

constexpr int kNotPermitted = 77;  // what a child returns where the machine does not let it do what it is there for

struct ChildResult {
  int status = -1;     // exit status, or 128 + the signal that killed it
  std::string errors;  // its standard error
};

inline int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The child exits with what `body` returns, 99 when it throws. alarm() ends it when it hangs, after longer than any load explains.
inline ChildResult run_child(const std::function<int()>& body) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {};
  std::fflush(nullptr);  // the child must not write what the parent has buffered
  const pid_t child = fork();
  if (child == 0) {
    alarm(1200);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
      signal(number, SIG_DFL);  // nohup, which may run the tests, ignores one
    dup2(pipe_ends[1], STDERR_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& e) { dprintf(STDERR_FILENO, "uncaught: %s\n", e.what()); }
    log::flush({.patience = std::chrono::seconds(30)});
    _exit(status);
  }
  close(pipe_ends[1]);
  ChildResult result;
  char piece[4096];
  for (ssize_t count; (count = read(pipe_ends[0], piece, sizeof piece)) > 0;) {
    result.errors.append(piece, static_cast<size_t>(count));
  }
  close(pipe_ends[0]);
  result.status = wait_for(child);
  return result;
}

}  // namespace gpt
