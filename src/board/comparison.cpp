#include "gpt/board/comparison.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/config/output_folder.h"
#include "gpt/config/run_files.h"
#include "gpt/report/run_page.h"

namespace gpt::board {
namespace {

using nlohmann::ordered_json;

ordered_json group_json(const RunGroup& group) {
  const std::vector<std::vector<std::string>> differing = differing_settings(group.runs);
  ordered_json runs = ordered_json::array(), keys = ordered_json::array();
  for (const auto& row : differing) keys.push_back(row[0]);
  for (size_t i = 0; i < group.runs.size() && i < Comparison::kMostRuns; ++i) {
    ordered_json values = ordered_json::array();
    for (const auto& row : differing) values.push_back(row[1 + i]);
    runs.push_back({{"name", group.runs[i].folder},
                    {"best", report::page_number(group.value_of(group.runs[i]))},
                    {"settings", std::move(values)}});
  }
  return {{"verdict", verdict_on(group)},
          {"what", group.have_same_tokens ? "validation loss" : "bits per byte"},
          {"count", group.runs.size()},
          {"runs", std::move(runs)},
          {"settings", std::move(keys)}};
}

}  // namespace

std::string Comparison::text(const std::vector<ComparedRun>& runs) {
  std::vector<RunSummary> summaries;
  {
    const std::lock_guard lock(mutex_);
    for (const ComparedRun& run : runs) {
      RunSummary& summary = summaries.emplace_back(read(run.folder));
      summary.folder = run.name;
      if (run.best) summary.history.add(*run.best);
    }
  }
  ordered_json groups = ordered_json::array();
  for (const RunGroup& group : grouped(std::move(summaries)))
    if (group.runs.size() > 1) groups.push_back(group_json(group));
  return ordered_json{{"groups", std::move(groups)}}.dump(-1, ' ', /*ensure_ascii=*/false,
                                                          ordered_json::error_handler_t::replace);
}

std::optional<TextAndTokens> Comparison::text_and_tokens(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  const std::optional<Config>& config = read(folder).config;
  return config ? std::optional(board::text_and_tokens(*config)) : std::nullopt;
}

const RunSummary& Comparison::read(const std::string& folder) {
  const std::optional<FileMark> mark = mark_of(folder + "/" + kEffectiveConfig);
  const auto [known, is_new] = read_.try_emplace(folder);
  if (is_new || known->second.mark != mark) known->second = {mark, {folder, {}, config::left_configuration(folder)}};
  return known->second.run;
}

}  // namespace gpt::board
