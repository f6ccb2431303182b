// What every program does first and last: allocator settings before LibTorch's first allocation, signals, the one catch.
#pragma once

namespace gpt::process {

// The body of main: sets the allocators, ignores SIGPIPE and SIGXFSZ (errors then come back as errno), runs `body` and
// turns exceptions into one line on standard error and an exit status: gpt::Error its own code, but where SIGTERM
// interrupted, terminated; out of memory 7 with the settings to lower; anything else 1.
int run(int argc, char** argv, int (*body)(int argc, char** argv));

// From here on SIGINT and SIGTERM only ask to stop (a second one leaves at once) and SIGUSR1 asks for a checkpoint. Call it
// before any other thread starts: a thread of its own takes the signals, and every later one inherits that it takes none.
void watch_signals();
int stop_signal();          // 0, SIGINT or SIGTERM
void forget_stop_signal();  // it has been met: the next one is a first one again
bool take_save_request();   // true once per SIGUSR1

// While it lives, the first SIGINT or SIGTERM leaves at once: for the wait at a prompt.
class LeaveAtFirstSignal {
 public:
  LeaveAtFirstSignal();
  ~LeaveAtFirstSignal();
  LeaveAtFirstSignal(const LeaveAtFirstSignal&) = delete;
  LeaveAtFirstSignal& operator=(const LeaveAtFirstSignal&) = delete;
};

}  // namespace gpt::process
