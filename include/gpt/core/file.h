// The only code that writes, fsyncs, locks and maps files. Errors name file, operation and errno's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "gpt/core/error.h"

namespace gpt {

// What a file may have, named for the message: {"a tokenizer", 64 << 20}.
struct SizeLimit {
  const char* what;
  uint64_t bytes;
};

// The whole file; `code`: the kind of error when it cannot be read. Kind and size are checked before anything is. Waits for a pipe,
// where a stop signal ends the waiting: gpt::Error(interrupted).
std::string read_file(const std::string& path, ExitCode code, std::optional<SizeLimit> limit = {});
void create_folders(const std::string& path);                    // as mkdir -p; throws gpt::Error(disk)
void move_file(const std::string& from, const std::string& to);  // or a folder: rename, fsync; throws gpt::Error(disk)
std::vector<std::string> names_in(const std::string& folder);  // sorted; none without a folder; throws gpt::Error(disk)
std::vector<std::string> names_in(const std::string& folder, std::error_code& error);  // those before the error
uint64_t free_disk_space(const std::string& folder);                                   // bytes available to this user

// Whether a file survives a power failure. To be sure of it takes as long as the disk does, up to seconds.
enum class Durability { synced, unsynced };

// A file that appears under its name only when complete: O_EXCL beside it, fsync, rename, fsync of the folder. While it is
// unfinished its writer holds a lock on it, so that nobody takes it for one that a killed writer left.
class AtomicFile {
 public:
  // `expected_bytes`: the size that it will have, for the message of a full disk; 0 = not known.
  explicit AtomicFile(std::string path, uint64_t expected_bytes = 0);
  ~AtomicFile();  // without commit(): unlinks the unfinished file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void overwrite(uint64_t offset, std::string_view bytes);    // within what was written
  void truncate(uint64_t size);                               // writing continues there
  size_t read(uint64_t offset, char* to, size_t size) const;  // of what was written; less than `size` only at its end
  uint64_t size() const { return size_; }
  const std::string& unfinished_path() const { return temporary_; }  // where it is until commit()
  // Throws gpt::Error(disk); the attempt is then abandoned and the old file untouched.
  void commit(Durability durability = Durability::synced);

 private:
  void abandon() noexcept;
  [[noreturn]] void fail(const char* operation, int number);

  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t expected_ = 0, size_ = 0;
};

// Appends whole lines or records, flushed to the kernel at once. Throws gpt::Error(disk), leaving no part of one.
class AppendFile {
 public:
  explicit AppendFile(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  void line(std::string_view text);     // on a line of its own, even if a killed process left a partial one
  void record(std::string_view bytes);  // as they are

 private:
  std::string path_;
  int fd_ = -1;
};

// A read-only map of a whole regular file; an empty file is an empty span.
class MappedFile {
 public:
  MappedFile(const std::string& path, ExitCode code);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// An exclusive flock on a file of its own for the life of the object. The holder's PID is in the file, which is
// removed with the lock; one that a killed process left behind is taken over.
// On a file system without locks the file itself keeps others out: it names process, host and time, and is taken over where
// that process is known to be dead. Otherwise a person has to remove it, which the holder's name then says.
class FileLock {
 public:
  // While another process holds it, `busy` is called with "process PID ..."; it either throws or returns to try again.
  FileLock(std::string path, const std::function<void(const std::string& holder)>& busy);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  // The file of that name is the locked one: nobody has removed or replaced it, or a folder on its path. True also where the file
  // system cannot tell.
  bool is_at(const std::string& path) const;
  bool is_in_place() const { return is_at(path_); }

 private:
  bool try_lock(const std::function<void(const std::string& holder)>& busy);
  bool try_claim(bool is_new, const std::string& holder, const std::function<void(const std::string& holder)>& busy);
  void take(int fd, std::string_view holder);  // writes into the file who it is

  std::string path_;
  int fd_ = -1;
};

// FOLDER/.lock, for the one process that writes there. Throws gpt::Error(code) with the PID of another process that
// does, and the `setting` that names the folder. Taking it removes the unfinished files that killed writers left there and in
// its folder of samples, each of which may be as large as a checkpoint.
class FolderLock {
 public:
  FolderLock(const std::string& folder, ExitCode code, const std::string& setting);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // What is written to the folder's path goes into the locked folder. Otherwise somebody has moved or removed that one, put
  // something in its place, or removed its lock.
  bool is_in_place() const { return lock_.is_in_place(); }

  // Where the locked folder is reached through its descriptor, wherever it is now: while nobody else has locked it and it still
  // exists. `now`: its path, for people.
  struct Locked {
    std::string path, now;
  };
  std::optional<Locked> locked() const;

 private:
  FileLock lock_;
  int fd_;  // of the folder; -1: it could not be opened, and locked() finds nothing
};

}  // namespace gpt
