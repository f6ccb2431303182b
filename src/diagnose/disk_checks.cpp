#include "gpt/diagnose/disk_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/core/format.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

struct RemovedAtEnd {
  fs::path path;
  ~RemovedAtEnd() {
    std::error_code ignored;
    fs::remove(path, ignored);
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
      fmt::format("{} writes {}/s: a checkpoint of {} takes {} s", folder, format_bytes(bytes_per_second),
                  format_bytes(checkpoint_bytes), format_number(checkpoint_bytes / bytes_per_second));
  if (bytes_per_second < kSlow) {
    return warned("disk speed", detail, "set output_dir on a local disk, or raise training.checkpoint_interval");
  }
  return passed("disk speed", detail);
}

Check check_disk_space(const std::string& folder, double free_bytes, double checkpoint_bytes, int64_t kept) {
  // One more than is kept: a checkpoint is written beside the one it replaces.
  const double needed = checkpoint_bytes * static_cast<double>(kept + 1);
  const std::string detail =
      fmt::format("checkpoints need {}, {} are free in {}", format_bytes(needed), format_bytes(free_bytes), folder);
  if (needed > free_bytes) {
    return failed("disk space", detail, "free some space, lower training.keep_last, or choose another output_dir");
  }
  return passed("disk space", detail);
}

}  // namespace gpt
