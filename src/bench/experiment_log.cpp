#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gpt/bench/experiments.h"
#include "gpt/config/load.h"
#include "gpt/core/hash.h"
#include "gpt/core/version.h"

namespace gpt::bench {
namespace {

constexpr SizeLimit kLogSize{"a log of experiments", uint64_t{64} << 20};

}  // namespace

ExperimentLog::ExperimentLog(const std::string& folder, const Config& wanted, double seconds,
                             const std::string& processor) {
  const std::string belongs_to = fmt::format("{}\n{}\n{}\n{}", config::dump(wanted), seconds, commit_id(), processor);
  path_ = fmt::format("{}/experiments-{}.jsonl", folder, hash128(belongs_to).substr(0, 12));
  create_folders(folder);
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored)) {
    const std::string text = read_file(path_, ExitCode::disk, kLogSize);
    for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
      if (line.is_object() && line.contains("of") && line["of"].is_string() && line.contains("result"))
        known_[line["of"].get<std::string>()] = line["result"].dump();
    }
  }
  file_.emplace(path_);
}

std::optional<std::string> ExperimentLog::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void ExperimentLog::add(const std::string& key, const std::string& json) {
  known_[key] = json;
  file_->line(nlohmann::ordered_json{{"of", key}, {"result", nlohmann::ordered_json::parse(json)}}.dump());
}

}  // namespace gpt::bench
