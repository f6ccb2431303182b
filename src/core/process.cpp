#include "gpt/core/process.h"

#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/log.h"

namespace gpt::process {
namespace {

constexpr int kUnexpected = 1;

// Lock-free atomics rather than volatile sig_atomic_t: the signal may arrive on another thread than the reader's.
std::atomic<int> stop_requested{0};
std::atomic<bool> save_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_stop(int signal) {
  int none = 0;
  if (!stop_requested.compare_exchange_strong(none, signal)) _exit(128 + signal);
}

void on_save(int) { save_requested = true; }

void set_allocators() {
  // glibc returns freed blocks of 32 MB and more to the kernel, but a trainer asks for the same sizes again at every
  // step, and each page would be faulted in anew: with a vocabulary of 50,304 keeping them took a step of a small model
  // from 500 to 310 ms.
  constexpr int kKeepBelow = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kKeepBelow);
  mallopt(M_TRIM_THRESHOLD, kKeepBelow);
  // Segments that grow instead of fragmenting. LibTorch reads the old name first, and what the
  // user set under either one rules.
  if (!std::getenv("PYTORCH_ALLOC_CONF") && !std::getenv("PYTORCH_CUDA_ALLOC_CONF")) {
    setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 0);
  }
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);  // kernels are loaded when first used: a faster start and less memory
}

void ignore(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(signal, &action, nullptr);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// LibTorch's what() is a message, then a backtrace of many lines.
std::string first_line(std::string_view what) {
  const char* backtrace = std::getenv("GPT_BACKTRACE");
  if (backtrace && std::string_view(backtrace) == "1") return std::string(what);
  return std::string(what.substr(0, what.find('\n')));
}

bool is_out_of_memory(std::string_view what) {
  for (std::string_view sign : {"out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED"}) {
    if (what.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

int fail(ExitCode code, const std::string& message) {
  log::error(message);
  return static_cast<int>(code);
}

int fail_out_of_memory(std::string_view cause) {
  const size_t allocator = cause.find("DefaultCPUAllocator");  // behind the place in LibTorch's source
  if (allocator != std::string_view::npos) cause.remove_prefix(allocator);
  return fail(
      ExitCode::memory,
      fmt::format("out of memory ({}): lower training.batch_size (and raise training.gradient_accumulation_steps "
                  "to keep the effective batch), lower model.block_size, or set "
                  "training.gradient_checkpointing: true",
                  cause));
}

int fail_exception(const std::exception& e) {
  log::status("");
  if (auto* error = dynamic_cast<const Error*>(&e)) return fail(error->code(), error->what());
  if (dynamic_cast<const std::bad_alloc*>(&e)) return fail_out_of_memory("host memory");
  const std::string what = first_line(e.what());
  if (is_out_of_memory(what)) return fail_out_of_memory(what);
  log::error(what.empty() ? "unexpected error" : what);
  return kUnexpected;
}

// A reader that left (`| head`) is no failure; a full disk behind standard output is one.
int finish_output(int status) {
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && errno != EPIPE && status == 0) {
    return fail(ExitCode::disk, "cannot write standard output: " + std::generic_category().message(errno));
  }
  return status;
}

}  // namespace

int run(int argc, char** argv, int (*body)(int argc, char** argv)) {
  set_allocators();
  ignore(SIGPIPE);
  ignore(SIGXFSZ);
  try {
    const int status = body(argc, argv);
    log::status("");
    return finish_output(status);
  } catch (const std::exception& e) {
    return fail_exception(e);
  } catch (...) {
    log::status("");
    log::error("unexpected error of an unknown type");
    return kUnexpected;
  }
}

void install_signal_handlers() {
  handle(SIGINT, on_stop);
  handle(SIGTERM, on_stop);
  handle(SIGUSR1, on_save);
}

int stop_signal() { return stop_requested; }
bool take_save_request() { return save_requested.exchange(false); }

}  // namespace gpt::process
