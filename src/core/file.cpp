#include "gpt/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "descriptor.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/map_faults.h"
#include "gpt/core/process.h"
#include "gpt/core/process_memory.h"

namespace gpt {
namespace {

std::string error_text(int number) { return std::generic_category().message(number); }

std::optional<uint64_t> free_space(const std::string& folder) {
  struct statvfs info{};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

// What a message says of a full disk: " (needed 1.40 GB, 210 MB free)", as far as it is known. `needed` 0: it is not.
std::string space_note(uint64_t needed, std::optional<uint64_t> free) {
  std::string note = needed > 0 ? fmt::format("needed {}", format_bytes(static_cast<double>(needed))) : "";
  if (free) note += fmt::format("{}{} free", note.empty() ? "" : ", ", format_bytes(static_cast<double>(*free)));
  return note.empty() ? "" : fmt::format(" ({})", note);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

[[noreturn]] void throw_unreadable(ExitCode code, const std::string& path, const std::string& why) {
  throw Error(code, fmt::format("cannot read {}: {}", path, why));
}

enum class Pipes { refused, allowed };

// Waits until there is something to read, or the end. For a pipe and some files of the kernel that may be never.
void wait_for_input(int fd, const std::string& path) {
  constexpr int kMilliseconds = 100;
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  while (poll(&ready, 1, kMilliseconds) <= 0) {
    if (process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted while waiting for " + path);
  }
}

// Call this before a file is opened: opening a device may do something, and a pipe waits for its writer.
void require_kind(const struct stat& info, Pipes pipes, const std::string& path, ExitCode code) {
  if (S_ISREG(info.st_mode) || (S_ISFIFO(info.st_mode) && pipes == Pipes::allowed)) return;
  if (S_ISDIR(info.st_mode)) throw_unreadable(code, path, "it is a folder");
  throw_unreadable(code, path, pipes == Pipes::allowed ? "it is a device, not a file" : "it is not a regular file");
}

// 0, or the errno of the write that failed; `done` counts the bytes written.
int write_all(int fd, const char* data, size_t size, size_t& done) {
  constexpr size_t kLargestWrite = size_t{1} << 30;  // the kernel takes at most 2 GB at a time
  done = 0;
  while (done < size) {
    const ssize_t count = ::write(fd, data + done, std::min(size - done, kLargestWrite));
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (count == 0) {
      return EIO;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// The same at a place of the file.
int write_all_at(int fd, uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    offset += static_cast<uint64_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

// Makes the names in a folder durable. Some network file systems do not support fsync on folders and return EINVAL.
int sync_folder(const std::string& folder) {
  Descriptor descriptor{open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (descriptor.fd < 0) return errno;
  return fsync(descriptor.fd) == 0 || errno == EINVAL ? 0 : errno;
}

// Unfinished files are `.NAME.tmp-PID-RANDOM`.
constexpr std::string_view kTemporaryMark = ".tmp-";

std::string temporary_name(const std::string& path) {
  const std::string name =
      fmt::format(".{}{}{}-{:08x}", name_of(path), kTemporaryMark, getpid(), std::random_device()());
  return path.substr(0, path.rfind('/') + 1) + name;
}

// Whether temporary_name() gives such names.
bool is_temporary(std::string_view name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (!name.starts_with('.') || mark == std::string_view::npos) return false;
  const std::string_view numbers = name.substr(mark + kTemporaryMark.size());
  const size_t dash = numbers.find('-');
  const auto consists_of = [](std::string_view text, std::string_view digits) {
    return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
  };
  return dash != std::string_view::npos && consists_of(numbers.substr(0, dash), "0123456789") &&
         consists_of(numbers.substr(dash + 1), "0123456789abcdef");
}

// The lock on an unfinished file is its writer's sign of life; a process id is none, because containers give the same ones
// again. False where the file is being swept away.
bool lock_temporary(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat info{};
  return fstat(fd, &info) != 0 || info.st_nlink > 0;
}

}  // namespace

void throw_unwritable(const std::string& path, std::string_view operation, int number) {
  throw Error(ExitCode::disk, fmt::format("cannot write {}: {} failed: {}", path, operation, error_text(number)));
}

void sweep_unfinished_files(const std::string& folder) {
  std::error_code ignored;
  for (const std::string& name : names_in(folder, ignored)) {
    if (!is_temporary(name)) continue;
    const std::string path = folder + "/" + name;
    const Descriptor file{open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)};
    const bool in_use = file.fd < 0 || (flock(file.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    if (!in_use) unlink(path.c_str());
  }
}

std::string read_file(const std::string& path, ExitCode code, std::optional<SizeLimit> limit) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) throw_unreadable(code, path, error_text(errno));
  require_kind(info, Pipes::allowed, path, code);
  Descriptor descriptor{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (descriptor.fd < 0 || fstat(descriptor.fd, &info) != 0) throw_unreadable(code, path, error_text(errno));
  require_kind(info, Pipes::allowed, path, code);  // checks what was opened
  const auto require_size = [&](uint64_t size, const char* at_least) {
    if (!limit || size <= limit->bytes) return;
    throw_unreadable(code, path,
                     fmt::format("it has {}{} bytes; {} has at most {}", at_least,
                                 with_commas(static_cast<int64_t>(size)), limit->what,
                                 with_commas(static_cast<int64_t>(limit->bytes))));
  };
  require_size(static_cast<uint64_t>(info.st_size), "");

  constexpr size_t kPiece = 1 << 16;
  std::string text;
  text.reserve(static_cast<size_t>(info.st_size) + kPiece);
  for (;;) {
    const size_t size = text.size();
    text.resize(std::max(size + kPiece, std::min(text.capacity(), size + (size_t{1} << 30))));
    wait_for_input(descriptor.fd, path);
    const ssize_t count = read(descriptor.fd, text.data() + size, text.size() - size);
    const int error = errno;
    text.resize(size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    require_size(text.size(), "at least ");  // the size of a pipe is not known before
    if (count == 0) return text;
    if (count < 0 && error != EINTR && error != EAGAIN) throw_unreadable(code, path, error_text(error));
  }
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void create_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw Error(ExitCode::disk, fmt::format("cannot create the folder {}: {}", path, error.message()));
}

// A rename from one name of a file to another of the same one would leave both.
bool link_file(const std::string& from, const std::string& to) {
  const std::string temporary = temporary_name(to);
  if (link(from.c_str(), temporary.c_str()) != 0) return false;
  const bool is_done = rename(temporary.c_str(), to.c_str()) == 0;
  unlink(temporary.c_str());
  return is_done && sync_folder(folder_of(to)) == 0;
}

void move_file(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) throw_unwritable(to, "rename", errno);
  if (const int number = sync_folder(folder_of(to))) throw_unwritable(to, "fsync of its folder", number);
}

std::vector<std::string> names_in(const std::string& folder, std::error_code& error) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  if (error == std::errc::no_such_file_or_directory) error.clear();
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names = names_in(folder, error);
  if (error) throw Error(ExitCode::disk, fmt::format("cannot list the files in {}: {}", folder, error.message()));
  return names;
}

uint64_t free_disk_space(const std::string& folder) {
  if (const auto free = free_space(folder)) return *free;
  throw Error(ExitCode::disk, fmt::format("cannot determine the free space of {}: {}", folder, error_text(errno)));
}

AtomicFile::AtomicFile(std::string path, uint64_t expected_bytes) : path_(std::move(path)), expected_(expected_bytes) {
  do {
    abandon();
    temporary_ = temporary_name(path_);
    fd_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd_ < 0) throw_unwritable(path_, "open", errno);
  } while (!lock_temporary(fd_));
}

AtomicFile::~AtomicFile() { abandon(); }

void AtomicFile::abandon() noexcept {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
  fd_ = -1;
}

// The descriptor stays open, because another thread may be writing to it.
void AtomicFile::fail(const char* operation, int number) {
  is_abandoned_ = true;
  unlink(temporary_.c_str());  // first, so that what is free is free for another attempt
  (void)!ftruncate(fd_, 0);
  std::string message = fmt::format("cannot write {}: {} failed: {}", path_, operation, error_text(number));
  if (number == ENOSPC || number == EDQUOT) message += space_note(expected_, free_space(folder_of(path_)));
  throw Error(ExitCode::disk, message);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void AtomicFile::write(std::string_view text) {
  if (fd_ < 0 || is_abandoned_) throw_unwritable(path_, "write", EBADF);
  size_t done = 0;
  if (const int number = write_all(fd_, text.data(), text.size(), done)) fail("write", number);
  size_ += text.size();
}

void AtomicFile::overwrite(uint64_t offset, std::string_view bytes) {
  if (const int number = write_all_at(fd_, offset, bytes)) fail("write", number);
}

void AtomicFile::resize(uint64_t size) {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) fail("truncate", errno);
  if (lseek(fd_, static_cast<off_t>(size), SEEK_SET) < 0) fail("seek", errno);
  size_ = size;
}

size_t AtomicFile::read(uint64_t offset, char* to, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const ssize_t count = pread(fd_, to + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_unreadable(ExitCode::disk, temporary_, error_text(errno));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

void AtomicFile::commit(Durability durability) {
  if (fd_ < 0 || is_abandoned_) throw_unwritable(path_, "commit", EBADF);
  // A failed fsync has dropped pages that a second one would report as clean: the attempt ends here.
  if (durability == Durability::synced && fsync(fd_) != 0) fail("fsync", errno);
  // Closing a copy tells what close() has to say; the lock stays until the file has its name.
  const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0 && close(copy) != 0 && errno != EINTR) fail("close", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename", errno);
  close(std::exchange(fd_, -1));
  if (durability == Durability::unsynced) return;
  if (const int number = sync_folder(folder_of(path_))) throw_unwritable(path_, "fsync of its folder", number);
}

JoinedFile::JoinedFile(std::string path, const std::string& unfinished) : path_(std::move(path)) {
  fd_ = open(unfinished.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd_ < 0) fail("open", errno);
}

JoinedFile::~JoinedFile() {
  if (fd_ >= 0) close(fd_);
}

void JoinedFile::overwrite(uint64_t offset, std::string_view bytes) {
  if (const int number = write_all_at(fd_, offset, bytes)) fail("write", number);
}

void JoinedFile::sync() {
  if (fsync(fd_) != 0) fail("fsync", errno);
}

void JoinedFile::fail(const char* operation, int number) const {
  std::string message = fmt::format("cannot write {}: {} failed: {}", path_, operation, error_text(number));
  if (number == ENOSPC || number == EDQUOT) message += space_note(0, free_space(folder_of(path_)));
  throw Error(ExitCode::disk, message);
}

AppendFile::AppendFile(const std::string& path) : path_(path) {
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_unwritable(path, "open", errno);
}

AppendFile::~AppendFile() { close(fd_); }

void AppendFile::line(std::string_view text) {
  std::string bytes;
  // A killed process may have left a partial line, which must not swallow this one.
  char last = '\n';
  const off_t size = lseek(fd_, 0, SEEK_END);
  if (size > 0 && pread(fd_, &last, 1, size - 1) == 1 && last != '\n') bytes += '\n';
  record(bytes.append(text).append("\n"));
}

void AppendFile::record(std::string_view bytes) {
  const off_t size = lseek(fd_, 0, SEEK_END);
  size_t done = 0;
  if (const int number = write_all(fd_, bytes.data(), bytes.size(), done)) {
    const bool is_whole = size >= 0 && ftruncate(fd_, size) == 0;
    throw_unwritable(path_, is_whole ? "write" : "write of a whole record", number);
  }
}

MappedFile::MappedFile(const std::string& path, ExitCode code) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) throw_unreadable(code, path, error_text(errno));
  require_kind(info, Pipes::refused, path, code);
  // O_NONBLOCK: opening a pipe without a writer would block forever, should there be one now.
  Descriptor descriptor{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (descriptor.fd < 0 || fstat(descriptor.fd, &info) != 0) throw_unreadable(code, path, error_text(errno));
  require_kind(info, Pipes::refused, path, code);
  if (info.st_size == 0) return;
  process_memory::before_mapping();
  void* map = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, descriptor.fd, 0);
  if (map == MAP_FAILED) throw_unreadable(code, path, error_text(errno));
  data_ = static_cast<const std::byte*>(map);
  size_ = static_cast<size_t>(info.st_size);
  map_faults::watch(data_, info, path);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  map_faults::forget(data_);
  munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace gpt
