#include "gpt/core/child_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>

namespace gpt {
namespace {

int run(const std::vector<std::string>& command, const MemoryFile& in, const MemoryFile& out) {
  const MemoryFile errors("errors");
  return wait_for_child(start_child(command, {in.descriptor(), out.descriptor(), errors.descriptor()}));
}

TEST(ChildProcess, ReadsAndWritesTheFilesThatItIsGiven) {
  MemoryFile in("in"), out("out");
  in.write("one\ntwo\n\n");
  const int status = run({"/bin/cat"}, in, out);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(out.last_line(), "two");
}

TEST(ChildProcess, ItsStatusIsThatOfWaitpid) {
  const MemoryFile in("in"), out("out");
  EXPECT_EQ(WEXITSTATUS(run({"/bin/sh", "-c", "exit 3"}, in, out)), 3);
  const int killed = run({"/bin/sh", "-c", "kill -KILL $$"}, in, out);
  EXPECT_TRUE(WIFSIGNALED(killed));
  EXPECT_EQ(WTERMSIG(killed), SIGKILL);
  EXPECT_EQ(WEXITSTATUS(run({"/nowhere/program"}, in, out)), kNotStarted);
}

TEST(ChildProcess, MayHaveAGroupOfItsOwn) {
  const MemoryFile in("in"), out("out"), errors("errors");
  for (const bool is_own : {false, true}) {
    const pid_t child =
        start_child({"/bin/sh", "-c", "cut -d ' ' -f 5 /proc/$$/stat"},
                    {in.descriptor(), out.descriptor(), errors.descriptor()}, {.has_own_group = is_own});
    wait_for_child(child);
    EXPECT_EQ(out.last_line() == std::to_string(child), is_own);
  }
}

}  // namespace
}  // namespace gpt
