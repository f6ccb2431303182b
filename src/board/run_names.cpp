#include "gpt/board/run_names.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "gpt/config/run_files.h"
#include "gpt/core/file.h"

namespace gpt::board {
namespace {

namespace fs = std::filesystem;

bool holds(const std::string& folder, const char* name) {
  std::error_code ignored;
  return fs::exists(folder + "/" + name, ignored);
}

bool is_run(const std::string& folder) { return holds(folder, kMetricsFile) || holds(folder, kStatusFile); }

}  // namespace

std::vector<std::string> run_folders(const std::vector<std::string>& named) {
  std::vector<std::string> folders;
  for (const std::string& folder : named) {
    if (is_run(folder) || holds(folder, ".lock")) {
      folders.push_back(folder);
      continue;
    }
    std::error_code ignored;
    for (const std::string& name : names_in(folder, ignored)) {
      const std::string within = folder + "/" + name;
      if (name != kSetAside && is_run(within)) folders.push_back(within);
    }
  }
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  return folders;
}

const std::string& RunNames::name_of(const std::string& folder) {
  if (const auto known = names_.find(folder); known != names_.end()) return known->second;
  std::error_code ignored;
  const fs::path path = fs::absolute(folder, ignored).lexically_normal();
  fs::path name = path.filename();
  for (fs::path above = path.parent_path(); taken_.contains(name.string()) && above.has_filename();
       above = above.parent_path())
    name = above.filename() / name;
  taken_.insert(name.string());
  return names_[folder] = name.string();
}

}  // namespace gpt::board
