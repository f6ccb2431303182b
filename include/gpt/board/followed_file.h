// Files that another process writes, looked at again and again: what is new since the last look.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gpt::board {

// Which file has a name, and whether it has been written since. Times are as good as the file system's clock.
struct FileMark {
  uint64_t device = 0, number = 0, size = 0;
  int64_t changed_ns = 0;
  bool operator==(const FileMark&) const = default;
  bool is_same_file(const FileMark& other) const { return device == other.device && number == other.number; }
  double changed_at() const { return 1e-9 * static_cast<double>(changed_ns); }  // seconds since 1970
};
std::optional<FileMark> mark_of(const std::string& path);  // nothing where there is no regular file

// Lines that are appended. One that is not finished waits until it is. Another file under the name, a shorter one, or one in which what
// was read stands no more is read anew from its start.
class FollowedLines {
 public:
  // `most_bytes`: of a file that is there already only so much is read, from its end on; whole lines all the same.
  explicit FollowedLines(std::string path, uint64_t most_bytes = UINT64_MAX)
      : path_(std::move(path)), most_bytes_(most_bytes) {}

  // Calls anew() where what take() was given before is no more so, and take() with each new line, without its end. Whether it called any.
  // A file that cannot be read is as none.
  bool look(const std::function<void()>& anew, const std::function<void(std::string_view line)>& take);

 private:
  bool goes_on(int descriptor, const FileMark& now) const;
  void begin(const FileMark& now);

  std::string path_;
  uint64_t most_bytes_;
  std::optional<FileMark> seen_;
  uint64_t read_ = 0;       // bytes, up to the end of a line
  std::string before_;      // the last of those bytes
  bool is_within_ = false;  // of a line whose beginning was left out
};

// A small file that is replaced.
class FollowedText {
 public:
  explicit FollowedText(std::string path, uint64_t most_bytes) : path_(std::move(path)), most_bytes_(most_bytes) {}

  // The text of the file, where that may have changed; empty where there is no such file any more, or one that is too large.
  std::optional<std::string> look();
  void forget() { seen_.reset(), was_seen_ = false; }  // the next look finds it changed

 private:
  std::string path_;
  uint64_t most_bytes_;
  std::optional<FileMark> seen_;
  bool was_seen_ = false;
};

}  // namespace gpt::board
