#include "gpt/core/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "core/child_process.h"
#include "core/scratch_folder.h"

namespace gpt {
namespace {

constexpr output::Wait kShort{.patience = std::chrono::milliseconds(50)}, kLong{.patience = std::chrono::seconds(20)};

struct Pipe {
  Pipe() {
    if (pipe(ends) != 0) _exit(50);
  }
  std::string read_all() const {
    std::string text;
    char piece[4096];
    for (ssize_t count; (count = read(ends[0], piece, sizeof piece)) > 0;)
      text.append(piece, static_cast<size_t>(count));
    return text;
  }
  int ends[2];
};

TEST(Output, TextsForOneFileKeepTheirOrder) {
  ScratchFolder folder;
  const std::string path = folder.file("both", "");
  std::string expected;
  for (int i = 0; i < 1000; ++i) expected += std::to_string(i) + "\n";
  const ChildResult child = run_child([&] {
    // As in `>both 2>>both`: a description for each, whose writes go to the end.
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) dup2(open(path.c_str(), O_WRONLY | O_APPEND), fd);
    for (int i = 0; i < 1000; ++i) {
      const std::string line = std::to_string(i) + "\n";
      i % 3 == 0 ? output::write(line) : output::offer(line);
    }
    return output::flush(kLong) && output::flush_errors(kLong) ? 0 : 51;
  });
  EXPECT_EQ(child.status, 0);
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), expected);
}

TEST(Output, StandardErrorDoesNotHoldUpStandardOutput) {
  const ChildResult child = run_child([]() -> int {
    const Pipe output_pipe, error_pipe;
    dup2(output_pipe.ends[1], STDOUT_FILENO);
    dup2(error_pipe.ends[1], STDERR_FILENO);
    const std::string filling(1 << 18, 'x');
    for (int i = 0; i < 10; ++i) output::offer(filling);
    if (output::offer("one more") || !output::is_behind() || output::flush_errors(kShort)) return 51;
    output::write("text");
    if (!output::flush(kLong)) return 52;
    char text[4];
    _exit(read(output_pipe.ends[0], text, 4) == 4 ? 0 : 53);  // with what nobody reads
  });
  EXPECT_EQ(child.status, 0);
}

// More than the pipe holds, and piece by piece.
TEST(Output, ASlowReaderGetsEverything) {
  const ChildResult child = run_child([] {
    const Pipe pipe;
    fcntl(pipe.ends[1], F_SETPIPE_SZ, 4096);
    dup2(pipe.ends[1], STDOUT_FILENO);
    std::string got;
    std::thread reader([&] {
      char piece[64];
      while (got.size() < 6000) {
        usleep(1'000);
        const ssize_t count = read(pipe.ends[0], piece, sizeof piece);
        got.append(piece, static_cast<size_t>(count));
      }
    });
    output::write(std::string(6000, 'x'));
    const bool is_written = output::flush(kLong);
    reader.join();
    return is_written ? 0 : 51;
  });
  EXPECT_EQ(child.status, 0);
}

TEST(Output, OnePipeThatWasMadeNotToBlockTakesEverything) {
  const std::string long_text(300'000, 'y');
  const ChildResult child = run_child([&] {
    const Pipe pipe;
    fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
    dup2(pipe.ends[1], STDOUT_FILENO);
    output::write(long_text);
    std::string got;
    std::thread reader([&] { got = pipe.read_all(); });
    const bool is_written = output::flush(kLong);
    close(pipe.ends[1]);
    close(STDOUT_FILENO);
    reader.join();
    return is_written && got == long_text ? 0 : 51;
  });
  EXPECT_EQ(child.status, 0);
}

TEST(Output, ItsDescriptorsStayAsTheyAre) {
  const ChildResult child = run_child([] {
    output::write("");
    output::offer("text");
    output::flush_errors(kLong);
    return fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK ? 51 : 0;
  });
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.errors, "text");
}

}  // namespace
}  // namespace gpt
