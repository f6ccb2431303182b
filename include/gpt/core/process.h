// What every program does first and last: the environment that libraries read, signals, the top-level catch.
#pragma once

#include <cstdint>
#include <exception>

#include "gpt/core/error.h"

namespace gpt::process {

// The body of main: sets the environment, opens /dev/null in place of closed standard descriptors, ignores SIGPIPE and
// SIGXFSZ (errors then come back as errno), handles signals, runs `body` and turns exceptions into one line on standard
// error and an exit status: for gpt::Error its own code (for `interrupted`, that of the signal received), for lack of
// memory 7, naming the settings to lower, and for anything else 1. The program ends here, without the destructors of static
// objects: LibTorch's take 0.15 seconds, and threads that nobody can join may still use them.
[[noreturn]] void run(int argc, char** argv, int (*body)(int argc, char** argv));

// Memory was refused, by the system or by one of LibTorch's allocators.
bool is_out_of_memory(const std::exception& error);

// Until this is called, SIGINT, SIGTERM and SIGHUP end the program at once. From here on they request a stop. A second
// SIGINT still ends it at once, but only a second or more after the first: `timeout`, terminals and launchers send a signal
// twice. SIGUSR1 requests a checkpoint. A SIGHUP that was ignored when the program started (nohup) stays ignored.
// A dedicated thread receives the signals: call this before any other thread starts, so that the others inherit a mask
// that blocks them.
void watch_signals();
void announce_stops(const char* text);  // the line that the first signal prints from here on
int stop_signal();                      // 0, or the first of SIGINT, SIGTERM and SIGHUP
int take_stop_signal();                 // the last of them, once each time that one arrives, to pass it on; 0: none has
ExitCode stop_code();                   // the exit status of that signal
void forget_stop_signal();              // it has been handled: the next one is a first one again
void request_stop(int signal);          // as if this process had received it, unless it has received one
void leave_stopping_to_children();      // from here on no second signal ends this process: it waits for its children
bool take_save_request();               // true once per SIGUSR1

// Updates since the last checkpoint: what exiting at once would lose. If there are any, such an exit reports
// them and has the status left_unsaved.
void set_unsaved_updates(int64_t count);

// While it exists, the first signal ends the program at once: for waiting at a prompt.
class LeaveAtFirstSignal {
 public:
  LeaveAtFirstSignal();
  ~LeaveAtFirstSignal();
  LeaveAtFirstSignal(const LeaveAtFirstSignal&) = delete;
  LeaveAtFirstSignal& operator=(const LeaveAtFirstSignal&) = delete;
};

}  // namespace gpt::process
