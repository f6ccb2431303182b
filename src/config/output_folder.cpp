#include "gpt/config/output_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>
#include <string_view>

#include "gpt/config/automatic.h"
#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "limits.h"

namespace gpt::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigEndings[] = {".yaml", ".yml"};
constexpr std::string_view kDataEndings[] = {".gz",   ".zst",  ".txt", ".jsonl", ".ndjson",
                                             ".json", ".warc", ".wet", ".bin"};
// What gpt-prepare and others call a file, whatever it holds.
constexpr std::string_view kCommonNames[] = {"config", "train", "tokens_bpe", "tokens", "data", "input"};

bool is_common(const std::string& name) {
  return std::find(std::begin(kCommonNames), std::end(kCommonNames), name) != std::end(kCommonNames);
}

// Fit for the name of a folder; empty where nothing is left.
std::string as_folder_name(std::string name) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-.+=,@").find(static_cast<char>(c)) != std::string_view::npos ||
           c >= 0x80;
  };
  for (char& c : name) {
    if (!is_plain(static_cast<unsigned char>(c))) c = '_';
  }
  if (name.starts_with('.')) name[0] = '_';  // a hidden folder would not be found
  return name.find_first_not_of("_.") == std::string::npos ? "" : name;
}

std::string without_ending(const std::string& name, std::span<const std::string_view> endings) {
  for (const std::string_view ending : endings) {
    if (name.size() > ending.size() && name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

std::string last_part(const fs::path& path) { return (path.has_filename() ? path : path.parent_path()).filename(); }

// The name of a file without its ending, or that of a folder above it where that says more.
std::string name_of(const fs::path& path, const std::string& without_ending) {
  const std::string name = as_folder_name(without_ending);
  if (!name.empty() && !is_common(name)) return name;
  const fs::path folder = (path.has_filename() ? path : path.parent_path()).parent_path();
  const std::string above = folder.empty() || folder == path ? "" : name_of(folder, last_part(folder));
  return above.empty() ? name : above;
}

std::string name_of_config(const std::string& file) {
  const fs::path path = fs::path(file).lexically_normal();
  return name_of(path, without_ending(last_part(path), kConfigEndings));
}

std::string name_of_data(const std::string& file) {
  const fs::path path = fs::path(file).lexically_normal();
  std::string name = last_part(path), shorter;
  while ((shorter = without_ending(name, kDataEndings)) != name) name = shorter;  // .jsonl.zst
  return name_of(path, name);
}

// As name_of_config() and name_of_data() once were.
std::string former_name_of(const std::string& file) {
  const std::string name = last_part(fs::path(file).lexically_normal());
  std::string former = as_folder_name(name.substr(0, name.find('.', 1)));
  std::replace_if(
      former.begin(), former.end(), [](char c) { return std::string_view("+=,@").find(c) != std::string_view::npos; },
      '_');
  return former;
}

std::string in_runs_folder(const std::string& name) {
  return fmt::format("{}/{}", kRunsFolder, name.empty() ? "run" : name);
}

}  // namespace

std::string output_folder(const DataConfig& data, const std::string& config_path) {
  std::string name = name_of_config(config_path);
  if (name.empty()) name = name_of_data(data.text);
  if (name.empty()) name = name_of_data(data.bin);
  if (name.empty() && data.dataset == DatasetName::shakespeare) name = "shakespeare";
  return in_runs_folder(name);
}

std::vector<std::string> former_output_folders(const DataConfig& data, const std::string& config_path) {
  std::string name = former_name_of(config_path);
  if (name.empty()) name = former_name_of(data.text);
  if (name.empty()) name = former_name_of(data.bin);
  const std::string folder = output_folder(data, config_path);
  std::vector<std::string> folders;
  for (const std::string& former : {in_runs_folder(name), in_runs_folder("")}) {
    if (former != folder && (folders.empty() || former != folders.back())) folders.push_back(former);
  }
  return folders;
}

std::optional<Config> left_configuration(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kEffectiveConfig);
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  try {
    Config config;
    read_yaml(read_file(path, ExitCode::config, SizeLimit{"a configuration", kMostBytes}), path, config);
    return config;
  } catch (const Error&) { return std::nullopt; }
}

std::vector<Change> changes_of_run(const Config& saved, Config now, const Origins& origins) {
  keep_choices(now, origins, saved);
  if (!now.model.vocab_size) now.model.vocab_size = saved.model.vocab_size;
  now.output_dir = saved.output_dir;
  return difference(saved, now);
}

std::string folder_of_run(const Config& config, const Origins& origins, const std::string& config_path) {
  const std::string folder = output_folder(config.data, config_path);
  std::error_code ignored;
  if (fs::exists(fs::path(folder) / kEffectiveConfig, ignored)) return folder;
  for (const std::string& former : former_output_folders(config.data, config_path)) {
    const std::optional<Config> saved = left_configuration(former);
    if (saved && changes_of_run(*saved, config, origins).empty()) return former;
  }
  return folder;
}

}  // namespace gpt::config
