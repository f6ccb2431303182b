#include "gpt/core/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/output.h"
#include "gpt/core/printable.h"
#include "gpt/core/running_clock.h"
#include "gpt/core/surroundings.h"

namespace gpt::process {
namespace {

constexpr int kUnexpected = 1;

using Clock = std::chrono::steady_clock;

std::atomic<int> stop_requested{0}, stop_to_take{0};
std::atomic<bool> save_requested{false}, leave_at_first{true}, waits_for_children{false};
std::atomic<int64_t> unsaved_updates{0};
std::atomic<const char*> stop_announcement{nullptr};
std::string program_name;

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

// How long readers of the output are waited for: at the end of a program, and of one that was asked to stop.
constexpr output::Wait kAtEnd{.patience = std::chrono::seconds(15)},
    kAfterStop{.patience = std::chrono::seconds(1), .limit = std::chrono::seconds(5)};

[[noreturn]] void leave_at_once(int status) {
  log::flush(kAfterStop);
  _exit(status);
}

[[noreturn]] void leave(int signal) {
  const int64_t lost = unsaved_updates;
  log::status("");
  if (lost == 0) {
    if (stop_announcement) log::info("Quit without saving: no update was lost");
    leave_at_once(128 + signal);
  }
  log::error(fmt::format("quit without saving: {} since the last checkpoint {} lost",
                         lost == 1 ? "1 update" : fmt::format("{} updates", lost), lost == 1 ? "is" : "are"));
  leave_at_once(static_cast<int>(ExitCode::left_unsaved));
}

void announce_stop(int signal) {
  const char* text = stop_announcement;
  if (text) log::warn(fmt::format("{}{}", text, signal == SIGINT ? "; press Ctrl-C again to quit without saving" : ""));
}

// Handlers would run on the stack of whichever thread is computing, and code that LibTorch's CPU kernels generate (seen
// with oneDNN's for AVX-512) keeps its stack pointer where a handler's frame overwrites the heap. So no other thread
// receives these signals; this one waits for them, and tells RunningClock that the process runs.
void wait_for_signals(sigset_t watched) {
  constexpr std::chrono::seconds kDeliberate(1);
  Clock::time_point interrupted{};  // by the first SIGINT of this stop
  bool is_interrupted = false;
  constexpr timespec kBetweenLooks{.tv_sec = 0, .tv_nsec = Pauses::kBetweenLooks.count()};
  RunningClock::look();
  for (;;) {
    const int signal = sigtimedwait(&watched, nullptr, &kBetweenLooks);
    if (signal == SIGCONT) RunningClock::woke();
    if (signal < 0 && errno == EAGAIN) RunningClock::look();  // EINTR: after a stop, of which SIGCONT tells next
    if (signal < 0 || signal == SIGCONT) continue;
    if (signal == SIGUSR1) {
      save_requested = true;
      continue;
    }
    if (leave_at_first) leave_at_once(128 + signal);
    stop_to_take = signal;
    int none = 0;
    const bool is_first = stop_requested.compare_exchange_strong(none, signal);
    if (is_first) is_interrupted = false;
    if (signal == SIGINT) {
      if (is_interrupted && Clock::now() - interrupted >= kDeliberate && !waits_for_children) leave(signal);
      if (!is_interrupted) interrupted = Clock::now();
      is_interrupted = true;
    }
    if (is_first) announce_stop(signal);
  }
}

void dispose(int signal, void (*disposition)(int)) {
  struct sigaction action{};
  action.sa_handler = disposition;
  sigaction(signal, &action, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void start_signal_thread() {
  sigset_t watched;
  sigemptyset(&watched);
  const auto watch = [&watched](int signal) {
    dispose(signal, SIG_DFL);  // one that a shell set to be ignored would never arrive
    sigaddset(&watched, signal);
  };
  for (const int signal : kStopSignals) {
    if (signal != SIGHUP || !is_ignored(SIGHUP)) watch(signal);
  }
  watch(SIGUSR1);
  watch(SIGCONT);
  pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  std::thread(wait_for_signals, watched).detach();
}

void take_signals() {
  static std::once_flag once;
  std::call_once(once, start_signal_thread);
}

// A file opened later would get the number of a closed standard descriptor, and the log would be written into it.
void open_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", O_RDWR);
  }
}

void set_environment() {
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);  // kernels are loaded when first used: a faster start and less memory
  // perf: OPT-7. A thread that waits for others spins this many milliseconds before it sleeps; LLVM's OpenMP reads it.
  if (!std::getenv("OMP_WAIT_POLICY")) setenv("KMP_BLOCKTIME", "1", 0);
  setenv("TORCH_FR_BUFFER_SIZE", "0", 0);  // c10d records collectives, for dumps that nobody reads
}

// In one line, unless the user asks for LibTorch's backtrace.
std::string message_of(const std::exception& e) {
  const char* backtrace = std::getenv("GPT_BACKTRACE");
  return backtrace && std::string_view(backtrace) == "1" ? e.what() : first_line(e.what());
}

int fail(ExitCode code, const std::string& message) {
  log::error(message);
  return static_cast<int>(code);
}

// Settings that this program has.
const char* advice_out_of_memory() {
  if (program_name == "gpt-train" || program_name == "gpt-bench" || program_name == "gpt-diagnose")
    return "lower training.batch_size (and raise training.gradient_accumulation_steps to keep the effective batch), "
           "lower model.block_size, or set training.gradient_checkpointing: block";
  if (program_name == "gpt-eval")
    return "lower --batch-size, stop other programs that hold memory, or use a machine with more of it";
  return "stop other programs that hold memory, or use a machine with more of it";
}

int fail_out_of_memory(std::string_view cause) {
  const size_t allocator = cause.find("DefaultCPUAllocator");  // it follows a location in LibTorch's source
  if (allocator != std::string_view::npos) cause.remove_prefix(allocator);
  return fail(ExitCode::memory, fmt::format("out of memory ({}): {}", cause, advice_out_of_memory()));
}

int fail_exception(const std::exception& e) {
  if (auto* error = dynamic_cast<const Error*>(&e)) {
    const bool by_signal = error->code() == ExitCode::interrupted && stop_signal() != 0;
    return fail(by_signal ? stop_code() : error->code(), printable_line(error->what()));
  }
  if (surroundings::is_lack_of_threads(e))
    return fail(ExitCode::memory, fmt::format("cannot start a thread: {}", surroundings::kThreadsRemedy));
  const std::string what = message_of(e);
  if (is_out_of_memory(e)) return fail_out_of_memory(dynamic_cast<const std::bad_alloc*>(&e) ? "host memory" : what);
  log::error(what.empty() ? "unexpected error" : what);
  return kUnexpected;
}

// Nothing is left to be saved: from here on a signal ends the program at once. What was asked for is on standard output, which is
// waited for as long as its reader takes. A reader that has gone (`| head`) is not a failure; a full disk under it is one.
int finish_output(int status) {
  leave_at_first = true;
  try {
    while (!output::flush(kAfterStop) && stop_signal() == 0) {}
  } catch (const Error& error) {
    if (status == 0) status = fail(error.code(), error.what());
  }
  log::flush(stop_signal() == 0 ? kAtEnd : kAfterStop);
  return status;
}

// The exit status of the body: what it returned, or what its exception amounts to.
int status_of(int argc, char** argv, int (*body)(int argc, char** argv)) {
  try {
    surroundings::require_sane_limits();
    take_signals();
    return body(argc, argv);
  } catch (const std::exception& e) { return fail_exception(e); } catch (...) {
    log::error("unexpected error of an unknown type");
    return kUnexpected;
  }
}

}  // namespace

void run(int argc, char** argv, int (*body)(int argc, char** argv)) {
  program_name = argc > 0 ? std::string(argv[0]).substr(std::string_view(argv[0]).rfind('/') + 1) : "";
  set_environment();
  open_standard_descriptors();
  dispose(SIGPIPE, SIG_IGN);
  dispose(SIGXFSZ, SIG_IGN);
  output::stop_waiting_when([] { return stop_signal() != 0; });
  const int status = status_of(argc, argv, body);
  log::status("");
  const int final_status = finish_output(status);
  surroundings::remove_openmp_file();
  _exit(final_status);
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const std::string_view what = error.what();
  for (std::string_view sign : {"out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED"}) {
    if (what.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

void watch_signals() {
  leave_at_first = false;
  take_signals();
}

void announce_stops(const char* text) { stop_announcement = text; }

int stop_signal() { return stop_requested; }
int take_stop_signal() { return stop_to_take.exchange(0); }
ExitCode stop_code() { return static_cast<ExitCode>(128 + stop_requested); }
void forget_stop_signal() { stop_requested = 0; }
void request_stop(int signal) {
  int none = 0;
  if (stop_requested.compare_exchange_strong(none, signal)) announce_stop(signal);
}
void leave_stopping_to_children() { waits_for_children = true; }
void set_unsaved_updates(int64_t count) { unsaved_updates = count; }

LeaveAtFirstSignal::LeaveAtFirstSignal() { leave_at_first = true; }
LeaveAtFirstSignal::~LeaveAtFirstSignal() { leave_at_first = false; }

bool take_save_request() { return save_requested.exchange(false); }

}  // namespace gpt::process
