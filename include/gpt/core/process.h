// What every program does first and last: allocator settings before LibTorch's first allocation, signals, the one catch.
#pragma once

namespace gpt::process {

// The body of main: sets the allocators, ignores SIGPIPE and SIGXFSZ (errors then come back as errno), runs `body` and
// turns exceptions into one line on standard error and an exit status: gpt::Error its own code; out of memory 7 with the
// settings to lower; anything else 1.
int run(int argc, char** argv, int (*body)(int argc, char** argv));

// From here on SIGINT and SIGTERM only ask to stop (a second one leaves at once) and SIGUSR1 asks for a checkpoint.
void install_signal_handlers();
int stop_signal();          // 0, SIGINT or SIGTERM
bool take_save_request();   // true once per SIGUSR1

}  // namespace gpt::process
