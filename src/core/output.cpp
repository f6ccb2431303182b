#include "gpt/core/output.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/surroundings.h"

namespace gpt::output {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostWaiting = 1 << 20, kScreenful = 1 << 12;  // bytes
constexpr size_t kPiece = 1 << 12;                              // bytes that a pipe takes as a whole
constexpr std::chrono::milliseconds kLookAgain(20);

std::atomic<bool (*)()> is_asked_to_stop{nullptr};

bool asked_to_stop() {
  bool (*const asked)() = is_asked_to_stop;
  return asked && asked();
}

// Bytes in the kernel that the reader has not taken, where the kernel tells.
int64_t unread_bytes(int fd) {
  int count = 0;
  if (ioctl(fd, TIOCOUTQ, &count) != 0 && ioctl(fd, FIONREAD, &count) != 0) return 0;
  return count;
}

// Everything that goes to one terminal, pipe or file.
class Writer {
 public:
  bool offer(int fd, std::string_view text) {
    const std::lock_guard lock(mutex_);
    is_full_ = waiting_ > 0 && (is_full_ || waiting_ + text.size() > kMostWaiting);
    if (!is_full_) add(fd, text);
    return !is_full_;
  }

  void write(int fd, std::string_view text) {
    std::unique_lock lock(mutex_);
    while (waiting_ > kMostWaiting) {
      if (asked_to_stop()) break;  // little comes after that
      changed_.wait_for(lock, kLookAgain);
    }
    add(fd, text);
  }

  bool drain(int fd, Wait wait) {
    std::unique_lock lock(mutex_);
    const Clock::time_point begin = Clock::now();
    Clock::time_point moved = begin;
    const auto taken = [&] { return written_ - unread_bytes(fd); };
    for (int64_t before = taken(); waiting_ > 0;) {
      changed_.wait_for(lock, kLookAgain);
      const Clock::time_point now = Clock::now();
      if (const int64_t after = taken(); after != before) before = after, moved = now;
      if (now - moved >= wait.patience || now - begin >= wait.limit) break;
    }
    return waiting_ == 0;
  }

  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

  // The errno of the first text that could not be written to it; 0 without one.
  int error(int fd) const {
    const std::lock_guard lock(mutex_);
    return errors_[static_cast<size_t>(fd)];
  }

 private:
  struct Text {
    int fd;
    std::string bytes;
  };

  // The thread takes no signals (see gpt/core/process.h). False where the system refuses one.
  bool start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread = surroundings::thread_if_possible([this] { write_all(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread.joinable()) return false;
    thread.detach();
    return true;
  }

  // Without a thread the text is written at once, however long its reader takes.
  void add(int fd, std::string_view text) {
    has_started_ = has_started_ || start();
    if (!has_started_) return write_at_once(fd, text);
    texts_.push_back({fd, std::string(text)});
    waiting_ += text.size();
    changed_.notify_all();
  }

  void write_at_once(int fd, std::string_view text) {
    for (int64_t count = 0; !text.empty(); text.remove_prefix(static_cast<size_t>(count))) {
      count = write_piece(fd, text);
      if (count < 0) {
        errors_[static_cast<size_t>(fd)] = static_cast<int>(-count);
        return;
      }
    }
  }

  [[noreturn]] void write_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !texts_.empty(); });
      const Text text = std::move(texts_.front());
      texts_.pop_front();
      for (std::string_view rest = text.bytes; !rest.empty();) {
        const size_t size = std::min(rest.size(), kPiece);
        lock.unlock();
        const int64_t count = write_piece(text.fd, rest.substr(0, size));
        lock.lock();
        if (count < 0 && errors_[static_cast<size_t>(text.fd)] == 0)
          errors_[static_cast<size_t>(text.fd)] = static_cast<int>(-count);
        const size_t done = count < 0 ? rest.size() : static_cast<size_t>(count);  // what cannot be written is dropped
        rest.remove_prefix(done);
        waiting_ -= done;
        written_ += static_cast<int64_t>(done);
      }
      changed_.notify_all();
    }
  }

  // The bytes written, or -errno.
  static int64_t write_piece(int fd, std::string_view piece) {
    for (;;) {
      const ssize_t count = ::write(fd, piece.data(), piece.size());
      if (count >= 0) return count;
      if (errno == EAGAIN) {  // whoever started the program has made it so
        pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
        poll(&ready, 1, -1);
      } else if (errno != EINTR) {
        return -errno;
      }
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Text> texts_;
  size_t waiting_ = 0;  // bytes, with those of the text that is being written
  int64_t written_ = 0;
  bool is_full_ = false, has_started_ = false;
  std::array<int, 3> errors_{};  // by descriptor
};

struct Writers {
  Writer* output;
  Writer* errors;
};

bool are_the_same_file(int a, int b) {
  struct stat first{}, second{};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Never destroyed: their threads run to the very end. A child process has none of its parent's threads and gets writers of its
// own.
std::atomic<Writers*> current{nullptr};
std::mutex creating;

Writers& writers() {
  if (Writers* const made = current) return *made;
  const std::lock_guard lock(creating);
  if (Writers* const made = current) return *made;
  static const int registered [[maybe_unused]] = pthread_atfork(nullptr, nullptr, [] { current = nullptr; });
  auto* const output = new Writer;
  current = new Writers{output, are_the_same_file(STDOUT_FILENO, STDERR_FILENO) ? output : new Writer};
  return *current;
}

// False where the reader of standard output has left.
bool require_output() {
  const int number = writers().output->error(STDOUT_FILENO);
  if (number != 0 && number != EPIPE)
    throw Error(ExitCode::disk, "cannot write standard output: " + std::generic_category().message(number));
  return number == 0;
}

}  // namespace

bool offer(std::string_view text) { return text.empty() || writers().errors->offer(STDERR_FILENO, text); }
bool is_behind() { return writers().errors->waiting() > kScreenful; }

bool write(std::string_view text) {
  if (!text.empty()) writers().output->write(STDOUT_FILENO, text);
  return require_output();
}

void stop_waiting_when(bool (*asked)()) { is_asked_to_stop = asked; }

bool flush_errors(Wait wait) { return writers().errors->drain(STDERR_FILENO, wait); }
bool flush(Wait wait) {
  const bool is_written = writers().output->drain(STDOUT_FILENO, wait);
  require_output();
  return is_written;
}

}  // namespace gpt::output
