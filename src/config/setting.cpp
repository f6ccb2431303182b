#include "gpt/config/setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "stages.h"

namespace gpt::config {
namespace {

constexpr const char* kPresetKey = "model.preset";

void assign_or_throw(const Option& option, const Setting& setting) {
  if (auto* const* stages = std::get_if<std::vector<Stage>*>(&option.target)) {
    **stages = read_stages(setting.node ? *setting.node : Node{.text = setting.text, .where = setting.where});
  } else if (const auto fault = assign(option, setting.text, setting.quoted)) {
    throw Error(ExitCode::config, fmt::format("{}: '{}' {}", setting.where, option.key(), *fault));
  }
}

const Option& option_of(const std::vector<Option>& rows, const Setting& setting) {
  return *std::find_if(rows.begin(), rows.end(), [&](const Option& option) { return option.key() == setting.key; });
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
  if (const Alias* alias = spelling.alias; alias && alias->is_switch()) {
    bool on = false;
    assign_or_throw({.name = alias->name, .target = &on, .help = ""}, setting);
    setting.text = on ? alias->if_true : alias->if_false;
  }
  settings.push_back(std::move(setting));
}

Origins apply_settings(const std::vector<Setting>& settings, Config& config) {
  const std::vector<Option> rows = options(config);
  Origins origins;
  for (const Setting& setting : settings) {
    if (setting.key == kPresetKey) assign_or_throw(option_of(rows, setting), setting);
    origins[setting.key] = setting.written;
  }
  if (origins.count(kPresetKey)) apply_preset(config.model);
  for (const Setting& setting : settings) {
    if (setting.key != kPresetKey) assign_or_throw(option_of(rows, setting), setting);
  }
  return origins;
}

}  // namespace gpt::config
