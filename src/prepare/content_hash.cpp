#include "content_hash.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/core/map_faults.h"
#include "gpt/prepare/prepare_report.h"

namespace gpt::prepare {
namespace {

// What the file system says of all files. A write changes it, but a second one within a tick of the clock that times are
// taken from may not: files that were written just now are not `settled`.
struct Stamp {
  std::string key;
  bool settled = true;
};

Stamp stamp_of(const std::vector<Source>& sources) {
  constexpr int64_t kSecondsToSettle = 2;
  const int64_t now = std::time(nullptr);
  Stamp stamp;
  Hash128 hash;
  for (const Source& source : sources) {
    struct stat info{};
    if (stat(source.path.c_str(), &info) != 0) stamp.settled = false;
    hash.update(fmt::format("{} {} {} {} {} {} {} {}\n", source.path, info.st_size, info.st_mtim.tv_sec,
                            info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec, info.st_ino, info.st_dev));
    stamp.settled = stamp.settled && now - info.st_mtim.tv_sec > kSecondsToSettle;
  }
  stamp.key = hash.hex();
  return stamp;
}

// Stamps and the hashes of contents, the latest last: a line for each, after one with a hash of all of them. It is small
// enough to be read and written whole; of two processes that write at once one loses its line, and hashes once more.
class HashIndex {
 public:
  explicit HashIndex(std::string path) : path_(std::move(path)) {
    try {
      const std::string text =
          read_file(path_, ExitCode::data, SizeLimit{"an index of hashes", kDigits + 1 + kMost * kLine});
      if (text.size() <= kDigits || !text.starts_with(hash128(std::string_view(text).substr(kDigits + 1)))) return;
      lines_ = text.substr(kDigits + 1);
      if (lines_.size() % kLine != 0) lines_.clear();
    } catch (const Error&) {}
  }

  std::optional<std::string> find(const std::string& key) const {
    for (size_t at = 0; at < lines_.size(); at += kLine) {
      if (lines_.compare(at, kDigits, key) == 0) return lines_.substr(at + kDigits + 1, kDigits);
    }
    return std::nullopt;
  }

  void add(const std::string& key, const std::string& hash) {
    lines_ += fmt::format("{} {}\n", key, hash);
    if (lines_.size() > kMost * kLine) lines_.erase(0, lines_.size() - kMost * kLine);
    try {
      create_folders(std::filesystem::path(path_).parent_path());
      AtomicFile file(path_);
      file.write(fmt::format("{}\n{}", hash128(lines_), lines_));
      file.commit();
    } catch (const Error&) {}
  }

 private:
  static constexpr size_t kDigits = 32, kLine = 2 * kDigits + 2, kMost = 1000;
  const std::string path_;
  std::string lines_;
};

// False where a file that was found is passed over, as prepare() does.
bool hash_file(const Source& source, Hash128& hash, ReadingReport& report, uint64_t& done) {
  constexpr size_t kPiece = 1 << 22;  // a fraction of a second on any disk
  try {
    const MappedFile file(source.path, ExitCode::data);
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    hash.update(
        fmt::format("{} {} {}\n", static_cast<int>(source.kind), static_cast<int>(source.packing), bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      report.reached(done);
      const std::string_view piece = bytes.substr(at, kPiece);
      hash.update(piece);
      done += piece.size();
    }
    map_faults::require_intact();
    return true;
  } catch (const Error& error) {
    if (!source.found || error.code() != ExitCode::data) throw;
    return false;
  }
}

}  // namespace

std::string content_hash(const std::string& input, const std::vector<Source>& sources, const std::string& index) {
  uint64_t total = 0;
  for (const Source& source : sources) {
    total += static_cast<uint64_t>(source.bytes);
    if (!source.stream) continue;
    throw Error(ExitCode::data,
                fmt::format("data.text: {} can be read only once, but a run that is resumed reads its text again; "
                            "prepare it with gpt-prepare, and name the result in data.bin",
                            source.name));
  }
  const Stamp stamp = stamp_of(sources);
  if (const auto known = HashIndex(index).find(stamp.key)) return *known;

  ReadingReport report("reading", input, total);
  Hash128 hash;
  uint64_t done = 0;
  bool whole = true;
  for (const Source& source : sources) whole = hash_file(source, hash, report, done) && whole;
  if (whole && stamp.settled && stamp_of(sources).key == stamp.key) HashIndex(index).add(stamp.key, hash.hex());
  return hash.hex();
}

}  // namespace gpt::prepare
