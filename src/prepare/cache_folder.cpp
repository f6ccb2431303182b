#include "cache_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/lock.h"
#include "gpt/core/log.h"
#include "gpt/data/metadata.h"
#include "gpt/data/replacement.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

std::string metadata_path(const std::string& entry) { return entry + "/" + data::kMetadataFile; }

bool is_hash(std::string_view name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A lock on the metadata of a finished entry: shared by those who use it, exclusive for the one who removes it.
class EntryLock {
 public:
  EntryLock(const std::string& entry, int operation) : fd_(open(metadata_path(entry).c_str(), O_RDONLY | O_CLOEXEC)) {
    const bool refused = fd_ >= 0 && flock(fd_, operation | LOCK_NB) != 0;
    is_busy_ = refused && (errno == EWOULDBLOCK || operation == LOCK_EX);  // without locks nobody knows who uses it
  }
  ~EntryLock() {
    if (fd_ >= 0) close(fd_);
  }
  EntryLock(const EntryLock&) = delete;
  EntryLock& operator=(const EntryLock&) = delete;

  bool is_busy() const { return is_busy_; }
  // The entry was removed between open() and flock() where the file has no name any more.
  bool is_there() const {
    struct stat info{};
    return fd_ >= 0 && !is_busy_ && fstat(fd_, &info) == 0 && info.st_nlink > 0;
  }
  // In a cache of somebody else's it fails, and does not matter. The kernel's own "now" would be that of its last tick.
  void touch() const {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const timespec times[] = {now, now};
    futimens(fd_, times);
  }

 private:
  const int fd_;
  bool is_busy_ = false;
};

// The metadata goes first: what is left of an entry without it is prepared anew.
void remove_files(const std::string& entry) {
  std::error_code ignored;
  fs::remove(metadata_path(entry), ignored);
  for (const std::string& name : names_in(entry, ignored)) {
    const bool unfinished = name.starts_with('.') && name.find(".tmp-") != std::string::npos;
    if (unfinished || name == data::kBinFile || name == data::kMarksFile || name == data::kTokenizerFile ||
        name == ".lock")
      fs::remove(entry + "/" + name, ignored);
  }
  data::remove_replacement(entry);
  fs::remove(entry, ignored);  // where it is empty
}

// False where another process prepares or uses it, or the cache is somebody else's.
bool remove_entry(const std::string& entry) {
  try {
    const FileLock preparing(entry + ".lock", [](const std::string& holder) { throw Error(ExitCode::disk, holder); });
    const EntryLock lock(entry, LOCK_EX);
    if (lock.is_busy()) return false;
    remove_files(entry);
    return true;
  } catch (const Error&) { return false; }
}

std::string text_of(const std::string& entry) {
  try {
    const data::Metadata metadata = data::read_metadata(metadata_path(entry));
    if (metadata.sources.empty()) return "";
    const size_t more = metadata.sources.size() - 1;
    return more == 0 ? metadata.sources[0].path : fmt::format("{} and {} more", metadata.sources[0].path, more);
  } catch (const Error&) { return ""; }
}

CacheEntry describe(const std::string& path) {
  CacheEntry entry{.path = path};
  std::error_code ended;
  // With what is being prepared, in a folder that may vanish at any time.
  for (fs::recursive_directory_iterator file(path, ended), end; file != end; file.increment(ended)) {
    std::error_code is_no_file;
    const auto bytes = file->file_size(is_no_file);
    if (!is_no_file) entry.bytes += static_cast<int64_t>(bytes);
  }
  struct stat info{};
  if (stat(metadata_path(path).c_str(), &info) == 0 || stat(path.c_str(), &info) == 0) {
    entry.last_used = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  }
  return entry;
}

// Without their texts, which take reading.
std::vector<CacheEntry> find_entries(const std::string& root) {
  std::vector<CacheEntry> entries;
  std::error_code ignored;
  for (const std::string& name : names_in(root, ignored)) {
    const std::string path = root + "/" + name;
    if (is_hash(name) && fs::is_directory(fs::symlink_status(path, ignored))) entries.push_back(describe(path));
  }
  const auto later = [](const CacheEntry& a, const CacheEntry& b) {
    return a.last_used != b.last_used ? a.last_used > b.last_used : a.path < b.path;
  };
  std::sort(entries.begin(), entries.end(), later);
  return entries;
}

bool can_be_entry(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type != fs::file_type::directory) return type == fs::file_type::not_found;
  for (const std::string& name : names_in(path, error)) {
    std::error_code gone;
    const fs::file_status status = fs::symlink_status(path + "/" + name, gone);
    if (!name.starts_with('.') && fs::exists(status) && !fs::is_regular_file(status)) return false;
  }
  return !error;
}

void move_away(const std::string& path) {
  std::error_code error;
  std::string target;
  for (int number = 1; number == 1 || fs::exists(fs::symlink_status(target, error)); ++number)
    target = fmt::format("{}.in-the-way-{}", path, number);
  fs::rename(path, target, error);
  if (!error) log::warn(fmt::format("{} was in the place of prepared text: it is now {}", path, target));
}

}  // namespace

void clear_cache_place(const std::string& path) {
  std::error_code ignored;
  if (!can_be_entry(path)) move_away(path);
  const std::string lock = path + ".lock";
  const fs::file_status status = fs::symlink_status(lock, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) move_away(lock);
}

std::shared_ptr<const void> use_cache_entry(const std::string& path) {
  auto lock = std::make_shared<const EntryLock>(path, LOCK_SH);
  if (!lock->is_there()) return nullptr;
  lock->touch();
  return lock;
}

std::vector<CacheEntry> cache_entries(const std::string& root) {
  std::vector<CacheEntry> entries = find_entries(root);
  for (CacheEntry& entry : entries) entry.text = text_of(entry.path);
  return entries;
}

RemovedEntries remove_cache_entries(const std::string& root, int64_t limit) {
  const std::vector<CacheEntry> entries = find_entries(root);
  int64_t total = 0;
  for (const CacheEntry& entry : entries) total += entry.bytes;
  RemovedEntries removed;
  for (auto entry = entries.rbegin(); entry != entries.rend() && total > limit; ++entry) {
    if (!remove_entry(entry->path)) {
      ++removed.kept;
      continue;
    }
    total -= entry->bytes;
    removed.bytes += entry->bytes;
    ++removed.entries;
  }
  return removed;
}

}  // namespace gpt::prepare
