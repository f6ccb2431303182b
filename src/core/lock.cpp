#include "gpt/core/lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "descriptor.h"
#include "gpt/core/file.h"
#include "gpt/core/host_name.h"
#include "gpt/core/log.h"

namespace gpt {
namespace {

// On some mounts of clusters.
bool lacks_locks(int number) { return number == ENOSYS || number == ENOLCK || number == EOPNOTSUPP; }

void warn_of_missing_locks(const std::string& path, int number) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  log::warn(fmt::format(
      "{}: this file system has no locks ({}); the existence of the file keeps other processes out, and the file names this process",
      path, std::generic_category().message(number)));
}

struct LockFile {
  int fd;  // -1: it was there and is gone
  bool is_new;
};

LockFile open_lock_file(const std::string& path) {
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd >= 0) return {fd, true};
  if (errno != EEXIST) throw_unwritable(path, "open", errno);
  fd = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno != ENOENT) throw_unwritable(path, "open", errno);
  return {fd, false};
}

std::string first_line(int fd) {
  char text[256] = {};
  const ssize_t count = pread(fd, text, sizeof text, 0);
  return gpt::first_line({text, static_cast<size_t>(std::max<ssize_t>(count, 0))});
}

// "123 on node7 since 2026-11-22 07:18:31 UTC": always the same in a process, so that it knows its own claims.
std::string own_claim() {
  static const std::time_t first = std::time(nullptr);
  return fmt::format("{} on {} since {:%Y-%m-%d %H:%M:%S} UTC", getpid(), host_name(), fmt::gmtime(first));
}

enum class Claim { none, dead, held };

// What the text of a lock file says of its holder. A process of another host may always be alive; one that had the id of this
// one cannot be.
Claim claim_of(std::string_view text) {
  pid_t pid = 0;
  const char* const end = std::from_chars(text.data(), text.data() + text.size(), pid).ptr;
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  const std::string here = fmt::format(" on {} since ", host_name());
  if (pid <= 0 || !rest.starts_with(" on ")) return Claim::none;
  if (!rest.starts_with(here) || text == own_claim()) return Claim::held;
  return pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH) ? Claim::dead : Claim::held;
}

// Whether the open file has this name.
enum class Place { here, not_here, unknown };

Place place_of(int fd, const std::string& path) {
  struct stat opened{}, named{};
  if (fstat(fd, &opened) != 0) return Place::unknown;
  if (stat(path.c_str(), &named) != 0)
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? Place::not_here : Place::unknown;
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino ? Place::here : Place::not_here;
}

std::string described(const std::string& holder) { return holder.empty() ? "another process" : "process " + holder; }

std::string claimant(const std::string& holder, const std::string& path) {
  return fmt::format("{} (it holds no lock: remove {} if it has gone)", described(holder), path);
}

}  // namespace

FileLock::FileLock(std::string path, const std::function<void(const std::string& holder)>& busy)
    : path_(std::move(path)) {
  while (!try_lock(busy)) {}
}

bool FileLock::try_lock(const std::function<void(const std::string& holder)>& busy) {
  const auto [fd, is_new] = open_lock_file(path_);
  if (fd < 0) return false;  // its holder has just removed it
  Descriptor descriptor{fd};
  const int number = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  const std::string holder = first_line(fd);
  if (lacks_locks(number)) {
    if (!try_claim(is_new, holder, busy)) return false;
    warn_of_missing_locks(path_, number);
    take(fd, own_claim());
  } else {
    if (number != 0 && number != EWOULDBLOCK) throw_unwritable(path_, "lock", number);
    if (number == EWOULDBLOCK || claim_of(holder) == Claim::held) {
      busy(number == EWOULDBLOCK ? described(holder) : claimant(holder, path_));
      return false;
    }
    // The previous holder may have removed the file since it was opened: then this locks nothing.
    if (place_of(fd, path_) != Place::here) return false;
    take(fd, std::to_string(getpid()));
  }
  fd_ = std::exchange(descriptor.fd, -1);
  return true;
}

// Whoever creates the file holds it. A claim that is known to be dead goes, so that one of those who wait can create it.
bool FileLock::try_claim(bool is_new, const std::string& holder,
                         const std::function<void(const std::string& holder)>& busy) {
  if (is_new) return true;
  if (claim_of(holder) == Claim::dead) {
    unlink(path_.c_str());
  } else {
    busy(claimant(holder, path_));
  }
  return false;
}

void FileLock::take(int fd, std::string_view holder) {
  if (ftruncate(fd, 0) == 0 && ::write(fd, holder.data(), holder.size()) == static_cast<ssize_t>(holder.size())) return;
  const int number = errno;
  unlink(path_.c_str());
  throw_unwritable(path_, "write", number);
}

FileLock::~FileLock() {
  if (is_in_place()) unlink(path_.c_str());  // while still locked, so that it is nobody else's file
  close(fd_);
}

bool FileLock::is_at(const std::string& path) const { return place_of(fd_, path) != Place::not_here; }

FolderLock::FolderLock(const std::string& folder, ExitCode code, const std::string& setting)
    : lock_(folder + "/.lock",
            [&](const std::string& holder) {
              throw Error(code, fmt::format("{} is in use by {}: wait for it, stop it, or choose another {}", folder,
                                            holder, setting));
            }),
      fd_(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  for (const char* part : {"", "/samples"}) sweep_unfinished_files(folder + part);
}

FolderLock::~FolderLock() { close(fd_); }

bool is_locked(const std::string& folder) {
  const int fd = open((folder + "/.lock").c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  const Descriptor descriptor{fd};
  const std::string holder = first_line(fd);
  if (const Claim claim = claim_of(holder); claim != Claim::none) return claim == Claim::held;
  return flock(fd, LOCK_SH | LOCK_NB) != 0;  // for a moment, and never while a process holds it
}

std::optional<FolderLock::Locked> FolderLock::locked() const {
  const std::string path = fmt::format("/proc/self/fd/{}", fd_), lock = path + "/.lock";
  struct stat folder{}, other{};
  std::error_code unknown;
  const std::string now = std::filesystem::read_symlink(path, unknown).string();
  if (unknown || now.ends_with(" (deleted)") || fstat(fd_, &folder) != 0 || folder.st_nlink == 0) return std::nullopt;
  const bool is_free = lstat(lock.c_str(), &other) != 0 && errno == ENOENT;
  return is_free || lock_.is_at(lock) ? std::optional(Locked{path, now}) : std::nullopt;
}

}  // namespace gpt
