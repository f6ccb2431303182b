// Linked into every program: what is done before anything else in the program runs. LibTorch's libraries initialise before main, and a signal
// or a lack of memory or threads then would end the program without a word.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <new>
#include <string_view>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/surroundings.h"

namespace {

[[noreturn]] void leave(std::string_view why) {
  (void)!write(STDERR_FILENO, why.data(), why.size());
  _exit(static_cast<int>(gpt::ExitCode::memory));
}

// For an exception that nobody catches, in a thread of a library or before main. Others abort, as they would have.
[[noreturn]] void end_with_a_line() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    leave("error: out of memory: stop other programs that hold memory, or raise the limit (ulimit -v)\n");
  } catch (const std::system_error& error) {
    if (gpt::surroundings::is_lack_of_threads(error))
      leave("error: cannot start a thread: raise the limit (ulimit -u, pids.max), or stop other programs\n");
  } catch (...) {  // below
  }
  __gnu_cxx::__verbose_terminate_handler();
  std::abort();
}

// Those that process::run() handles stay pending until then.
void prepare(int, char**, char**) {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCONT}) sigaddset(&taken, signal);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  std::set_terminate(end_with_a_line);
}

// The loader calls these before the constructors of every shared library.
[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**, char**) = prepare;

}  // namespace
