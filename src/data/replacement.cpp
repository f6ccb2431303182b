#include "gpt/data/replacement.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/lock.h"
#include "gpt/data/metadata.h"

namespace gpt::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = "/.gpt-prepare-unfinished";
constexpr const char* kFinished = "/.gpt-prepare-finished";

// The metadata come last: while they are here, they tell what the new files are.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name != kMetadataFile; });
  return names;
}

void put_in_place(const std::string& folder) {
  const std::string finished = folder + kFinished;
  const std::vector<std::string> names = files_in(finished);
  std::error_code ignored;
  // Old metadata do not describe new files that come without.
  if (!names.empty() && names.back() != kMetadataFile) fs::remove(folder + "/" + kMetadataFile, ignored);
  for (const std::string& name : names) move_file(finished + "/" + name, folder + "/" + name);
  fs::remove_all(finished, ignored);
}

}  // namespace

Replacement::Replacement(std::string folder) : folder_(std::move(folder)), new_files_(folder_ + kUnfinished) {
  if (exists(folder_ + kFinished)) put_in_place(folder_);
  std::error_code ignored;
  fs::remove_all(new_files_, ignored);
  create_folders(new_files_);
}

Replacement::~Replacement() {
  std::error_code ignored;
  fs::remove_all(new_files_, ignored);
}

void Replacement::commit() {
  for (const std::string& name : files_in(new_files_)) {
    const std::string target = folder_ + "/" + name;
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(target, ignored))) {
      throw Error(ExitCode::disk, fmt::format("cannot write {}: a folder has this name; move it away", target));
    }
  }
  const std::string finished = folder_ + kFinished;
  try {
    move_file(new_files_, finished);
  } catch (const Error&) {
    std::error_code ignored;
    fs::rename(finished, new_files_, ignored);  // where only making it durable failed
    throw;
  }
  put_in_place(folder_);
}

void finish_replacement(const std::string& folder) {
  if (!exists(folder + kFinished)) return;
  try {
    const FolderLock lock(folder, ExitCode::data, "bin");
    if (exists(folder + kFinished)) put_in_place(folder);
  } catch (const Error& error) {
    throw Error(ExitCode::data,
                fmt::format("{}: the files that gpt-prepare was replacing are not all in their places: {}", folder,
                            error.what()));
  }
}

void remove_replacement(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {kUnfinished, kFinished}) fs::remove_all(folder + name, ignored);
}

}  // namespace gpt::data
