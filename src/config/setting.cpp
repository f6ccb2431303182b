#include "gpt/config/setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "stages.h"

namespace gpt::config {
namespace {

constexpr const char* kPresetKey = "model.preset";

void assign_or_throw(const std::vector<Option>& rows, const Setting& setting) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Option& option) { return option.key() == setting.key; });
  if (auto* const* stages = std::get_if<std::vector<Stage>*>(&row->target)) {
    **stages = read_stages(setting.node ? *setting.node : Node{.text = setting.text, .where = setting.where});
  } else if (const auto fault = assign(*row, setting.text, setting.quoted)) {
    throw Error(ExitCode::config, fmt::format("{}: '{}' {}", setting.where, setting.key, *fault));
  }
}

}  // namespace

Spelling find_option(const std::vector<Option>& rows, std::string_view section, std::string_view name) {
  for (const Option& option : rows) {
    if (option.section != section) continue;
    if (option.name == name) return {&option, nullptr};
    for (const Alias& alias : option.aliases) {
      if (alias.name == name) return {&option, &alias};
    }
  }
  return {};
}

void add_setting(std::vector<Setting>& settings, const Spelling& spelling, Setting setting) {
  setting.key = spelling.option->key();
  for (const Setting& other : settings) {
    if (other.key == setting.key) {
      if (setting.written == other.written)
        throw Error(ExitCode::config, setting.written + " is given twice; keep one");
      throw Error(ExitCode::config,
                  fmt::format("{}: '{}' is already set at {}; keep one", setting.written, setting.key, other.written));
    }
  }
  if (spelling.alias && !spelling.alias->values.empty()) {
    const auto& values = spelling.alias->values;
    const auto value =
        std::find_if(values.begin(), values.end(), [&](const auto& pair) { return pair.first == setting.text; });
    if (value == values.end()) {
      std::vector<std::string> names;
      for (const auto& [name, meaning] : values) names.push_back(name);
      throw Error(ExitCode::config, fmt::format("{}: '{}' must be {}, got {}", setting.where, spelling.alias->name,
                                                fmt::join(names, " or "), in_quotes(setting.text)));
    }
    setting.text = value->second;
  }
  settings.push_back(std::move(setting));
}

Origins apply_settings(const std::vector<Setting>& settings, Config& config) {
  const std::vector<Option> rows = options(config);
  Origins origins;
  for (const Setting& setting : settings) {
    if (setting.key == kPresetKey) assign_or_throw(rows, setting);
    origins[setting.key] = setting.written;
  }
  if (origins.count(kPresetKey)) apply_preset(config.model);
  for (const Setting& setting : settings) {
    if (setting.key != kPresetKey) assign_or_throw(rows, setting);
  }
  return origins;
}

}  // namespace gpt::config
