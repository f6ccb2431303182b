// Standard output and standard error; but for the line editor, nothing else writes to them. A thread does it, so that nobody
// hangs on a reader that has stopped: a full pipe, a terminal after Ctrl-S, a hung ssh. Their descriptors stay as they are, for a
// shell may share them. Texts for one terminal, pipe or file keep their order, whichever of the two they went to.
#pragma once

#include <chrono>
#include <string_view>

namespace gpt::output {

// A text for standard error, or nothing of it: false where too much waits to be written. Then nothing is taken until all of that
// has been. Never waits.
bool offer(std::string_view text);
bool is_behind();  // a screenful of it is waiting to be written

// A text for standard output, in whole. Waits while too much waits to be written, unless the program is asked to stop: what it still
// says then does not wait. False once the reader has left. Throws gpt::Error(disk) where an earlier text could not be written.
bool write(std::string_view text);
void stop_waiting_when(bool (*is_asked_to_stop)());

// How long to wait for a reader: while it reads, but not longer than `patience` for its next bytes, and `limit` in all.
struct Wait {
  static constexpr std::chrono::hours kForever{100'000};
  std::chrono::milliseconds patience, limit = kForever;
};

// Wait until no text for standard error, or for standard output, is left to be written; false if some is. flush() throws
// gpt::Error(disk) as write() does.
bool flush_errors(Wait wait);
bool flush(Wait wait);

}  // namespace gpt::output
