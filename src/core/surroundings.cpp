#include "gpt/core/surroundings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "descriptor.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"

namespace gpt::surroundings {
namespace {

std::string reason(int number) { return std::generic_category().message(number); }

// That of this thread grows as far as the limit says when it does; others get theirs when they start.
void require_stack() {
  constexpr rlim_t kLeast = 1 << 20, kUsual = 8 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  const auto before = static_cast<double>(limit.rlim_cur);
  limit.rlim_cur = std::min(kUsual, limit.rlim_max);
  pthread_attr_t attributes;
  if (limit.rlim_cur >= kLeast && setrlimit(RLIMIT_STACK, &limit) == 0 && pthread_attr_init(&attributes) == 0) {
    pthread_attr_setstacksize(&attributes, limit.rlim_cur);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    return;
  }
  throw Error(ExitCode::memory,
              fmt::format("the stack is limited to {}, and the program needs {}: raise the limit (ulimit -s 8192)",
                          format_bytes(before), format_bytes(static_cast<double>(kLeast))));
}

// "4", or "4,2" for nested regions.
void require_positive_threads() {
  const char* const given = std::getenv("OMP_NUM_THREADS");
  for (std::string_view rest = given ? given : ""; !rest.empty();) {
    const size_t end = std::min(rest.find(','), rest.size()), first = std::min(rest.find_first_not_of(" \t"), end);
    int64_t number = 1;  // OpenMP itself says what is none
    std::from_chars(rest.data() + first, rest.data() + end, number);
    if (number < 0)
      throw Error(ExitCode::config,
                  fmt::format("environment variable OMP_NUM_THREADS: must be a positive number, got '{}'", given));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

void require_sane_limits() {
  remove_openmp_file();
  require_stack();
  require_positive_threads();
}

void remove_openmp_file(const std::string& folder) {
  unlink(fmt::format("{}/__KMP_REGISTERED_LIB_{}_{}", folder, getpid(), getuid()).c_str());
}

// As the runtime itself does: a file of some bytes is made there.
void require_shared_memory(const std::string& folder) {
  constexpr off_t kBytes = 1024;
  const std::string path = fmt::format("{}/gpt-train-{}", folder, getpid());
  const Descriptor file{open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  const int number = file.fd < 0 ? errno : posix_fallocate(file.fd, 0, kBytes);
  if (file.fd >= 0) unlink(path.c_str());
  if (number == 0) return;
  throw Error(ExitCode::disk, fmt::format("cannot write {}: {}; OpenMP needs a file there: {}", folder, reason(number),
                                          number == EFBIG ? "raise the limit of files (ulimit -f unlimited)"
                                                          : "mount a tmpfs there that can be written"));
}

void require_random_numbers(const std::string& device) {
  const Descriptor file{open(device.c_str(), O_RDONLY | O_CLOEXEC)};
  uint64_t bytes = 0;
  const ssize_t count = file.fd < 0 ? -1 : read(file.fd, &bytes, sizeof bytes);
  if (count == sizeof bytes) return;
  throw Error(ExitCode::disk,
              fmt::format("cannot read {}: {}; LibTorch needs it: make it (mknod -m 444 {} c 1 9), or mount /dev",
                          device, count < 0 ? reason(errno) : "it gives nothing", device));
}

bool is_lack_of_threads(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  return system && system->code() == std::errc::resource_unavailable_try_again;
}

void require_threads(int64_t count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::vector<std::thread> threads;
  std::error_code why;
  try {
    while (std::ssize(threads) < count) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return is_over; });
      });
    }
  } catch (const std::system_error& error) { why = error.code(); }
  {
    const std::lock_guard lock(mutex);
    is_over = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (!why) return;
  throw Error(ExitCode::memory,
              fmt::format("cannot start {}, only {}: {}, or set threads to {}", plural(count, "thread"), threads.size(),
                          kThreadsRemedy, std::max<size_t>(1, threads.size())));
}

}  // namespace gpt::surroundings
