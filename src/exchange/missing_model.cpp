#include "gpt/exchange/missing_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "gpt/checkpoint/file_names.h"
#include "gpt/config/output_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/exchange/model_card.h"

namespace gpt::exchange {
namespace {

namespace fs = std::filesystem;

// Models that many programs know by these names alone, and who has them on the hub.
constexpr std::array<std::string_view, 4> kGpt2 = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};

bool is_part_of_hub_name(std::string_view part) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !part.empty() && part != "." && part != ".." && part != "~" &&
         std::all_of(part.begin(), part.end(), is_allowed);
}

// "org/name", as far as that cannot be a path: its first folder is not here, and it does not name a file.
std::string name_on_hub(const std::string& path) {
  if (std::find(kGpt2.begin(), kGpt2.end(), path) != kGpt2.end()) return "openai-community/" + path;
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return "";
  const std::string owner = path.substr(0, slash), name = path.substr(slash + 1);
  const bool is_name = is_part_of_hub_name(owner) && is_part_of_hub_name(name) && owner != config::kRunsFolder;
  const bool is_file = name.ends_with(".pt") || name.ends_with(".safetensors") || name.ends_with(".gguf");
  std::error_code ignored;
  return is_name && !is_file && !fs::exists(owner, ignored) ? path : "";
}

}  // namespace

bool is_unfinished_export(const std::string& folder) {
  constexpr SizeLimit kCardSize{"a model card", 1 << 20};
  std::error_code ignored;
  const std::string card = folder + "/README.md";
  if (fs::exists(folder + "/config.json", ignored) || !fs::is_regular_file(card, ignored)) return false;
  if (fs::file_size(card, ignored) > kCardSize.bytes || !is_model_card(read_file(card, ExitCode::config, kCardSize)))
    return false;
  return checkpoint::newest_first(folder, names_in(folder, ignored)).empty();
}

std::string why_missing(const std::string& path) {
  std::error_code ignored;
  if (is_unfinished_export(path))
    return fmt::format(
        "{}: an export into this folder was not finished, so it is no model; write it again with gpt-export", path);
  if (fs::exists(path, ignored)) return "";
  if (path == "resume")
    return "'resume' is no model: a run goes on by itself where its folder has a checkpoint; leave init_from out, and "
           "name the folder with --output_dir";
  if (path == "scratch") return "'scratch' is no model: leave init_from out, and the weights are drawn at random";
  if (const std::string hub = name_on_hub(path); !hub.empty())
    return fmt::format(
        "{0}: there is no such folder here, and models are not downloaded: `hf download {1} --local-dir downloads/{2}` "
        "does that (pip install huggingface_hub); then name downloads/{2}",
        path, hub, fs::path(hub).filename().string());
  return "";
}

}  // namespace gpt::exchange
