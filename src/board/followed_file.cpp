#include "gpt/board/followed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"

namespace gpt::board {
namespace {

constexpr size_t kBlock = 1 << 20, kRemembered = 64;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return fd_; }

 private:
  int fd_;
};

std::optional<FileMark> mark_in(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  return FileMark{.device = status.st_dev,
                  .number = status.st_ino,
                  .size = static_cast<uint64_t>(status.st_size),
                  .changed_ns = int64_t{1'000'000'000} * status.st_mtim.tv_sec + status.st_mtim.tv_nsec};
}

std::optional<FileMark> mark_of_open(int descriptor) {
  struct stat status{};
  return fstat(descriptor, &status) == 0 ? mark_in(status) : std::nullopt;
}

size_t read_at(int descriptor, uint64_t offset, char* bytes, size_t size) {
  const ssize_t count = pread(descriptor, bytes, size, static_cast<off_t>(offset));
  return static_cast<size_t>(std::max<ssize_t>(count, 0));
}

}  // namespace

std::optional<FileMark> mark_of(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? mark_in(status) : std::nullopt;
}

bool FollowedLines::goes_on(int descriptor, const FileMark& now) const {
  if (!seen_ || !now.is_same_file(*seen_) || now.size < read_) return false;
  char bytes[kRemembered];
  const size_t count = read_at(descriptor, read_ - before_.size(), bytes, before_.size());
  return std::string_view(bytes, count) == before_;
}

void FollowedLines::begin(const FileMark& now) {
  read_ = now.size > most_bytes_ ? now.size - most_bytes_ : 0;
  is_within_ = read_ > 0;
  before_.clear();
}

bool FollowedLines::look(const std::function<void()>& anew, const std::function<void(std::string_view line)>& take) {
  if (seen_ && mark_of(path_) == seen_) return false;
  const OpenFile file(path_);
  const std::optional<FileMark> now =
      file.descriptor() >= 0 ? mark_of_open(file.descriptor()) : std::optional<FileMark>();
  if (!now) {
    const bool was_there = seen_.has_value();
    seen_.reset();
    if (was_there) anew();
    return was_there;
  }
  bool has_called = false;
  if (!goes_on(file.descriptor(), *now)) {
    has_called = seen_.has_value();
    if (has_called) anew();
    begin(*now);
  }
  seen_ = now;
  static thread_local std::vector<char> block(kBlock);
  for (;;) {
    const size_t count = read_at(file.descriptor(), read_, block.data(), block.size());
    std::string_view rest(block.data(), count);
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      if (!is_within_) take(rest.substr(0, end)), has_called = true;
      is_within_ = false;
    }
    // A line longer than a block is left out.
    const size_t used = rest.size() == block.size() ? count : count - rest.size();
    if (used == count && count > 0 && !rest.empty()) is_within_ = true;
    if (used == 0) return has_called;
    read_ += used;
    before_.assign(block.data() + used - std::min(used, kRemembered), std::min(used, kRemembered));
  }
}

std::optional<std::string> FollowedText::look() {
  const std::optional<FileMark> now = mark_of(path_);
  if (was_seen_ && now == seen_) return std::nullopt;
  const bool was_there = seen_.has_value() || !was_seen_;
  seen_ = now, was_seen_ = true;
  if (!now || now->size > most_bytes_) return was_there ? std::optional<std::string>("") : std::nullopt;
  try {
    return read_file(path_, ExitCode::disk, SizeLimit{"such a file", most_bytes_});
  } catch (const Error&) {  // it has just gone
    was_seen_ = false;
    return std::nullopt;
  }
}

}  // namespace gpt::board
