#include "gpt/evaluate/task.h"

#include <fmt/format.h>

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

Task parse_task(std::string_view text) {
  std::string known;
  for (const auto& [name, kind] : kTasks) {
    if (text.starts_with(name) && text.size() > name.size() + 1 && text[name.size()] == ':')
      return {std::string(name), kind, expand_home(std::string(text.substr(name.size() + 1)))};
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(ExitCode::config, fmt::format("--tasks {}: write NAME:FILE, where NAME is one of {}", text, known));
}

}  // namespace gpt::evaluate
