// What every program does first and last: allocator settings before LibTorch's first allocation, signals, the one catch.
#pragma once

#include <cstdint>

#include "gpt/core/error.h"

namespace gpt::process {

// The body of main: sets the allocators, opens /dev/null in place of closed standard descriptors, ignores SIGPIPE and
// SIGXFSZ (errors then come back as errno), takes signals, runs `body` and turns exceptions into one line on standard error
// and an exit status: gpt::Error its own code, `interrupted` that of the signal that came; out of memory 7 with the
// settings to lower; anything else 1.
int run(int argc, char** argv, int (*body)(int argc, char** argv));

// Until this is called, SIGINT, SIGTERM and SIGHUP leave at once. From here on they ask to stop. A second SIGINT leaves at
// once all the same, but only a second or more after the first: `timeout`, terminals and launchers send a signal twice.
// SIGUSR1 asks for a checkpoint. A SIGHUP that was ignored when the program started (nohup) stays ignored.
// A thread of its own takes the signals: call it before any other thread starts, which then inherits that it takes none.
void watch_signals();
void announce_stops(const char* text);  // the line that answers the first signal from here on
int stop_signal();          // 0, or the first of SIGINT, SIGTERM and SIGHUP
ExitCode stop_code();       // the exit status of that signal
void forget_stop_signal();  // it has been met: the next one is a first one again
bool take_save_request();   // true once per SIGUSR1

// Updates since the last checkpoint: what leaving at once would lose. With any, it says so and exits with left_unsaved.
void set_unsaved_updates(int64_t count);

// While it lives, the first signal leaves at once: for the wait at a prompt.
class LeaveAtFirstSignal {
 public:
  LeaveAtFirstSignal();
  ~LeaveAtFirstSignal();
  LeaveAtFirstSignal(const LeaveAtFirstSignal&) = delete;
  LeaveAtFirstSignal& operator=(const LeaveAtFirstSignal&) = delete;
};

}  // namespace gpt::process
