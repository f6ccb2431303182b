#include "gpt/core/detached_program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt {
namespace {

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int status_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(DetachedProgram, ReadsItsInputAndIsHeardNowhere) {
  const ScratchFolder folder;
  const std::string copy = folder / "copy";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const pid_t child =
      start_detached({"sh", "-c", "echo loud; echo loud >&2; cat > \"$1\"", "name", copy}, "{\"a b\": 1}\n");
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(content(copy), "{\"a b\": 1}\n");
}

TEST(DetachedProgram, NoShellReadsItsArguments) {
  const ScratchFolder folder;
  EXPECT_EQ(status_of(start_detached({"touch", folder / "a; $(b) *"}, "")), 0);
  EXPECT_TRUE(std::ifstream(folder / "a; $(b) *").is_open());
}

TEST(DetachedProgram, HasTheSignalsOfAProgramAndAGroupOfItsOwn) {
  signal(SIGPIPE, SIG_IGN);
  const pid_t child = start_detached({"sh", "-c", "kill -PIPE $$; sleep 1000"}, "");
  EXPECT_EQ(getpgid(child), child);
  const int status = status_of(child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
}

TEST(DetachedProgram, OneThatCannotBeStartedIsNamed) {
  EXPECT_ERROR(start_detached({"/nowhere/x"}, ""), ExitCode::failed_check, "cannot start /nowhere/x: No such file");
  EXPECT_TRUE(is_program("sh"));
  EXPECT_TRUE(is_program("/bin/sh"));
  for (const char* name : {"", "no-such-program", "/bin", "/nowhere/x", "/etc/passwd"}) EXPECT_FALSE(is_program(name));
}

}  // namespace
}  // namespace gpt
