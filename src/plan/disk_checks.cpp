#include "gpt/plan/disk_checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"

namespace gpt::plan {
namespace {

namespace fs = std::filesystem;

struct RemovedAtEnd {
  fs::path path;
  ~RemovedAtEnd() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

std::string nearest_folder(const std::string& path) {
  std::error_code ignored;
  fs::path folder = fs::absolute(path, ignored);
  while (!fs::is_directory(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder.string();
}

double measure_write_speed(const std::string& folder) {
  constexpr size_t kPiece = size_t{1} << 20, kPieces = 32;
  const RemovedAtEnd file{fs::path(folder) / fmt::format(".gpt-diagnose-{}", getpid())};
  const std::vector<std::byte> piece(kPiece, std::byte{0x5a});
  const auto start = std::chrono::steady_clock::now();
  AtomicFile out(file.path.string());
  for (size_t i = 0; i < kPieces; ++i) out.write(piece);
  out.commit();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<double>(kPiece * kPieces) / elapsed.count();
}

Check check_disk_speed(const std::string& folder, double bytes_per_second, double checkpoint_bytes) {
  constexpr double kSlow = 50e6;
  const std::string detail =
      fmt::format("{} writes {}/s: a checkpoint of {} takes {}", folder, format_bytes(bytes_per_second),
                  format_bytes(checkpoint_bytes), format_short_duration(checkpoint_bytes / bytes_per_second));
  if (bytes_per_second < kSlow) {
    return warned("disk speed", detail, "set output_dir on a local disk, or raise training.checkpoint_interval");
  }
  return passed("disk speed", detail);
}

std::string mapped_file(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string permissions, offset, device, inode, path;
    words >> std::hex >> begin >> dash >> end >> permissions >> offset >> device >> inode;
    std::getline(words >> std::ws, path);
    if (wanted >= begin && wanted < end) return path.starts_with('/') ? path : "";
  }
  return "";
}

std::optional<double> measure_read_speed(const std::string& path) {
  using Clock = std::chrono::steady_clock;
  constexpr off_t kPiece = off_t{1} << 20, kMostPieces = 64;
  constexpr size_t kPage = 4096;
  constexpr std::chrono::duration<double> kMost{0.5};
  std::error_code fault;
  const auto pieces = static_cast<off_t>(fs::file_size(path, fault)) / kPiece;
  if (fault) throw Error(ExitCode::data, fmt::format("{} cannot be read: {}", path, fault.message()));
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)};
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(kPage, kPiece), std::free);
  if (file.fd < 0 || !memory || pieces == 0) return std::nullopt;
  const off_t count = std::min(pieces, kMostPieces);
  off_t read_pieces = 0;
  const auto start = Clock::now();
  while (read_pieces < count && Clock::now() - start < kMost) {
    const off_t place = read_pieces * pieces / count * kPiece;
    if (pread(file.fd, memory.get(), kPiece, place) != kPiece) return std::nullopt;
    ++read_pieces;
  }
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  return static_cast<double>(read_pieces * kPiece) / elapsed.count();
}

std::optional<ReadSpeed> measure_read_speed(const data::Corpus& corpus) {
  std::vector<data::Tokens> all = corpus.sources;
  all.push_back(corpus.train);
  std::set<std::string> files;
  for (const data::Tokens& tokens : all) files.insert(mapped_file(tokens.data()));
  files.erase("");
  std::optional<ReadSpeed> slowest;
  for (const std::string& file : files) {
    const std::optional<double> speed = measure_read_speed(file);
    if (speed && (!slowest || *speed < slowest->bytes_per_second)) slowest = {file, *speed};
  }
  return slowest;
}

Check check_data_speed(const std::string& path, double bytes_per_second, double needed) {
  const std::string detail = fmt::format("{} is read at {}/s past the page cache; training takes {}/s", path,
                                         format_bytes(bytes_per_second), format_bytes(needed));
  if (2 * needed > bytes_per_second)
    return warned("data speed", detail, "copy the data to a local disk, or to memory where it fits");
  return passed("data speed", detail);
}

Check check_disk_space(const std::string& folder, double free_bytes, double checkpoint_bytes, int64_t kept,
                       int64_t keep_last) {
  // One more than is kept: a checkpoint is written beside the one it replaces.
  const double needed = checkpoint_bytes * static_cast<double>(kept + keep_last + 1);
  const std::string detail =
      fmt::format("checkpoints need {}, and {} is free in {}", format_bytes(needed), format_bytes(free_bytes), folder);
  if (needed > free_bytes) {
    return failed("disk space", detail,
                  fmt::format("free some space, {}or choose another output_dir",
                              keep_last > 0 ? "lower training.keep_last, " : ""));
  }
  return passed("disk space", detail);
}

Checks check_disk(const std::string& output_dir, const TrainingConfig& training, double checkpoint_bytes,
                  bool has_validation) {
  const std::string folder = nearest_folder(output_dir);
  const CadenceConfig& cadence = training.cadence;
  const int64_t files =
      1 + has_validation + cadence.divergence.kept_checkpoints() + training.schedule.kept_checkpoints();
  return {check_disk_speed(folder, measure_write_speed(folder), checkpoint_bytes),
          check_disk_space(folder, static_cast<double>(free_disk_space(folder)), checkpoint_bytes, files,
                           cadence.keep_last)};
}

}  // namespace gpt::plan
