#include "gpt/checkpoint/file_names.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace gpt {
namespace {

constexpr std::string_view kNumbered = "ckpt_step_", kEnding = ".pt";

}  // namespace

std::string numbered_checkpoint(int64_t step) { return fmt::format("{}{:08}{}", kNumbered, step, kEnding); }

bool is_numbered(const std::string& name) { return name.starts_with(kNumbered) && name.ends_with(kEnding); }

std::optional<int64_t> numbered_step(const std::string& name) {
  int64_t step = 0;
  if (!is_numbered(name)) return std::nullopt;
  const char *const begin = name.data() + kNumbered.size(), *const end = name.data() + name.size() - kEnding.size();
  const auto [rest, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

std::string checkpoint_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path + "/" + kLastCheckpoint : path;
}

bool names_checkpoint(const std::string& resume_from) { return resume_from != "auto" && resume_from != "none"; }

}  // namespace gpt
