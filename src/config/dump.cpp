#include <fmt/format.h>

#include "gpt/config/load.h"
#include "gpt/config/value.h"

namespace gpt::config {

std::string dump(const Config& config) {
  Config copy = config;
  std::string result, section;
  for (const Option& row : options(copy)) {
    if (row.section != section) result += fmt::format("\n{}:\n", section = row.section);
    const std::string line = fmt::format("{}{}: {}", section.empty() ? "" : "  ", row.name, yaml_scalar(row.target));
    result += fmt::format("{:<38}  # {}\n", line, row.help);
  }
  return result;
}

std::vector<Change> difference(const Config& before, const Config& after) {
  Config old_copy = before, new_copy = after;
  const std::vector<Option> old_rows = options(old_copy), new_rows = options(new_copy);
  std::vector<Change> changes;
  for (size_t i = 0; i < old_rows.size(); ++i) {
    const std::string old_text = yaml_scalar(old_rows[i].target), new_text = yaml_scalar(new_rows[i].target);
    if (old_text != new_text) changes.push_back({old_rows[i].key(), old_text, new_text, old_rows[i].safe_on_resume});
  }
  return changes;
}

}  // namespace gpt::config
