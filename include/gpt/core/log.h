// The log facade. Messages go to standard error (on a terminal coloured unless NO_COLOR is set, and broken between words) and,
// once `open_file` has been called, to a plain log file, which is flushed after every line. Nobody waits for standard error: where
// its reader has stopped, lines are left out, and it is told how many once it reads again. The file has them all.
// It takes finished text: spdlog and its fmt stay inside log.cpp, because LibTorch's include path carries another fmt.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "gpt/core/output.h"

namespace gpt::log {

void info(std::string_view message);     // plain line
void success(std::string_view message);  // "✓ message": something is really active
void warn(std::string_view message);     // "warning: message"
void error(std::string_view message);    // "error: message"

void be_quiet();  // from here on standard error gets warnings and errors alone; the file still gets everything

// From here on this is the log of process `rank` of the `size` that compute a run. The first one's is as before. The others say only
// what went wrong, with their rank; their warnings go to `forward` instead, because most of them are the first one's too.
void of_rank(int64_t rank, int64_t size, std::function<void(const std::string& warning)> forward);
// At the first process: a warning of another one, unless this process has given the same one or gives it within a few seconds.
void warn_of_rank(int64_t rank, const std::string& warning);
// From here on every warning goes to `heard` too, which must not log; nullptr: no more, and none is under way once this returns.
void hear_warnings(std::function<void(const std::string& warning)> heard);
void show_warnings_of_ranks();  // those that have waited for long enough; called again and again

// As info(); a terminal that is too narrow for the line gets `shortened` instead.
void info(std::string_view message, std::string_view shortened);

// Copies every later line to `path` (appending). Throws gpt::Error(disk) when it cannot be opened.
void open_file(const std::string& path);

// The progress line of a terminal: redrawn in place below the log, erased before any log line. No-op when standard
// error is not a terminal. An empty text removes it.
void status(std::string_view text);

// Waits until standard error has everything; false if it has not.
bool flush(output::Wait wait);

// True if standard error is a terminal that can show a redrawn status line.
bool is_terminal();

}  // namespace gpt::log
