#include "gpt/evaluate/task.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/home.h"

namespace gpt::evaluate {
namespace {

constexpr std::pair<std::string_view, TaskKind> kTasks[] = {
    {"hellaswag", TaskKind::hellaswag}, {"arc_easy", TaskKind::arc},
    {"arc_challenge", TaskKind::arc},   {"arc", TaskKind::arc},
    {"piqa", TaskKind::piqa},           {"lambada_openai", TaskKind::lambada},
    {"lambada", TaskKind::lambada},     {"wikitext", TaskKind::wikitext}};

}  // namespace

Task parse_task(std::string_view text, std::string_view option) {
  std::string known;
  for (const auto& [name, kind] : kTasks) {
    if (text.starts_with(name) && text.size() > name.size() + 1 && text[name.size()] == ':')
      return {std::string(name), kind, expand_home(std::string(text.substr(name.size() + 1)))};
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(ExitCode::config, fmt::format("{} {}: write NAME:FILE, where NAME is one of {}", option, text, known));
}

std::vector<Task> parse_tasks(const std::vector<std::string>& texts, std::string_view option) {
  std::vector<Task> tasks;
  std::set<std::string> names;
  for (const std::string& text : texts) {
    tasks.push_back(parse_task(text, option));
    if (!names.insert(tasks.back().name).second) {
      throw Error(ExitCode::config, fmt::format("{} {}: {} is there already; evaluate them one after the other", option,
                                                text, tasks.back().name));
    }
  }
  return tasks;
}

}  // namespace gpt::evaluate
