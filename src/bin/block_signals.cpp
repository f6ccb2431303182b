// Linked into every program: blocks the signals that process::run() handles before anything else in the program runs, so
// that one that arrives while LibTorch's libraries are still initialising stays pending instead of killing the process.
#include <signal.h>

#include <initializer_list>

namespace {

void block_signals(int, char**, char**) {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&taken, signal);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
}

// The loader calls these before the constructors of every shared library.
[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**, char**) = block_signals;

}  // namespace
