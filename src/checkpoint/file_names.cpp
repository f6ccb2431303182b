#include "gpt/checkpoint/file_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

#include "gpt/core/file.h"

namespace gpt::checkpoint {
namespace {

constexpr std::string_view kNumbered = "ckpt_step_", kForRollback = "ckpt_rollback_", kStable = "ckpt_stable_",
                           kEnding = ".pt";

std::string with_step(std::string_view beginning, int64_t step) {
  return fmt::format("{}{:08}{}", beginning, step, kEnding);
}

bool is_between(const std::string& name, std::string_view beginning) {
  return name.starts_with(beginning) && name.ends_with(kEnding);
}

std::string_view beginning_of(const std::string& name) {
  for (const std::string_view beginning : {kNumbered, kForRollback, kStable})
    if (is_between(name, beginning)) return beginning;
  return {};
}

}  // namespace

std::string numbered_checkpoint(int64_t step) { return with_step(kNumbered, step); }
std::string rollback_checkpoint(int64_t step) { return with_step(kForRollback, step); }
std::string stable_checkpoint(int64_t step) { return with_step(kStable, step); }

bool is_numbered(const std::string& name) { return is_between(name, kNumbered); }
bool is_for_rollback(const std::string& name) { return is_between(name, kForRollback); }
bool is_stable(const std::string& name) { return is_between(name, kStable); }

std::optional<int64_t> step_in_name(const std::string& name) {
  int64_t step = 0;
  const std::string_view beginning = beginning_of(name);
  if (beginning.empty()) return std::nullopt;
  const char *const begin = name.data() + beginning.size(), *const end = name.data() + name.size() - kEnding.size();
  const auto [rest, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

std::vector<std::string> newest_first(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) != names.end()) found.push_back(name);
  };
  add(kLastCheckpoint);
  const auto first = std::ssize(found);
  for (const auto is_of_kind : {is_numbered, is_for_rollback, is_stable})
    std::copy_if(names.begin(), names.end(), std::back_inserter(found), is_of_kind);
  std::stable_sort(found.begin() + first, found.end(),
                   [](const auto& a, const auto& b) { return step_in_name(a) > step_in_name(b); });
  add(kBestCheckpoint);
  for (std::string& name : found) name.insert(0, folder + "/");
  return found;
}

std::string checkpoint_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const std::vector<std::string> found = newest_first(path, names_in(path, ignored));
  return found.empty() ? path + "/" + kLastCheckpoint : found.front();
}

std::string absolute_checkpoint(const std::string& path) {
  std::error_code ignored;
  const bool is_gone_folder = !std::filesystem::exists(path, ignored) && !path.ends_with(kEnding);
  const std::string file = is_gone_folder ? path + "/" + kLastCheckpoint : checkpoint_file(path);
  return std::filesystem::weakly_canonical(file, ignored).string();
}

bool names_checkpoint(const std::string& resume_from) { return resume_from != "auto" && resume_from != "none"; }

}  // namespace gpt::checkpoint
