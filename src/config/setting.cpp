#include "gpt/config/setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/batch.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/home.h"

namespace gpt::config {
namespace {

constexpr const char* kPresetKey = "model.preset";

std::string named(const Option& option, const Setting& setting) {
  return setting.where == "--" + option.key() ? setting.where : fmt::format("{}: '{}'", setting.where, option.key());
}

// Its text, or the path that it stands for.
std::string value_of(const Option& option, const Setting& setting) {
  if (!option.is_path) return setting.text;
  if (setting.text.find_first_of("\n\r") != std::string::npos) {  // which would look like a line of the log
    throw Error(ExitCode::config,
                fmt::format("{} must not have a line break, got {}", named(option, setting), in_quotes(setting.text)));
  }
  try {
    return expand_home(setting.text);
  } catch (const Error& fault) {
    throw Error(ExitCode::config, fmt::format("{}: {}", named(option, setting), fault.what()));
  }
}

void assign_or_throw(const Option& option, const Setting& setting) {
  if (const auto* structure = std::get_if<Structure>(&option.target)) {
    structure->read(setting.node ? *setting.node : Node{.text = setting.text, .where = setting.where});
  } else if (const auto fault = assign(option, value_of(option, setting), setting.quoted)) {
    throw Error(ExitCode::config, fmt::format("{} {}", named(option, setting), *fault));
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
  const bool may_repeat = std::holds_alternative<std::vector<std::string>*>(spelling.option->target);
  for (const Setting& other : settings) {
    if (other.key == setting.key && !may_repeat) {
      if (setting.written == other.written)
        throw Error(ExitCode::config, setting.written + " is given twice; keep one");
      throw Error(ExitCode::config, fmt::format("{}: '{}' is already set {} {}; keep one", setting.written, setting.key,
                                                other.written.starts_with('-') ? "by" : "at", other.written));
    }
  }
  if (spelling.alias) setting.spelling = spelling.alias->name;
  if (const Alias* alias = spelling.alias; alias && alias->is_switch()) {
    bool on = false;
    assign_or_throw({.name = alias->name, .target = &on, .help = ""}, setting);
    setting.text = on ? alias->if_true : alias->if_false;
  } else if (alias && !alias->unit.empty()) {
    setting.text += " " + alias->unit;
  }
  settings.push_back(std::move(setting));
}

Origins apply_settings(const std::vector<Setting>& settings, const std::vector<Option>& rows) {
  Origins origins;
  for (const Setting& setting : settings) {
    for (const Option& row : rows) {
      if (row.key() != setting.key) continue;
      assign_or_throw(row, setting);
      origins[setting.key] = setting.written;
      if (!setting.spelling.empty()) origins[setting.spelling] = setting.written;
    }
  }
  return origins;
}

Origins apply_settings(const std::vector<Setting>& settings, Config& config) {
  std::vector<Option> rows = options(config);
  const auto others =
      std::stable_partition(rows.begin(), rows.end(), [](const Option& row) { return row.key() == kPresetKey; });
  Origins origins = apply_settings(settings, std::vector<Option>(rows.begin(), others));
  if (!origins.empty()) apply_preset(config.model);
  origins.merge(apply_settings(settings, std::vector<Option>(others, rows.end())));
  derive_accumulation(config.training, origins);
  return origins;
}

}  // namespace gpt::config
