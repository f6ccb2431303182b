#include "gpt/core/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/child_process.h"
#include "core/scratch_folder.h"
#include "gpt/core/error.h"

namespace gpt {
namespace {

constexpr output::Wait kPatience{.patience = std::chrono::seconds(20)};

std::vector<int> numbers_after(const std::string& word, const std::string& text) {
  std::vector<int> numbers;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
    numbers.push_back(std::stoi(text.substr(at + word.size(), 10)));
  return numbers;
}

// Every body runs in a child: the log looks at standard error once, at its first use.

// What `body` writes to a standard error that is a terminal of `columns` columns.
std::string terminal_output(int columns, const std::function<void()>& body) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return "no pseudo-terminal";
  const std::string name = ptsname(terminal);
  constexpr std::string_view kEnd = "(end)";
  // As long as it is open here, the kernel forgets nothing that it has not handed over yet.
  const int kept = open(name.c_str(), O_RDWR | O_NOCTTY);
  const pid_t child = fork();
  if (child == 0) {
    alarm(1200);
    const int standard_error = open(name.c_str(), O_RDWR | O_NOCTTY);
    const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
    ioctl(standard_error, TIOCSWINSZ, &size);
    dup2(standard_error, STDERR_FILENO);
    setenv("TERM", "xterm", 1);
    body();
    log::flush(kPatience);
    _exit(write(standard_error, kEnd.data(), kEnd.size()) == std::ssize(kEnd) ? 0 : 1);
  }
  std::string output;
  char piece[4096];
  while (!output.ends_with(kEnd)) {
    pollfd waiting{terminal, POLLIN, 0};
    const ssize_t count = poll(&waiting, 1, 1'200'000) > 0 ? read(terminal, piece, sizeof piece) : -1;
    if (count <= 0) break;
    output.append(piece, static_cast<size_t>(count));
  }
  wait_for(child);
  close(kept);
  close(terminal);
  return output.substr(0, output.rfind(kEnd));
}

TEST(Log, WritesPlainLinesToAPipe) {
  const ChildResult child = run_child([] {
    setenv("TERM", "xterm", 1);
    log::info("one {} %v");
    log::success("two");
    log::warn("three");
    log::error("four");
    log::status("never seen");
    return log::is_terminal() ? 1 : 0;
  });
  EXPECT_EQ(child.errors, "one {} %v\n✓ two\nwarning: three\nerror: four\n");
  EXPECT_EQ(child.status, 0);
}

TEST(Log, QuietOnlyWhatWentWrongIsSaidAndTheFileHasEverything) {
  ScratchFolder folder;
  const ChildResult child = run_child([&] {
    log::open_file(folder / "train.log");
    log::be_quiet();
    log::info("one");
    log::success("two");
    log::warn("three");
    log::error("four");
    return 0;
  });
  EXPECT_EQ(child.errors, "warning: three\nerror: four\n");
  for (const char* line : {" one\n", " ✓ two\n", " warning: three\n", " error: four\n"})
    EXPECT_NE(slurp(folder / "train.log").find(line), std::string::npos) << line;
}

TEST(Log, ATerminalWithoutUtf8GetsAscii) {
  for (const auto& [locale, expected] : {std::pair{"C", "* 1 +/- 2"}, {"C.UTF-8", "✓ 1 ± 2"}}) {
    const std::string output = terminal_output(80, [locale = locale] {
      setenv("LC_ALL", locale, 1);
      setenv("NO_COLOR", "1", 1);
      log::success("1 ± 2");
    });
    EXPECT_NE(output.find(expected), std::string::npos) << output;
  }
}

TEST(Log, FileHasTimestampsAndIsAppendedTo) {
  ScratchFolder folder;
  const std::string path = folder / "train.log";
  for (const char* text : {"first", "second"}) {
    run_child([&] {
      log::info("before the file");
      log::open_file(path);
      log::warn(text);
      return 0;
    });
  }
  const std::string stamp = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} ";
  EXPECT_TRUE(std::regex_match(slurp(path), std::regex(stamp + "warning: first\n" + stamp + "warning: second\n")))
      << slurp(path);
}

TEST(Log, FileThatCannotBeOpenedIsADiskError) {
  const ChildResult child = run_child([] {
    try {
      log::open_file("/proc/none/train.log");
    } catch (const Error& e) {
      dprintf(STDERR_FILENO, "%s", e.what());
      return static_cast<int>(e.code());
    }
    return 0;
  });
  EXPECT_EQ(child.status, static_cast<int>(ExitCode::disk));
  EXPECT_EQ(child.errors.find("cannot write the log /proc/none/train.log: "), 0u) << child.errors;
}

TEST(Log, AFullDiskUnderTheFileDoesNotStopTheProgram) {
  ScratchFolder folder;
  const ChildResult child = run_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{64, 64};
    setrlimit(RLIMIT_FSIZE, &limit);
    log::open_file(folder / "train.log");
    for (int i = 0; i < 5; ++i) log::info("line " + std::to_string(i));
    return 0;
  });
  EXPECT_EQ(child.status, 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_NE(child.errors.find("line " + std::to_string(i) + "\n"), std::string::npos) << child.errors;
  }
  const size_t warning = child.errors.find("warning: the log file is missing lines");
  EXPECT_EQ(child.errors.find("warning:", warning + 1), std::string::npos) << child.errors;
}

// A pipe whose reader does nothing, then reads again: more lines than are kept for it.
TEST(Log, WhatNobodyReadsIsLeftOutAndCounted) {
  ScratchFolder folder;
  const ChildResult child = run_child([&] {
    int ends[2];
    if (pipe(ends) != 0) return 50;
    const int standard_error = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    log::open_file(folder / "train.log");
    const std::string filling(100'000, 'x');
    constexpr int kLines = 30;  // more lines than the pipe and the queue hold
    for (int i = 0; i < kLines; ++i) log::info(fmt::format("line {} {}", i, filling));
    if (log::flush({.patience = std::chrono::milliseconds(50)})) return 51;
    std::thread reader([&] {
      char piece[65536];
      for (ssize_t count; (count = read(ends[0], piece, sizeof piece)) > 0;) {
        if (write(standard_error, piece, static_cast<size_t>(count)) != count) _exit(52);
      }
    });
    if (!log::flush(kPatience)) return 53;
    log::info("the last");
    log::flush(kPatience);
    dup2(standard_error, STDERR_FILENO);
    close(ends[1]);
    reader.join();
    return 0;
  });
  ASSERT_EQ(child.status, 0);
  const std::vector<int> shown = numbers_after("line ", child.errors),
                         logged = numbers_after("line ", slurp(folder / "train.log"));
  EXPECT_EQ(logged.size(), 30u);
  ASSERT_LT(shown.size(), logged.size());
  EXPECT_EQ(shown, std::vector<int>(logged.begin(), logged.begin() + std::ssize(shown)));
  EXPECT_TRUE(child.errors.ends_with(
      fmt::format("x\nwarning: {} lines are missing here, because nothing read them; train.log has them\nthe last\n",
                  30 - shown.size())))
      << child.errors.substr(child.errors.size() - 200);
}

TEST(Log, EscapeSequencesInMessagesAreDisarmed) {
  const ChildResult child = run_child([] {
    log::info("a\x1b[2Jb\rc\td \u009d \x9b \u202e");
    return 0;
  });
  EXPECT_EQ(child.errors, "a\\x1b[2Jb\\x0dc\td \\x9d \\x9b \\u202e\n");
}

TEST(Log, ColoursOnATerminalUnlessNoColor) {
  ScratchFolder folder;
  auto body = [&] {
    log::open_file(folder / "train.log");
    log::warn("careful");
  };
  unsetenv("NO_COLOR");
  const std::string coloured = terminal_output(80, body);
  EXPECT_NE(coloured.find("\x1b["), std::string::npos) << coloured;
  EXPECT_NE(coloured.find("careful\r\n"), std::string::npos) << coloured;
  EXPECT_EQ(slurp(folder / "train.log").find('\x1b'), std::string::npos);
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(terminal_output(80, body), "warning: careful\r\n");
  unsetenv("NO_COLOR");
}

TEST(Log, ATerminalGetsLinesThatFitAndTheFileThemAsTheyAre) {
  ScratchFolder folder;
  setenv("NO_COLOR", "1", 1);
  const auto body = [&] {
    log::open_file(folder / "train.log");
    log::warn("one two three four");
    log::info("step 1 | loss 2 | norm 3", "step 1 | loss 2");
    log::info("step 2 | loss 2", "step 2");
  };
  EXPECT_EQ(terminal_output(20, body), "warning: one two\r\n  three four\r\nstep 1 | loss 2\r\nstep 2 | loss 2\r\n");
  unsetenv("NO_COLOR");
  const std::string lines = std::regex_replace(slurp(folder / "train.log"), std::regex("[0-9-]{10} [0-9:]{8} "), "");
  EXPECT_EQ(lines, "warning: one two three four\nstep 1 | loss 2 | norm 3\nstep 2 | loss 2\n");
}

TEST(Log, StatusStaysBelowTheLog) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(terminal_output(80,
                            [] {
                              log::status("step 1");
                              log::info("saved");
                              log::status("step 2");
                              log::status("");
                              log::info("done");
                            }),
            "\rstep 1\x1b[K"
            "\r\x1b[Ksaved\r\n\rstep 1\x1b[K"
            "\rstep 2\x1b[K"
            "\r\x1b[Kdone\r\n");
  unsetenv("NO_COLOR");
}

TEST(Log, StatusIsCutByCharactersNotBytes) {
  EXPECT_EQ(terminal_output(6, [] { log::status("██████████"); }), "\r█████\x1b[K");
  EXPECT_EQ(terminal_output(6, [] { log::status("█████"); }), "\r█████\x1b[K");
}

}  // namespace
}  // namespace gpt
