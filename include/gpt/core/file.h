// The only code that writes, fsyncs, locks and maps files. Errors name file, operation and errno's text.
#pragma once

#include <atomic>
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
bool exists(const std::string& path);                            // false where nobody can tell
void create_folders(const std::string& path);                    // as mkdir -p; throws gpt::Error(disk)
void move_file(const std::string& from, const std::string& to);  // or a folder: rename, fsync; throws gpt::Error(disk)
// Gives a file a second name, in place of what has it: it takes no room. False where the file system does not, and nothing has changed.
bool link_file(const std::string& from, const std::string& to);
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
  void overwrite(uint64_t offset, std::string_view bytes);    // within its size; threads may at the same time
  void resize(uint64_t size);                                 // writing continues there; what is new is zeros
  size_t read(uint64_t offset, char* to, size_t size) const;  // what was written; less than `size` only at its end
  uint64_t size() const { return size_; }
  const std::string& unfinished_path() const { return temporary_; }  // where it is until commit()
  // Throws gpt::Error(disk); the attempt is then abandoned and the old file untouched.
  void commit(Durability durability = Durability::synced);

 private:
  void abandon() noexcept;
  [[noreturn]] void fail(const char* operation, int number);

  std::string path_, temporary_;
  int fd_ = -1;
  std::atomic<bool> is_abandoned_ = false;  // after an error
  uint64_t expected_ = 0, size_ = 0;
};

// Another process's part in such a file, which that one has begun and commits.
class JoinedFile {
 public:
  // `unfinished`: AtomicFile::unfinished_path(), as this process sees it. `path`: what it will be called, for messages.
  JoinedFile(std::string path, const std::string& unfinished);
  ~JoinedFile();
  JoinedFile(const JoinedFile&) = delete;
  JoinedFile& operator=(const JoinedFile&) = delete;
  void overwrite(uint64_t offset, std::string_view bytes);  // as AtomicFile's
  void sync();                                              // fsync

 private:
  [[noreturn]] void fail(const char* operation, int number) const;

  std::string path_;
  int fd_ = -1;
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

// Removes what killed writers left in the folder; what is still being written stays.
void sweep_unfinished_files(const std::string& folder);

// gpt::Error(disk) for the errno `number` of an operation on that file.
[[noreturn]] void throw_unwritable(const std::string& path, std::string_view operation, int number);

}  // namespace gpt
